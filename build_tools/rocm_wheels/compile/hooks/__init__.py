"""What a recipe cannot say: one module a project, one line in ``table``."""
