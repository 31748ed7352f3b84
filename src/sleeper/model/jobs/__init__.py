"""Jobs as values: messages on queues, events of runs, and the statuses that follow from events."""
