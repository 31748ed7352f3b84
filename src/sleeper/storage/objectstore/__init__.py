"""Objects in a bucket: S3, and whatever speaks its protocol. Google's store is untried."""
