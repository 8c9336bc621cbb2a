"""One path to the ROCm packages of several environments: where the link leads, and when it is moved."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.sdk import rocm_sdk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is shared there")


def sdk(site: Path, content: str) -> rocm_sdk.RocmSdk:
    """Make the packages of an environment, and what its SDK says."""
    root = site / "_rocm_sdk_devel"
    (root / "lib" / "cmake").mkdir(parents=True)
    (root / "bin").mkdir()
    (site / "content").write_text(content)
    return rocm_sdk.RocmSdk("7.1.0", root, root / "lib" / "cmake", root / "bin", ("gfx942",), {})


def content_at(site: Path) -> str:
    return (site / "content").read_text()


def test_environments_with_the_same_packages_have_the_same_paths(tmp_path: Path) -> None:
    first, second = sdk(tmp_path / "a b", "x"), sdk(tmp_path / "second", "x")
    one = rocm_sdk.share_sdk(first, "x", tmp_path / "rocm", content_at)
    assert one == rocm_sdk.share_sdk(second, "x", tmp_path / "rocm", content_at)
    assert one.root == tmp_path / "rocm" / "rocm-x" / "_rocm_sdk_devel"
    assert (one.cmake, one.bin) == (one.root / "lib" / "cmake", one.root / "bin")
    assert one.root.resolve() == first.root
    other = rocm_sdk.share_sdk(sdk(tmp_path / "third", "y"), "y", tmp_path / "rocm", content_at)
    assert other.root.resolve() == tmp_path / "third" / "_rocm_sdk_devel"


@pytest.mark.parametrize("change", ["other packages", "gone"])
def test_a_link_to_what_is_no_longer_the_same_is_moved(tmp_path: Path, change: str) -> None:
    first, second = sdk(tmp_path / "first", "x"), sdk(tmp_path / "second", "x")
    rocm_sdk.share_sdk(first, "x", tmp_path / "rocm", content_at)
    if change == "gone":
        (tmp_path / "first").rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "first" / "content").write_text("y")
    moved = rocm_sdk.share_sdk(second, "x", tmp_path / "rocm", content_at)
    assert moved.root.resolve() == second.root
    assert [path.name for path in (tmp_path / "rocm").iterdir()] == ["rocm-x"]


def test_an_sdk_in_several_places_is_left_as_it_is(tmp_path: Path) -> None:
    spread = replace(sdk(tmp_path / "first", "x"), bin=tmp_path)
    assert rocm_sdk.share_sdk(spread, "x", tmp_path / "rocm", content_at) == spread
    assert not (tmp_path / "rocm").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "rocm").write_text("")
    with pytest.raises(errors.SdkError, match=r"rocm/rocm-x cannot be made: "):
        rocm_sdk.share_sdk(sdk(tmp_path / "first", "x"), "x", tmp_path / "rocm", content_at)
