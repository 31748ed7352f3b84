"""How look-ups get the bytes of files: caches, what is read ahead, what threads share."""
