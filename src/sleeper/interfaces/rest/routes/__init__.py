"""The routes of the REST server, a module for each subject."""
