"""Stacks of metrics, alarms and the dashboard."""
