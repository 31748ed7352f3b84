"""Where records live: one adapter for each outside system, behind the sockets of `ports`."""
