"""Which build is the newest, why another sorts above it, and how it could be spelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from rocm_wheels.core import errors
from rocm_wheels.index import resolve_check
from rocm_wheels.wheels import dist_info

OLD, NEW = Version("2.12.0+rocm7.15.0a20260728"), Version("2.12.0+rocm10.1.0a20260821")

WHY = [
    (str(OLD), str(NEW), "'rocm7' and 'rocm10' are compared as text"),
    ("2.13.0+rocm7", "2.12.0+rocm9", "2.13.0 is a later version than 2.12.0"),
    ("2.12.0+rocm7", "2.12.0", "a version with a local part is above the same without"),
    ("2.12.0+rocm.10.1", "2.12.0+rocm.7.15", "10 is a higher number than 7"),
    ("2.12.0+rocm.7.1.0", "2.12.0+rocm.7.1.0a2026", "'0' is a number and '0a2026' is text"),
    ("2.12.0+rocm7.1.git1", "2.12.0+rocm7.1", "is the other's and more"),
]


@pytest.mark.parametrize(("higher", "lower", "said"), WHY)
def test_why_one_is_above_the_other(higher: str, lower: str, said: str) -> None:
    assert Version(higher) > Version(lower)
    assert said in resolve_check.explain_order(Version(higher), Version(lower))


SPELLINGS = [  # a version, what the index has, the first spelling that is above it all
    (str(NEW), [str(OLD)], "2.12.0+rocmsdk.10.1.0a20260821"),
    (str(NEW), ["2.12.0+rocm.7.1"], "2.12.0+rocm.10.1.0a20260821"),
    (str(NEW), ["2.12.0+rocmzzz"], "2.12.0+20260821.rocm10.1.0a20260821"),
    (str(NEW), ["2.13.0"], "None"),
    ("3.7.0+git1234abcd.rocm7.1.0", ["3.7.0+git1234abcd.rocm7"], "3.7.0+git1234abcd.rocmsdk.7.1.0"),
    ("2.12.0+cu130", [], "None"),
]


@pytest.mark.parametrize(("version", "others", "spelled"), SPELLINGS)
def test_a_spelling_that_sorts(version: str, others: list[str], spelled: str) -> None:
    found = resolve_check.find_sorting_spelling(
        Version(version), [Version(text) for text in [version, *others]]
    )
    assert str(found) == spelled


DATES = [
    ("2.12.0+rocm10.1.0a20260821", "20260821"),
    ("2.14.0.dev20261120+rocm7.2", "20261120"),
    ("2.12.0+rocm7.1.0", ""),
    ("2.12.0+git20269999", ""),
]


@pytest.mark.parametrize(("version", "date"), DATES)
def test_dates_of_builds(version: str, date: str) -> None:
    assert resolve_check.find_build_date(Version(version)) == date


def wheels(old: tuple[str, ...], new: tuple[str, ...]) -> list[resolve_check.WheelCandidate]:
    names = [
        dist_info.parse_wheel_name(f"torch-{text}-cp312-cp312-linux_x86_64.whl") for text in (*old, *new)
    ]
    return [resolve_check.WheelCandidate(name.version, name.tags, str(name.version) in new) for name in names]


EXPECTED = [
    ("torch", (str(OLD),), (str(NEW),), str(NEW), "the latest build (20260821)"),
    ("torch", (str(NEW),), (str(OLD),), str(NEW), "the latest build (20260821)"),
    ("torch", ("2.12.0+rocm7.1",), ("2.12.0+rocm10.1",), "2.12.0+rocm10.1", "the only new one"),
    ("torch", ("2.13.0+rocm7.1",), ("2.12.0+rocm10.1",), "2.13.0+rocm7.1", "the highest version"),
    ("torch==2.12.0", ("2.13.0+rocm7.1",), ("2.12.0+rocm10.1",), "2.12.0+rocm10.1", "the only new one"),
    ("torch", ("2.13.0rc1",), ("2.12.0+rocm10.1",), "2.12.0+rocm10.1", "the only new one"),
    ("torch", ("2.12.0+rocm7.15.0a20260728",), ("2.12.0+rocm10.1",), "2.12.0+rocm10.1", "the only new one"),
    ("torch>=3", ("2.12.0",), (), "None", ""),
]


@pytest.mark.parametrize(("requirement", "old", "new", "version", "why"), EXPECTED)
def test_what_is_expected(
    requirement: str, old: tuple[str, ...], new: tuple[str, ...], version: str, why: str
) -> None:
    request = resolve_check.ResolveRequest(new=[Path("x")])
    expected, reason = resolve_check.find_expected_version(requirement, wheels(old, new), request)
    assert str(expected) == version
    assert why in reason


def test_two_new_builds_without_dates_need_a_word() -> None:
    both = wheels((), ("2.12.0+rocm7.1", "2.12.0+rocm10.1"))
    with pytest.raises(
        errors.UsageError, match=r"which of 2\.12\.0\+rocm10\.1, 2\.12\.0\+rocm7\.1 is the newest"
    ):
        resolve_check.find_expected_version("torch", both, resolve_check.ResolveRequest(new=[]))
    expect = resolve_check.parse_expected_versions(["torch==2.12.0+rocm10.1"])
    request = resolve_check.ResolveRequest(new=[], expect=expect)
    assert str(resolve_check.find_expected_version("torch", both, request)[0]) == "2.12.0+rocm10.1"


def test_older_releases_are_asked_for_by_their_version() -> None:
    known = {"torch": wheels(("2.13.0+rocm7.1",), ("2.12.0+rocm10.1",))}
    request = resolve_check.ResolveRequest(new=[])
    assert resolve_check.list_older_releases(known, request) == {"torch==2.12.0": "torch"}


def test_tags_of_other_machines() -> None:
    linux = {str(tag) for tag in resolve_check.tags_for_python("3.12", "linux")}
    assert {"cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-linux_x86_64", "py3-none-any"} <= linux
    assert "cp313-cp313-linux_x86_64" not in linux
    assert "cp312-cp312-win_amd64" in {str(tag) for tag in resolve_check.tags_for_python("3.12", "windows")}
    for word in ("3", "2.7", "3.14x", "cp312"):
        with pytest.raises(errors.UsageError, match="is not a Python"):
            resolve_check.tags_for_python(word, "linux")
