"""Queues, tracker and batcher store in one SQLite file, for the processes of one machine."""
