"""What each kind of job does with a message: a handler each, for the one worker loop."""
