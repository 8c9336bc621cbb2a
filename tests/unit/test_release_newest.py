"""Which of several sets is the newest."""

from __future__ import annotations

import pytest
from documents import a_set, wheel
from packaging.version import Version

from rocm_wheels.release import wheel_set

# (version of torch or None, when it was made), the newest last
NIGHTS = [
    (None, "2026-11-30"),  # no torch: nothing that a newer torch is held against
    ("2.12.1+nightly20261122.9.rocm10.1", "2026-11-22"),
    ("2.13.0+nightly20261121.17.rocm10.1", "2026-11-29"),  # made again later: still that night's
    ("2.13.0+nightly20261122.9.rocm7.2", "2026-11-22"),
    ("2.13.0+nightly20261122.17.rocm7.2", "2026-11-22"),
    ("2.13.0+rocm7.2.0", "2026-11-01"),
    ("2.13.0+rocm7.2.0", "2026-11-02"),  # a build tag, or another lock: the one that was made last
    ("2.14.0rc1+rocm7.2.0", "2026-11-01"),
    ("2.14.0+rocm7.2.0", "2026-11-01"),
    ("2.15.0.dev20261120+rocm7.2.0", "2026-11-01"),
    ("2.15.0a0+nightly20261120.3.rocm7.2.0", "2026-11-01"),
]


def ordered(channel: str | None) -> list[tuple[str | None, str]]:
    """Return what is there in the order of a channel, whatever the order in which it came."""

    def key(one: tuple[str | None, str]) -> object:
        projects = ("torch", "torchvision") if one[0] else ("triton",)
        return wheel_set.rank_set(projects, one[0] or "3.5.0", one[1], "x", channel=channel)

    found = [sorted(some, key=key) for some in (NIGHTS, NIGHTS[::-1], sorted(NIGHTS, key=str))]  # type: ignore[arg-type]
    assert found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.parametrize("channel", ["nightly", None])
def test_of_nights_the_newest_torch_is_the_newest_set(channel: str | None) -> None:
    assert ordered(channel) == NIGHTS


@pytest.mark.parametrize("channel", ["prerelease", "stable"])
def test_of_releases_finals_are_newer_than_pre_releases(channel: str) -> None:
    finals = [one for one in NIGHTS[1:] if not Version(str(one[0])).is_prerelease]
    assert ordered(channel) == [NIGHTS[0], *(one for one in NIGHTS[1:] if one not in finals), *finals]


def test_a_line_is_two_numbers() -> None:
    versions = {"2.13.0a0+rocm7.1": (2, 13), "2.9.1": (2, 9), "3": (3, 0)}
    for version, line in versions.items():
        assert a_set().model_copy(update={"version": version}).torch_line == line
    assert a_set(wheel("triton")).torch_line is None
