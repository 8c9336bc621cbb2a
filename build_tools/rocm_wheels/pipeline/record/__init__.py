"""What happened in a run: a file of events that every process of it appends to, and how it is read."""
