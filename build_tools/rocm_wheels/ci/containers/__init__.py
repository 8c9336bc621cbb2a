"""Commands in containers: which image, which engine, the engine's command, and its end."""
