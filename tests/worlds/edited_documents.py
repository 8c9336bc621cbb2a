"""Edit documents of sets and channels on purpose, and seal them again: what lies behind the seal is met."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from rocm_wheels.release import document_seal

_SEAL = re.compile(rb',\n "seal": "[0-9a-f]{64}"\n}\n\Z')


def reseal(content: bytes) -> bytes:
    """Return a document that was edited with the seal of what it says now; one that ends in none as it is."""
    seal = _SEAL.search(content)
    return content if seal is None else document_seal.add_seal(content[: seal.start()])


def edit_sealed(content: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a document after an edit of its values, sealed again."""
    values = json.loads(content)
    seal = values.pop("seal")
    edit(values)
    values["seal"] = seal
    return reseal((json.dumps(values, indent=1) + "\n").encode())
