"""What ``--line`` chooses: an option goes first, then torch's own pin, then the line, and never a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.core import errors
from rocm_wheels.models import release_lines
from rocm_wheels.models.project import load_project
from rocm_wheels.sources.pins import Pin, choose_pin

A = "a" * 40
ROW = f"ubuntu|pytorch|torchaudio|release/2.9|{A}|https://github.com/ROCm/audio\n"


def torch_tree(folder: Path, version: str = "2.9.1\n", pins: str | None = ROW) -> Path:
    (folder / "version.txt").write_text(version)
    if pins is not None:
        (folder / "related_commits").write_text(pins)
    return folder


def of_line(project: str, line: str, **options: object) -> Pin:
    return choose_pin(load_project(project), line=release_lines.get_release_line(line), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("project", "line", "origin", "ref", "why"),
    [
        ("pytorch", "2.9", "ROCm/pytorch", "release/2.9", "release line 2.9"),
        ("pytorch", "nightly", "pytorch/pytorch", "nightly", "release line nightly"),
        ("pytorch", "2.15", "pytorch/pytorch", "release/2.15", "release line 2.15, believed"),
        ("pytorch_vision", "2.14", "ROCm/vision", "release/0.29", "release line 2.14"),
        ("pytorch_vision", "2.13", "pytorch/vision", "release/0.28", "release line 2.13"),
        ("pytorch_audio", "2.13", "ROCm/audio", "release/2.11.0.2", "release line 2.13"),
        ("pytorch_audio", "main", "pytorch/audio", "main", "release line main"),
        ("triton", "2.12", "ROCm/triton", "release/internal/3.8.x", "release line 2.12"),
        ("apex", "2.10", "ROCm/apex", "release/1.10.0", "release line 2.10"),
    ],
)
def test_a_line_gives_repository_and_branch(
    project: str, line: str, origin: str, ref: str, why: str, *, capsys: pytest.CaptureFixture[str]
) -> None:
    pin = of_line(project, line, torch_dir=Path("no-torch-here"))
    assert pin == Pin(f"https://github.com/{origin}.git", ref, why)
    said = capsys.readouterr().err
    assert (f"{project} is not pinned: there is no no-torch-here" in said) is (project != "pytorch")
    assert (f"release line {line}'s {ref} is used" in said) is (project != "pytorch")


def test_option_before_pin_before_line(tmp_path: Path) -> None:
    torch = torch_tree(tmp_path)
    pinned = of_line("pytorch_audio", "2.9", torch_dir=torch)
    assert (pinned.origin, pinned.ref) == ("https://github.com/ROCm/audio", A)
    assert "related_commits line 1" in pinned.why
    moved = of_line("pytorch_audio", "2.9", torch_dir=torch, origin="file:///mirror")
    assert (moved.origin, moved.ref) == ("file:///mirror", A)
    own = of_line("pytorch_vision", "2.14", torch_dir=torch, ref="mine")
    assert own == Pin("https://github.com/ROCm/vision.git", "mine", "--ref; origin: release line 2.14")
    there = of_line("pytorch", "2.9", origin="file:///mirror")
    assert there == Pin("file:///mirror", "release/2.9", "release line 2.9; origin: --origin")


@pytest.mark.parametrize(
    ("version", "line", "fits"),
    [
        ("2.9.1", "2.9", True),
        ("2.9.0a0", "2.9", True),
        ("2.10.0", "2.1", None),
        ("2.10.0", "2.10", True),
        ("2.13.0", "2.9", False),
        ("2.9.1", "2.10", False),
        ("2.16.0a0", "nightly", True),
        ("2.16.0a0", "main", True),
        ("2.9.1", "nightly", False),
    ],
)
def test_pins_of_another_line_are_refused(version: str, line: str, fits: bool | None, tmp_path: Path) -> None:
    torch = torch_tree(tmp_path, f"{version}\n")
    if fits:
        assert of_line("pytorch_audio", line, torch_dir=torch).ref == A
        return
    with pytest.raises(errors.DataError if fits is None else errors.SourceError) as fault:
        of_line("pytorch_audio", line, torch_dir=torch)
    if fits is False:
        assert f"{torch} is torch {version}: its pins are not those of release line {line}" in str(
            fault.value
        )
        assert f"--line {line}" in (fault.value.tip or "")
        assert of_line("pytorch_audio", line, torch_dir=torch, ref="mine").ref == "mine"


@pytest.mark.parametrize(
    ("project", "line", "options", "error", "message"),
    [
        ("apex", "2.15", {}, errors.SourceError, "release line 2.15 names no ref of apex for linux, and "),
        ("triton", "2.15", {}, errors.SourceError,
         "release line 2.15 names no ref of triton for linux, and "),
        ("triton", "nightly", {}, errors.SourceError,
         "release line nightly names no ref of triton for linux"),
        ("triton", "2.13", {"platform": "windows"}, errors.SourceError,
         "2.13 names no ref of triton for windows"),
        ("pytorch_audio", "2.9", {"require_related_commit": True}, errors.SourceError,
         "must be pinned, and there is"),
        ("triton", "2.9", {"release": True}, errors.UsageError, "--release and --line exclude each other"),
        ("pytorch", "2.9", {"ref": "x", "origin": "file:///x"}, errors.UsageError,
         "--line 2.9 would have no effect: --ref and --origin say everything"),
    ],
)  # fmt: skip
def test_nothing_is_guessed(
    project: str,
    line: str,
    options: dict[str, object],
    error: type[errors.RocmWheelsError],
    message: str,
    *,
    tmp_path: Path,
) -> None:
    with pytest.raises(error) as fault:
        of_line(project, line, torch_dir=tmp_path, **options)
    assert message in str(fault.value)


def test_what_a_line_does_not_know_torch_may_pin_or_an_option_may_say(tmp_path: Path) -> None:
    torch = torch_tree(tmp_path, "2.15.0", ROW.replace("torchaudio", "apex").replace("audio", "apex"))
    assert of_line("apex", "2.15", torch_dir=torch).ref == A
    own = of_line("apex", "2.15", torch_dir=tmp_path / "none", ref="mine")
    assert own == Pin("https://github.com/ROCm/apex.git", "mine", "--ref; origin: recipe apex.yaml")


def test_a_torch_tree_that_does_not_say_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "related_commits").write_text(ROW)
    with pytest.raises(errors.DataError, match=r"version\.txt"):
        of_line("pytorch_audio", "2.9", torch_dir=tmp_path)
