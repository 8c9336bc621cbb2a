"""ROCm releases and package indexes: which index a machine gets, best first, and why."""

from __future__ import annotations

from datetime import date

import pytest
from packaging.version import Version

from rocm_wheels.models import facts, package_indexes

BEST = [
    # target, the rest of the machine, the best index
    ("gfx942", {}, "amd-stable"),
    ("gfx90a:xnack+", {}, "amd-stable"),
    ("gfx1100", {"platform": "windows"}, "amd-stable"),
    ("gfx1010", {}, "amd-multi-arch"),
    ("gfx906", {}, "pytorch-rocm7.2"),
    ("gfx942", {"python": "3.14t"}, "pytorch-rocm7.14"),
    ("gfx1030", {"python": "3.9"}, "pytorch-rocm6.4"),
    ("gfx942", {"python": "3.10"}, "amd-stable"),
    ("gfx908", {"python": "3.10"}, "pytorch-rocm7.14"),  # AMD's builds for it are for 3.11 and later
    ("gfx942", {"channel": "nightly"}, "amd-nightly"),
    ("gfx942", {"channel": "prerelease"}, "amd-prerelease"),
    ("gfx1250", {"channel": "nightly"}, "amd-nightly"),
    ("gfx1250", {"channel": "bkc"}, "amd-bkc"),  # the stream has device packages for it alone
    (None, {}, "amd-stable"),
    ("12.0", {"vendor": "nvidia"}, "pytorch-cu130"),
    ("8.9", {"vendor": "nvidia", "machine": "arm64"}, "pytorch-cu130"),
    ("6.1", {"vendor": "nvidia"}, "pytorch-cu126"),
    ("3.7", {"vendor": "nvidia"}, "pytorch-cu118"),
    (None, {"vendor": "intel", "platform": "windows", "machine": "AMD64"}, "pytorch-xpu"),
    (None, {"vendor": "apple", "platform": "macos", "machine": "arm64"}, "pytorch-cpu"),
    (None, {"vendor": "none"}, "pytorch-cpu"),
    (None, {"vendor": "none", "channel": "nightly"}, "pytorch-nightly-cpu"),
]


@pytest.mark.parametrize(("target", "machine", "name"), BEST)
def test_the_best_index_comes_first_with_its_reason(target: str | None, machine: dict[str, str], name: str):
    best = package_indexes.find_indexes(target, **machine)[0]
    assert (best.name, bool(best.reason)) == (name, True)
    assert best.channel in best.reason


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("gfx9999", {}),  # a chip that nobody serves is no error
        ("gfx803", {}),
        ("gfx942", {"platform": "windows"}),
        ("gfx942", {"channel": "bkc"}),
        ("gfx942", {"machine": "aarch64"}),
        ("gfx942", {"python": "3.7"}),
        ("3.0", {"vendor": "nvidia"}),
    ],
)
def test_no_index_for_what_nobody_serves(target: str, machine: dict[str, str]):
    assert package_indexes.find_indexes(target, **machine) == ()


def test_the_reason_names_the_rocm_that_has_code_for_the_target():
    reason = package_indexes.find_indexes("gfx942")[0].reason
    assert "of ROCm 10.1.0, 10.0.0 with code for gfx942 (documented)" in reason
    assert (
        "of ROCm 10.0.0 with code for gfx908 (documented)" in package_indexes.find_indexes("gfx908")[0].reason
    )
    layouts = [one.layout for one in package_indexes.find_indexes("gfx942", channel="nightly")]
    # where nothing new is published last
    assert layouts == ["multi-arch", "multi-arch", "fat", "fat", "per-family"]


@pytest.mark.parametrize(("until", "has_ended"), [(date(9999, 1, 1), False), (date(2026, 1, 1), True)])
def test_a_table_that_has_ended_says_so(until: date, has_ended: bool, monkeypatch: pytest.MonkeyPatch):
    table = package_indexes.load_release_table().model_copy(update={"until": until})
    monkeypatch.setattr(package_indexes, "load_release_table", lambda: table)
    reason = package_indexes.find_indexes("gfx942")[0].reason
    assert (f"the table of indexes is of before {until}" in reason) == has_ended


def test_every_index_is_found_by_its_address_and_name():
    assert len({one.url for one in package_indexes.list_indexes()}) == len(package_indexes.list_indexes())
    for one in package_indexes.list_indexes():
        assert hash(one)
        assert package_indexes.find_index_by_url(one.url.rstrip("/")) == one
    assert package_indexes.find_index_by_url("http://localhost:8000/") is None


def test_releases_are_in_the_order_of_versions():
    versions = [one.version for one in package_indexes.list_rocm_releases()]
    assert versions == sorted(versions, reverse=True)
    order = [Version(text) for text in ("10.1.0", "10.0.0", "7.14.1", "7.2", "6.4")]
    assert [one for one in versions if one in order] == order


def test_versions_are_text_and_series_end_at_the_dot():
    for wrong in (2.10, 7, None, "seven"):
        with pytest.raises(ValueError, match=r"a version is text|not a version"):
            facts.parse_version(wrong)
    assert facts.is_in_series(Version("2.13.1+rocm7.2"), Version("2.13"))
    assert facts.is_in_series(Version("2.13"), Version("2.13.0"))
    assert not facts.is_in_series(Version("2.13"), Version("2.1"))
