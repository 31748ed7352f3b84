"""What stacks are made of: queues, tables, functions, tasks, with the rules that all keep."""
