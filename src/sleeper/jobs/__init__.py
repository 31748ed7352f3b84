"""Jobs of an instance as a user holds them: submitted, followed to their end, found again."""
