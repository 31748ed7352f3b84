"""What `sleeper serve` runs: maintenance, and workers of jobs. Its server: `interfaces/rest`."""
