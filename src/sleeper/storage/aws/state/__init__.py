"""States of tables in DynamoDB."""
