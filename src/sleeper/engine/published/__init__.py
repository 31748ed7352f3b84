"""Tables in formats of others: what readers of Delta and Iceberg need, beside our data files."""
