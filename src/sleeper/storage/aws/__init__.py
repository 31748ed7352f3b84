"""Adapters for AWS, by boto3.

`deployment/` has the buckets of an instance, their names and its table index; `jobs/` queues in SQS
and trackers in DynamoDB; `state/` logs and states of tables.
"""
