"""Detect the GPUs and the ROCm of a machine: the standard library only, and relative imports only.

``detect_hardware`` asks the best source that answers (the kernel driver's files, ROCm's tools, the PCI bus
with a table) and returns ``Hardware``: every ``Gpu``, every ``RocmInstallation``, and what could not be
read. ``variables`` says what environment variables state or hide. ``list_supported_features`` turns
hardware into properties of wheel variants. A vendor is one row in ``GPU_VENDORS``,
and one file where its driver has a program to ask.

This package is shipped twice: below rocm-wheels, and inside the provider plugin of wheel variants, which
installers run before anything is chosen and which may therefore need nothing.
"""

from .detect import UNKNOWN_TARGET, detect_hardware, sort_gpus
from .gpu import (
    GENERIC_TARGETS,
    INTEGRATED_TARGETS,
    INTEL_BEFORE_XE,
    KNOWN_TARGETS,
    Gpu,
    Hardware,
    RocmInstallation,
    decode_target_number,
    find_generic_target,
    format_override_version,
    is_chip_name,
    parse_override_version,
    parse_target_name,
)
from .kfd import NO_DEVICE_FILES, read_topology
from .nvidia import parse_nvidia_smi
from .pci import (
    PCI_TABLE_COLUMNS,
    PCI_TABLES,
    PCI_VENDORS,
    SOURCE_MARK,
    PciEntry,
    PciSource,
    find_pci_entry,
    list_pci_entries,
    list_pci_sources,
    normalize_pci_id,
    parse_lspci,
    parse_pci_sources,
    search_pci_entries,
    split_words,
)
from .programs import ProgramAnswer, Runner, run_program
from .rocm import (
    ToolOutputError,
    find_rocm_installations,
    parse_agent_enumerator,
    parse_amd_smi,
    parse_rocminfo,
)
from .variables import (
    CUDA_VISIBLE_DEVICES,
    GFX_VARIABLES,
    HIP_VISIBLE_DEVICES,
    OVERRIDE_VARIABLE,
    ROCM_VERSIONS,
    ROCR_VISIBLE_DEVICES,
    list_known_features,
    list_supported_features,
    mark_visible_gpus,
)
from .vendors import GPU_VENDORS, GpuVendor
from .windows_macos import parse_clinfo, parse_pnp_devices, parse_system_profiler

__all__ = [
    "CUDA_VISIBLE_DEVICES",
    "GENERIC_TARGETS",
    "GFX_VARIABLES",
    "GPU_VENDORS",
    "HIP_VISIBLE_DEVICES",
    "INTEGRATED_TARGETS",
    "INTEL_BEFORE_XE",
    "KNOWN_TARGETS",
    "NO_DEVICE_FILES",
    "OVERRIDE_VARIABLE",
    "PCI_TABLES",
    "PCI_TABLE_COLUMNS",
    "PCI_VENDORS",
    "ROCM_VERSIONS",
    "ROCR_VISIBLE_DEVICES",
    "SOURCE_MARK",
    "UNKNOWN_TARGET",
    "Gpu",
    "GpuVendor",
    "Hardware",
    "PciEntry",
    "PciSource",
    "ProgramAnswer",
    "RocmInstallation",
    "Runner",
    "ToolOutputError",
    "decode_target_number",
    "detect_hardware",
    "find_generic_target",
    "find_pci_entry",
    "find_rocm_installations",
    "format_override_version",
    "is_chip_name",
    "list_known_features",
    "list_pci_entries",
    "list_pci_sources",
    "list_supported_features",
    "mark_visible_gpus",
    "normalize_pci_id",
    "parse_agent_enumerator",
    "parse_amd_smi",
    "parse_clinfo",
    "parse_lspci",
    "parse_nvidia_smi",
    "parse_override_version",
    "parse_pci_sources",
    "parse_pnp_devices",
    "parse_rocminfo",
    "parse_system_profiler",
    "parse_target_name",
    "read_topology",
    "run_program",
    "search_pci_entries",
    "sort_gpus",
    "split_words",
]
