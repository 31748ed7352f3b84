"""What each kind of job does with a message: a reader each, for the one worker loop."""
