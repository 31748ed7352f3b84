"""The transactions of a table: on files, on partitions, and others."""
