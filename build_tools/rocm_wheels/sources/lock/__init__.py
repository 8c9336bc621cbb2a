"""The lock: made, read, compared, renewed."""
