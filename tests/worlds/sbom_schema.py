"""The strict schema of CycloneDX 1.6, as an oracle. Its validator is imported when it is used: 2 s."""

from __future__ import annotations

import json
from typing import Any


def require_valid(content: bytes) -> dict[str, Any]:
    """Return a document that the schema accepts."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode())
    assert error is None, error
    document: dict[str, Any] = json.loads(content)
    return document
