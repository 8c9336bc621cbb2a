"""Pins: one strict parser, and a priority that is said aloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import errors, records
from rocm_wheels.models import project
from rocm_wheels.sources.pins import (
    FolderFiles,
    choose_pin,
    parse_pin_commit,
    parse_pin_version,
    parse_related_commits,
)

A, B = "a" * 40, "b" * 40
AUDIO = f"ubuntu|pytorch|torchaudio|release/2.9|{A}|https://github.com/ROCm/audio"


@pytest.mark.parametrize(
    "text",
    [
        f"\n# pins\n\n{AUDIO}\n",
        f"{AUDIO}\r\n\r\n",
        f"  {AUDIO}   \n\t\n",
        AUDIO.replace("|", " | "),
        AUDIO.replace("ubuntu", "centos"),
        f"{AUDIO}\n{AUDIO.replace('ubuntu', 'centos')}.git\n",
        f"ubuntu|pytorch|ao|main|{B}|https://github.com/pytorch/ao\n{AUDIO}",
        AUDIO.replace(A, A.upper()),
    ],
)
def test_what_people_write_is_read(text: str) -> None:
    row = parse_related_commits(text, name="f")["torchaudio"]
    assert (row.ref, row.origin) == (A, "https://github.com/ROCm/audio")
    assert row.why.startswith("f line ") and row.why.endswith(", branch release/2.9")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        pins = parse_related_commits(text, name="f")
    except errors.DataError as refused:
        assert refused.message.startswith("f:")
    else:
        assert all(len(pin.ref) == 40 for pin in pins.values())


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "related_commits"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.DataError, match="not UTF-8 text"):
        FolderFiles(tmp_path).read_text(path.name)
    path.write_bytes(b"\xef\xbb\xbf" + AUDIO.encode())
    text = FolderFiles(tmp_path).read_text(path.name) or ""
    assert list(parse_related_commits(text, name="f")) == ["torchaudio"]


def test_option_before_pin_before_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audio = project.load_project("pytorch_audio")
    default = choose_pin(audio, torch_dir=tmp_path)
    assert (default.origin, default.ref) == (audio.source.origin, audio.source.ref)
    assert f"there is no {tmp_path / 'related_commits'}" in capsys.readouterr().err
    (tmp_path / "related_commits").write_text(AUDIO)
    pinned = choose_pin(audio, torch_dir=tmp_path)
    assert (pinned.origin, pinned.ref) == ("https://github.com/ROCm/audio", A)
    assert "related_commits line 1, branch release/2.9" in pinned.why
    moved = choose_pin(audio, origin="file:///mirror", torch_dir=tmp_path)
    assert (moved.origin, moved.ref) == ("file:///mirror", A)
    own = choose_pin(audio, ref="mine", torch_dir=tmp_path)
    assert (own.origin, own.ref, own.why.split(";")[0]) == (audio.source.origin, "mine", "--ref")
    assert capsys.readouterr().err == ""


def test_torch_itself_is_pinned_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    torch = project.load_project("pytorch")
    assert choose_pin(torch).ref == torch.source.ref
    assert capsys.readouterr().err == ""


def write(torch: Path, **files: str) -> Path:
    """Write files of a torch tree: triton, windows, version, audio."""
    names = {
        "triton": ".ci/docker/ci_commit_pins/triton.txt",
        "windows": ".ci/docker/ci_commit_pins/triton_windows.txt",
        "version": ".ci/docker/triton_version.txt",
        "audio": ".github/ci_commit_pins/audio.txt",
        "related": "related_commits",
    }
    for name, text in files.items():
        path = torch / names[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return torch


def test_upstreams_pin_file_when_there_is_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audio = project.load_project("pytorch_audio")
    torch = write(tmp_path, audio=f"{A}\n")
    pin = choose_pin(audio, torch_dir=torch, require_related_commit=True)
    assert (pin.origin, pin.ref) == (audio.source.origin, A)
    assert pin.why == str(torch / ".github/ci_commit_pins/audio.txt")
    assert choose_pin(audio, torch_dir=write(torch, related="# none\n")).ref == A
    assert choose_pin(audio, torch_dir=write(torch, related=AUDIO.replace(A, B))).ref == B
    assert capsys.readouterr().err == ""


def test_triton_by_pin_or_release_branch(tmp_path: Path) -> None:
    triton = project.load_project("triton")
    torch = write(tmp_path, triton=f"{A.upper()}\r\n\n", version="3.7.0\n")
    pin = choose_pin(triton, torch_dir=torch)
    assert (pin.origin, pin.ref) == ("https://github.com/ROCm/triton.git", A)
    branch = choose_pin(triton, torch_dir=torch, release=True)
    assert (branch.origin, branch.ref) == (pin.origin, "release/3.7.x")
    assert branch.why == f"--release, {torch / '.ci/docker/triton_version.txt'}"
    moved = choose_pin(triton, torch_dir=torch, release=True, origin="file:///mirror")
    assert (moved.origin, moved.ref) == ("file:///mirror", "release/3.7.x")


def test_triton_of_windows(tmp_path: Path) -> None:
    triton = project.load_project("triton")
    torch = write(tmp_path, triton=A, version="3.7.0")
    recipe = choose_pin(triton, platform="windows", ref="main-windows")
    assert (recipe.origin, recipe.why) == (
        "https://github.com/triton-lang/triton-windows.git",
        "--ref; origin: recipe triton.yaml, windows",
    )
    default = choose_pin(triton, platform="windows", torch_dir=torch)
    assert len(default.ref) == 40 and default.ref != A
    assert choose_pin(triton, platform="windows", torch_dir=write(torch, windows=B)).ref == B
    assert triton.hipify.platforms == ("linux",)


@given(st.text())
def test_any_text_of_a_pin_file_is_read_or_refused(text: str) -> None:
    for read in (parse_pin_commit, parse_pin_version):
        try:
            read(text, name="f")
        except errors.DataError as refused:
            assert refused.message.startswith("f:")


SOURCE = "origin: https://example.invalid/x.git\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE, "f:1:1: .*without `ref` there must be a pin"),
        (f"{SOURCE}pin_files: [{{file: /etc/x}}]", "f:2:.*relative path inside its tree"),
        (f"{SOURCE}pin_files: [{{file: ../x}}]", "relative path inside its tree"),
        (f"{SOURCE}pin_files: [{{path: x}}]", "f:2:.*path: Extra inputs are not permitted"),
        (
            f"{SOURCE}ref: main\nrelease: {{version_file: v, ref: release/x}}",
            r"must name {major} and {minor}",
        ),
        (f"{SOURCE}ref: main\nrelease: {{version_file: v, ref: '{{major}}.{{minor}}{{x}}'}}", "nothing else"),
        (f"{SOURCE}ref: main\nwindows:\n  origin: /x\n", "f:3:.*windows: .*there must be a pin"),
    ],
)
def test_a_source_that_a_recipe_cannot_have(text: str, message: str) -> None:
    with pytest.raises(errors.DataError, match=message):
        records.parse_record(text, project.ProjectSource, name="f")


def test_variables_belong_to_their_kind_of_hipify() -> None:
    triton = project.load_project("triton").model_dump()
    triton["hipify"]["by"] = "none"
    with pytest.raises(ValueError, match="`variables` belong to `by: variables`"):
        project.Project.model_validate(triton)
