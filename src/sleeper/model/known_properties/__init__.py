"""The known properties of instances and tables, and their kinds of values."""
