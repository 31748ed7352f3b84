"""The stacks of an instance in AWS, for the CDK. Only modules here may import it."""
