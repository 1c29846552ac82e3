"""Elements chosen by position, mask or index."""
