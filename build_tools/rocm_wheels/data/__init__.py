"""Tables of facts, each owned by one module of ``rocm_wheels.model``."""
