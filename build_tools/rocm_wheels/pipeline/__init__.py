"""Steps in order: what each needs, whether it must run, what came out."""
