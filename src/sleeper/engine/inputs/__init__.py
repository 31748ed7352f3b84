"""What users hand to a table, and how its columns are brought into line."""
