"""Texts and messages that arrive from outside or leave, as upstream writes them."""
