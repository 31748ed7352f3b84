"""Entry points for users and machines: they parse arguments, call one method, show the result."""
