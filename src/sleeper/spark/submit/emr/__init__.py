"""Requests for EMR: a cluster of its own for each job, one that is kept, or EMR Serverless."""
