"""Commands for jobs and for the processes that run them."""
