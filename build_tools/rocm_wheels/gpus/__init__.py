"""The GPUs and the ROCm of this machine: the standard library only, and relative imports only.

This room is shipped twice: below rocm-wheels, and inside the provider plugin of wheel variants, which
    installers run before anything is chosen and which may therefore need nothing.
"""
