"""Handing a bulk import job to a cluster: what is sent, and sending it."""
