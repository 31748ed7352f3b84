"""The adapter for buckets: S3 and servers with its protocol. Google's store is not tested."""
