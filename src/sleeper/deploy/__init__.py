"""Deployment of an instance to AWS."""
