"""The makers of GPUs: how their cards are known, what their wheels are called, which program knows more.

A new maker is one row here, and, where a program of its driver tells more than the PCI bus, one file beside
this with a function like ``query_nvidia``. A table of its PCI ids is a file beside ``pci.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from .gpu import Gpu
from .programs import Look


class GpuVendor(NamedTuple):
    """A maker of GPUs.

    ``pci_id`` is that of its cards (``1002``), ``title`` its name for people, ``build_kind`` what builds of
    torch for its GPUs are called (``rocm``, ``cuda``, ``xpu``), "" where there are none. ``pci_table`` is the
    file of its PCI ids, "" without one; ``target_field`` the field of ``Gpu`` that the targets of that table
    go into. ``query``: ``module:function`` of this package that asks the program of the vendor's driver.
    """

    pci_id: str
    title: str
    build_kind: str = ""
    pci_table: str = ""
    target_field: str = ""
    query: str = ""


# the best first: of two cards of one kind, that of the earlier row counts
GPU_VENDORS: dict[str, GpuVendor] = {
    "amd": GpuVendor("1002", "AMD", "rocm", "pci_ids.tsv", "gfx"),
    "nvidia": GpuVendor(
        "10de", "NVIDIA", "cuda", "pci_ids_nvidia.tsv", "capability", query="nvidia:query_nvidia"
    ),
    "intel": GpuVendor("8086", "Intel", "xpu", "pci_ids_intel.tsv", "capability"),
    "apple": GpuVendor("106b", "Apple"),
}


# asks the program of a driver: returns the cards, else those that it is given, and the version that it serves
VendorQuery = Callable[[Look, Sequence[Gpu]], tuple[list[Gpu], str | None]]


def find_vendor(pci_id: str) -> str | None:
    """Return whose card has a PCI id (``1002:74a1``); None for a maker that matters to no wheel."""
    return next((name for name, vendor in GPU_VENDORS.items() if vendor.pci_id == pci_id[:4]), None)


def load_vendor_query(name: str) -> VendorQuery | None:
    """Return what asks a vendor's own program; None where there is none."""
    module, _, function = GPU_VENDORS[name].query.partition(":")
    query: VendorQuery | None = (
        getattr(import_module(f".{module}", __package__), function) if module else None
    )
    return query
