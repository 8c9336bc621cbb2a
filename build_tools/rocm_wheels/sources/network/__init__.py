"""What needs a server, or a mirror of one: refs, commits, submodules."""
