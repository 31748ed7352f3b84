"""The adapters for a local folder: objects as files; `jobs/` has queues and trackers in SQLite."""
