"""Queues in SQS, tracker and batcher store in DynamoDB."""
