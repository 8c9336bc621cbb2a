"""The table of PCI ids, opened only when there is a card to look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pci import PciEntry


def find_card_entry(pci_id: str | None) -> PciEntry | None:
    """Return what the table knows of a card (``1002:74a1``), None for one that it does not know."""
    if pci_id is None:
        return None
    from .pci import find_pci_entry

    return find_pci_entry(pci_id)
