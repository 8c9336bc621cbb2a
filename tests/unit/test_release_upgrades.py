"""What people run into who upgrade to a set: each kind, and what is none."""

from __future__ import annotations

import pytest
from documents import a_set, sha, wheel
from packaging.requirements import Requirement

from rocm_wheels.release import set_conflicts, wheel_set


def of(version: str, *projects: str) -> wheel_set.SetDocument:
    """Return a set whose wheels have this version."""
    listed = projects or ("torch",)
    return a_set(*(wheel(project, version=version, sha256=sha(project + version)) for project in listed))


def faults(document: wheel_set.SetDocument, *shown: wheel_set.SetDocument, requires: str = "") -> list[str]:
    listed = [Requirement(text) for text in requires.split("|") if text]
    by_file = {file.name: listed for file in document.files}
    return set_conflicts.find_upgrade_faults(document, by_file, shown)


@pytest.mark.parametrize(
    ("shown", "new", "is_below"),
    [
        ("2.12.0+rocm7.15.0a20260728", "2.12.0+rocm10.1.0a20260821", True),
        ("2.9.1+rocm7.2", "2.9.1+rocm10.0", True),
        ("2.9.1+rocm7.2", "2.9.1", True),
        ("2.9.1+rocm7.1", "2.9.1+rocm7.2", False),
        ("2.9.1+rocm.7.2", "2.9.1+rocm.10.0", False),
        ("2.10.0+rocm7.2", "2.9.1+rocm10.0", False),  # another release: an older line may follow a newer one
        ("2.9.1+rocm7.2", "2.9.1+rocm7.2", False),
    ],
)
def test_a_version_that_installers_take_for_older_is_named(shown: str, new: str, is_below: bool) -> None:
    found = faults(of(new), of(shown))
    assert bool(found) == is_below
    assert all(f"torch {new} sorts below {shown}" in fault for fault in found)


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        ('amd-torch-device-gfx1201==2.9.1; extra == "device-gfx1201"', "installs no kernels"),
        ("torch==2.9.1+rocm7.1.0", ""),  # which the set has
        ("triton==3.5.0+rocm7.1.0", ""),  # `promote` refuses a set with it (test_companion_sets)
        ("rocm[libraries]==7.1.0+x", ""),  # from ROCm's index
        ("rocm-sdk-device-gfx1201==7.1.0+x", ""),
        ("numpy", ""),
    ],
)
def test_what_a_set_lacks_and_installers_would_miss_is_named(requires: str, says: str) -> None:
    found = faults(of("2.9.1+rocm7.1.0"), requires=requires)
    assert len(found) == bool(says)
    assert all(says in fault for fault in found)
