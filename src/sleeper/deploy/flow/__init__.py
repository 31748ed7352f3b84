"""Deploys an instance to AWS, changes what is deployed, and removes it."""
