"""The kinds of steps: what each one does, in a file of its own or beside the kind it goes with."""
