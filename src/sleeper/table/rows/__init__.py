"""What users do with rows: ingest, query, export."""
