"""The web page of an instance: pages rendered by the server, mounted on the REST application."""
