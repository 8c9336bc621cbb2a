"""Which wheels of ours a build environment holds, as it was noted when they were installed there."""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels.pipeline.facts.ready import ReadyEnvironment, digest_records

_NOTE_NAME = "rocm-wheels-installed.json"


def installed_note_path(ready: ReadyEnvironment) -> Path:
    """Return the file that says what of ours was installed: distribution → content, and when."""
    return ready.environment.prefix / _NOTE_NAME


def digest_installed_wheel(ready: ReadyEnvironment, distribution: str) -> str | None:
    """Say which wheel of a distribution is installed; ``None`` when there is none.

    It is the wheel's content when it is ours, else a digest of what its RECORD lists.
    """
    entry = read_installed_note(installed_note_path(ready)).get(distribution)
    install_time = read_install_time(ready, distribution)
    if not install_time:
        return None
    if entry and entry[1] == install_time:
        return str(entry[0])
    return digest_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


def read_install_time(ready: ReadyEnvironment, distribution: str) -> int:
    """Return when the metadata of an installed distribution were written (ns); 0 when it is not there."""
    pattern = distribution.replace("-", "_")
    folders = sorted(ready.site_packages.glob(f"{pattern}-*.dist-info"))
    return folders[0].stat().st_mtime_ns if len(folders) == 1 else 0


def read_installed_note(note: Path) -> dict[str, list[object]]:
    """Read what was noted; a missing or torn note says nothing (what is there is installed again)."""
    try:
        entries = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
