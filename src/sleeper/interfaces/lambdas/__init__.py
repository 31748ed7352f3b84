"""Entry points of AWS Lambda: what runs an instance in AWS without a server."""
