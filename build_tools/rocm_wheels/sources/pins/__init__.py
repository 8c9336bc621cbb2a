"""Which commit of which repository: options, pins in the torch tree, release lines, recipes."""
