"""Folders made once: whole or not at all, and not again from the same input."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.cli import demo
from rocm_wheels.core import errors
from rocm_wheels.demo import miniature


def _fill_with(text: str):  # type: ignore[no-untyped-def]
    return lambda folder: (folder / "file").write_text(text)


def test_it_is_made_once_for_one_input(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    assert miniature.make_folder(folder, "a", _fill_with("one"))
    assert not miniature.make_folder(folder, "a", _fill_with("never written"))
    assert (folder / "file").read_text() == "one"
    assert miniature.make_folder(folder, "b", _fill_with("two"))
    assert (folder / "file").read_text() == "two"
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    miniature.make_folder(folder, "a", _fill_with("one"))

    def fail(beside: Path) -> None:
        (beside / "half").touch()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        miniature.make_folder(folder, "b", fail)
    assert miniature.read_mark(folder) == "a"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("leftover", [".folder.part", ".folder.old"])
def test_what_a_killed_run_left_is_cleared(tmp_path: Path, leftover: str) -> None:
    (tmp_path / leftover).mkdir()
    (tmp_path / leftover / "half").touch()
    assert miniature.make_folder(tmp_path / "folder", "a", _fill_with("one"))
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [".made-from", "file"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_somebodys_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(errors.DataError, match="holds files that were not made here"):
        miniature.make_folder(tmp_path, "a", _fill_with("one"))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_fingerprint_sees_names_contents_and_facts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = miniature.fingerprint_folders([tmp_path], "7.1.0")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") == first
    assert miniature.fingerprint_folders([tmp_path], "7.2.0") != first
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert miniature.fingerprint_folders([tmp_path], "7.1.0") != first


def test_a_release_of_other_wheels_is_begun_anew(tmp_path: Path) -> None:
    """An index refuses other bytes under a name that it has published."""
    wheel = tmp_path / "wheels" / "torch-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"one")
    page = demo.start_release(tmp_path) / "index.html"
    page.touch()
    assert demo.start_release(tmp_path) == page.parent and page.exists()
    wheel.write_bytes(b"two")
    assert demo.start_release(tmp_path) == page.parent and not page.exists()
