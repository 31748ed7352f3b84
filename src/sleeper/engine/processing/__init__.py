"""What a table does to its rows whenever they are read: filters, aggregations, a function."""
