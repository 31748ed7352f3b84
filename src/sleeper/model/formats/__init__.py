"""Reads and writes text formats of upstream: jobs, properties files, regions, split points."""
