"""Which wheels of ours a build environment holds, as it was noted when they were installed there."""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels.pipeline.facts.ready import Ready, digest_of_records

_NOTE = "rocm-wheels-installed.json"


def note_of(ready: Ready) -> Path:
    """Return the file that says what of ours was installed: distribution → content, and when."""
    return ready.environment.prefix / _NOTE


def digest_of_installed(ready: Ready, distribution: str) -> str | None:
    """Say which wheel of a distribution is installed; ``None`` when there is none.

    It is the wheel's content when it is ours, else a digest of what its RECORD lists.
    """
    known = read_note(note_of(ready)).get(distribution)
    when = installed_when(ready, distribution)
    if not when:
        return None
    if known and known[1] == when:
        return str(known[0])
    return digest_of_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


def installed_when(ready: Ready, distribution: str) -> int:
    """Return when the metadata of an installed distribution were written (ns); 0 when it is not there."""
    pattern = distribution.replace("-", "_")
    found = sorted(ready.site_packages.glob(f"{pattern}-*.dist-info"))
    return found[0].stat().st_mtime_ns if len(found) == 1 else 0


def read_note(note: Path) -> dict[str, list[object]]:
    """Read what was noted; a missing or torn note says nothing (what is there is installed again)."""
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
