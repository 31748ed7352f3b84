"""The recipe for a program that runs upstream's compaction engine without its Java."""
