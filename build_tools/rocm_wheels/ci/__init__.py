"""CI: which cells there are, and the workflows, containers and batch jobs that build them."""
