"""Which of several sets is the newest: that of the newest torch, and of those the one that was made last.

Sets of several torch lines come to one channel, and the line whose set came last is not the newest torch.

- Versions are in the order in which installers take them (PEP 440, local parts as ``+rocm7.1.0`` too); then
  counts when a set was made, and last its id.
- Installers take a pre-release (``2.15.0a0``) only where there is no final: so do the channels of releases.
  Who asks for nights wants the newest, final or not: so it is on ``nightly``, and where no channel is asked.
- A set without torch comes after those that have it: its versions are of something else.

It is asked for each platform alone: what is the newest on Linux is nothing to people with Windows.
"""

from __future__ import annotations

from collections.abc import Container
from typing import get_args

from packaging.version import Version

from rocm_wheels.model.project import Platform

PLATFORM_ORDER: tuple[Platform, ...] = get_args(Platform)  # in the order in which they are told
SetRank = tuple[bool, bool, Version, str, str]
TORCH_PROJECT, _NO_VERSION = "torch", Version("0")
_PRERELEASE_CHANNELS = {"nightly", None}


def rank_set(
    projects: Container[str], version: str, created: str, set_id: str, *, channel: str | None
) -> SetRank:
    """Return what sets are sorted by: the greatest is the newest.

    ``version`` is that of the set: torch's, where that is among its ``projects``.
    """
    if TORCH_PROJECT not in projects:
        return False, False, _NO_VERSION, created, set_id
    torch_version = Version(version)
    return (
        True,
        channel in _PRERELEASE_CHANNELS or not torch_version.is_prerelease,
        torch_version,
        created,
        set_id,
    )


def parse_torch_line(version: str) -> tuple[int, int]:
    """Return the two numbers that a torch line is called by: ``(2, 13)`` of ``2.13.0a0+rocm7.1``."""
    torch_version = Version(version)
    return torch_version.major, torch_version.minor
