"""Adapters for SQS and DynamoDB, by boto3."""
