"""States of tables in AWS: a log in DynamoDB, states as items there, and states as parts in S3."""
