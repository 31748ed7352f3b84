"""The interfaces of adapters, one module each: what the packages above need from storage."""
