"""States of tables in DynamoDB, whole or as items."""
