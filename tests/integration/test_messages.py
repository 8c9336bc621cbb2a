"""What commands say, word for word: as the files below ``tests/data/messages`` show it.

Commands run in a folder that a function here lays out, ours in this process, others in a shell. Other tests
assert exit codes and facts, so that another wording changes one file. Each command that fails leaves the
disk as it was.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

import pytest
from commands import FOLDER, generalize, load_program, read_entries, require_entries, require_good_failure
from sources import CLONE, TRITON_PIN, Upstream, enter, write_files, write_lock
from wheels import NOW, torch_draft, wheel

from rocm_wheels.cli import boundary
from rocm_wheels.index import update

OURS = {".lock", ".owner", "rocm-wheels", ".rocm-wheels"}  # left by locking: no files of somebody's
OF_THIS_MACHINE = ("CONDA", "GITHUB_", "HIP", "MAX_JOBS", "PYTHON", "PYTORCH", "ROCM", "UV_", "VIRTUAL_ENV")

TORCHES = {  # trees with files that say which commits of others belong to them
    "torch-of-main": {TRITON_PIN: "main\n"},
    "torch-of-none": {TRITON_PIN: "\n# later\n"},
    "torch-of-two": {
        TRITON_PIN: "1111111111111111111111111111111111111111\n2222222222222222222222222222222222222222"
    },
    "torch-of-one": {TRITON_PIN: "1111111111111111111111111111111111111111"},
    "torch-of-three": {".ci/docker/triton_version.txt": "three\n"},
    "torch-of-9.9": {".ci/docker/triton_version.txt": "9.9.0\n"},
    "torch-of-3.7": {".ci/docker/triton_version.txt": "3.7.0"},
    "vision-of-branch": {".github/ci_commit_pins/vision.txt": "r2.9"},
    "rows-in-a-folder": {"related_commits/x": ""},
    "row-of-one-field": {"related_commits": "apex"},
}


def lay_out_builds(box: Path, github: Upstream) -> None:
    write_files(box, {"note.txt": "a note\n", "repos/pytorch/version.txt": "2.9.0\n"})
    (box / "empty").mkdir()


def lay_out_checkouts(box: Path, github: Upstream) -> None:
    pins = "# pins\nhello\n"
    write_files(box, {"a-file": "a file", "full/x": "x", "bad-pins/related_commits": pins, "empty.json": ""})
    (box / "dangling").symlink_to("nowhere")
    (box / "empty").mkdir()
    for name, files in TORCHES.items():
        write_files(box / name, files)
    lock = github.first_commits()
    lock["projects"] = {name: lock["projects"][name] for name in ("pytorch", "pytorch_audio")}
    write_lock(box / "l.json", lock)
    write_lock(box / "windows.json", {**lock, "platform": "windows"})
    github.git("root", "branch", "-f", "same", "feature")
    github.git("root", "tag", "-f", "same", "main")
    github.git(box, "init", "-q", "other")
    github.git(box / "other", "remote", "add", "origin", "file:///elsewhere")


def lay_out_index(box: Path, github: Upstream) -> None:
    path = wheel(box / "fresh")
    write_files(box, {"note": "a note\n", "site/index.html": "<h1>My page</h1>\n"})
    update.add_wheels(box / "index", [path], now=NOW)
    (box / "empty").mkdir()


def lay_out_locks(box: Path, github: Upstream) -> None:
    write_files(box, {"old": "somebody's own\n"})


def lay_out_wheels(box: Path, github: Upstream) -> None:
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + (9).to_bytes(8, "little") + b"\0" * 20
    write_files(box, {"note.txt": "a note\n", "folder/x": "", "cut.bundle": bundle})
    write_files(box, {"torch-1.0-py3-none-any.whl": b"PK\x03\x04 and then nothing"})
    write_files(box, {"numpy-1.0-py3-none-any.whl": b""})
    torch_draft().write(box)
    with zipfile.ZipFile(box / "six-1.0-py3-none-any.whl", "w") as six:
        six.writestr("six.py", "")


GROUPS: dict[str, Callable[[Path, Upstream], None]] = {
    "build": lay_out_builds,
    "checkout": lay_out_checkouts,
    "index": lay_out_index,
    "lock": lay_out_locks,
    "wheels": lay_out_wheels,
}


ELSEWHERE = {  # what is taken down in other tests: each entry is of a test there, or of a row
    "containers": "unit/test_container_command.py",
    "doctor": "unit/test_doctor.py",
    "evidence": "unit/test_release_evidence_command.py",
    "gate": "unit/test_release_verdict_text.py",
    "lock-files": "unit/test_lock_file.py",
    "policy": "unit/test_release_gate_policy.py",
    "releases": "integration/test_release_queries.py",
    "runs": "unit/test_runs_command.py",
    "sdk": "unit/test_sdk_packages.py",
    "sources": "integration/test_sources_wrong_inputs.py",
    "variants": "unit/test_variants_metadata.py",
    "wheel": "unit/test_wheel_command.py",
}


def test_each_file_is_of_a_group() -> None:
    assert GROUPS.keys() | ELSEWHERE.keys() == {path.stem for path in FOLDER.iterdir()}


@pytest.mark.parametrize("group", ELSEWHERE)
def test_each_entry_is_of_a_test(group: str) -> None:
    text = (CLONE / "tests" / ELSEWHERE[group]).read_text(encoding="utf-8")
    titles = [title[2:].partition("[")[0] for title in read_entries(group)]
    assert [title for title in titles if f"def {title}(" not in text and f'"{title}"' not in text] == []


@pytest.mark.contract
@pytest.mark.parametrize("group", GROUPS)
def test_commands_say_what_is_shown(
    group: str,
    github: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    GROUPS[group](box, github)
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    places = {"UPSTREAM": str(github.folder), "BOX": str(box), "CP": python}
    places |= {"CLONE": str(CLONE), "PYTHON": str(Path(sys.executable).resolve())}
    env = {name: value for name, value in github.env.items() if not name.startswith(OF_THIS_MACHINE)}
    enter(monkeypatch, box, {**env, "NO_COLOR": "1", "COLUMNS": "400", **places})
    printed: dict[str, str] = {}
    for title in read_entries(group):
        printed[title] = ""
        if title.startswith("$ "):
            before = list_contents(box)
            code, text = run_line(Template(title[2:]).safe_substitute(places), monkeypatch, capfd)
            if code:
                require_good_failure(title, text)
                assert list_contents(box) == before, title
            printed[title] = generalize(text, code, places)
    require_entries(group, printed)


def run_line(
    line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    words = shlex.split(line)
    capfd.readouterr()
    program = load_program(words[0])
    if program is None:
        code = subprocess.run(["sh", "-c", line], check=False).returncode
    else:
        with monkeypatch.context() as patch:  # click is to take its own name from the words
            patch.setattr(sys, "argv", [Path(words[0]).name])
            patch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
            code = boundary.run_command(program, words[1:])
    return code, "".join(capfd.readouterr())


def list_contents(folder: Path) -> Mapping[str, object]:
    """Return all that is in a folder: files, links, and folders."""
    contents: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = path.readlink()
        elif path.name not in OURS:
            contents[name] = path.read_bytes() if path.is_file() else None
    return contents
