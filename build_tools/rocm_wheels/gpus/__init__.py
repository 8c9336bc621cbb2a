"""Detect the GPUs and the ROCm of a machine: the standard library only, and relative imports only.

``detect_hardware`` asks the best source that answers (the kernel driver's files, ROCm's tools, the PCI bus
with a table) and returns ``Hardware``: every ``Gpu``, every ``RocmInstallation``, and what could not be
read. ``variables`` says what environment variables state or hide. ``list_supported_features`` turns
hardware into properties of wheel variants. A vendor is one row in ``GPU_VENDORS``,
and one file where its driver has a program to ask.

This package is shipped twice: below rocm-wheels, and inside the provider plugin of wheel variants, which
installers run before anything is chosen and which may therefore need nothing.
"""
