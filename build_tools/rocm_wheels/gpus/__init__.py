"""The GPUs and the ROCm of this machine: the standard library only, and relative imports only.

This room is shipped twice: below rocm-wheels, and inside the provider plugin of wheel variants, which
installers run before anything is chosen and which may therefore need nothing.

| module | what it does |
|---|---|
| ``look`` | the way in: one look at a machine, from the best source that answers |
| ``gpu`` | what was found: ``Gpu``, ``RocmInstallation``, ``Hardware`` |
| ``linux`` ``other_systems`` | which sources there are on Linux, on Windows and macOS |
| ``kfd`` ``rocm_tools`` ``pci_bus`` ``nvidia`` | one source each |
| ``pci`` ``pci_names`` | the table of PCI ids |
| ``forced`` ``visible`` | variables: what states GPUs in place of a look, what hides them |
| ``rocm`` | every ROCm on the machine |
| ``names`` | names of targets, and generic ones |
| ``properties`` | hardware as features of wheel variants |
| ``programs`` | the one door to other programs |
"""
