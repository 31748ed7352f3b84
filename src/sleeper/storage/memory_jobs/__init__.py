"""Queues, tracker and batcher store in the memory of one process: complete adapters, for tests."""
