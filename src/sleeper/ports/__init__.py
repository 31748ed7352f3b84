"""The sockets of the system, one page each: what adapters provide and the rooms above use."""
