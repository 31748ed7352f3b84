"""Operations on a table as a whole: made, changed, emptied, deleted."""
