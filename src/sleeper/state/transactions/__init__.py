"""The transactions of a table: on files, on claims, on partitions, and others."""
