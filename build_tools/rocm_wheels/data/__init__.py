"""Tables of facts and policies: each is read by one module, mostly of ``rocm_wheels.models``."""
