"""The kinds of steps: what each one does, one file a kind."""
