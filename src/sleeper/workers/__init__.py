"""The loops that run jobs, maintain tables and serve."""
