"""What `sleeper serve` runs beside its web server."""
