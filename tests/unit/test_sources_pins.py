"""Pins: one strict parser, and a priority that is said aloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.errors import DataError, RocmWheelsError, SourceError
from rocm_wheels.model.project import load_project
from rocm_wheels.sources.pins import choose_pin
from rocm_wheels.sources.related_commits import parse_related_commits, read_related_commits

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
    assert (row.commit, row.branch, row.origin) == (A, "release/2.9", "https://github.com/ROCm/audio")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "f:1: a row has 6 fields"),
        (f"\n\n{AUDIO}|more", "f:3: .* this one has 7"),
        (AUDIO.replace(A, "main"), "f:1: the commit of torchaudio must be 40 hex digits, not 'main'"),
        (AUDIO.replace(A, A[:39]), "f:1: .*40 hex digits"),
        (AUDIO.replace(A, ""), "f:1: .*40 hex digits, not ''"),
        (AUDIO.replace("torchaudio", " "), "f:1: no project is named"),
        (AUDIO.rsplit("|", 1)[0] + "|", "f:1: the origin of torchaudio is not a repository: ''"),
        (AUDIO.rsplit("|", 1)[0] + "|--upload-pack=x", "f:1: the origin .* is not a repository"),
        (AUDIO.rsplit("|", 1)[0] + "|two words", "f:1: the origin .* is not a repository"),
        (f"{AUDIO}\n# c\n{AUDIO.replace(A, B)}", f"f:3: torchaudio is {B} of .* but {A} of .* in line 1"),
        (f"{AUDIO}\n{AUDIO.replace('ROCm', 'pytorch')}", "f:2: torchaudio is .*pytorch/audio here"),
    ],
)
def test_what_cannot_be_understood_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_related_commits(text, name="f")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        pins = parse_related_commits(text, name="f")
    except DataError as refused:
        assert refused.message.startswith("f:")
    else:
        assert all(len(pin.commit) == 40 for pin in pins.values())


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "related_commits"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_related_commits(path)
    path.write_bytes(b"\xef\xbb\xbf" + AUDIO.encode())
    assert list(read_related_commits(path)) == ["torchaudio"]


def test_option_before_pin_before_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audio = load_project("pytorch_audio")
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
    assert (own.origin, own.ref, own.why[:14]) == (audio.source.origin, "mine", "--repo-hashtag")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, SourceError, "pytorch_audio must be pinned, and there is no "),
        ("", SourceError, r"no row for torchaudio \(it has none at all\)"),
        (AUDIO.replace("torchaudio", "apex"), SourceError, r"no row for torchaudio \(it has apex\)"),
        ("broken", DataError, "related_commits:1: "),
    ],
)
def test_a_pin_that_is_required(
    content: str | None, error: type[RocmWheelsError], message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "related_commits").write_text(content)
    with pytest.raises(error, match=message):
        choose_pin(load_project("pytorch_audio"), torch_dir=tmp_path, require_related_commit=True)


def test_torch_itself_is_pinned_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    torch = load_project("pytorch")
    assert choose_pin(torch).ref == torch.source.ref
    assert capsys.readouterr().err == ""
