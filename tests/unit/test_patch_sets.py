"""Which patch set belongs to a ref."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.cli import checkout_options
from rocm_wheels.core import errors
from rocm_wheels.sources import patches

KNOWN = ["2.9", "2.10", "3.7.x", "main", "nightly", "users-me-x"]
COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("ref", "line"),
    [
        ("release/2.9", "2.9"),
        ("refs/heads/release/2.10", "2.10"),
        ("v2.9.1-rc2", "2.9"),
        ("refs/tags/v2.10.0", "2.10"),
        ("release/3.7.x", "3.7.x"),
        ("nightly", "nightly"),
        ("main", "main"),
        ("users/me/x", "users-me-x"),
        ("release/2.8", None),
        ("refs/pull/7/head", None),
        (COMMIT, None),
        ("v29", None),
    ],
)
def test_line_of(ref: str, line: str | None) -> None:
    assert patches.match_line(ref, KNOWN) == line


@pytest.mark.parametrize(
    ("name", "made_with", "ref", "chosen"),
    [
        ("mine", "2.9", "main", "mine"),
        (None, "2.9", "main", "2.9"),
        (None, "", "release/2.9", "2.9"),
        (None, "", "users/me/x", "users-me-x"),
        (None, "", COMMIT, None),
        ("a/b", "", "main", None),
    ],
)
def test_set_to_save(tmp_path: Path, name: str | None, made_with: str, ref: str, chosen: str | None) -> None:
    if chosen is None:
        with pytest.raises(errors.UsageError):
            patches.choose_patch_folder("p", tmp_path, name=name, made_with=made_with, ref=ref)
        return
    assert (
        patches.choose_patch_folder("p", tmp_path, name=name, made_with=made_with, ref=ref)
        == tmp_path / "p" / chosen
    )


def test_a_folder_that_is_none_is_refused_by_what_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_WHEELS_PATCH_DIR", str(tmp_path / "a"))
    with pytest.raises(errors.UsageError, match=r"a is not a folder of patch sets \(ROCM_WHEELS_PATCH_DIR\)"):
        checkout_options.find_patch_folder({})
    with pytest.raises(errors.UsageError, match=r"b is not a folder of patch sets \(--patch-dir\)"):
        checkout_options.find_patch_folder({"patch_dir": tmp_path / "b"})
