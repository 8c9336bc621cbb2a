"""Wheels with a lock and a bill of materials inside, as packaging leaves them."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.package import sbom
from rocm_wheels.wheels import rewrite
from rocm_wheels.wheels.sbom import WheelParts


def embed_parts(wheel: Path, lock: bytes | None, parts: WheelParts) -> rewrite.RewrittenWheel:
    """Put both into a wheel, in its place."""
    return rewrite.rewrite_wheel(wheel, wheel.parent, sbom.make_provenance_edit(lock, parts), replace=True)
