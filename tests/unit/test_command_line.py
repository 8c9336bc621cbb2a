"""What the boundary makes of a full disk, a wrong path and a lost terminal; a start by an old Python."""

from __future__ import annotations

import ast
import errno
import io
import os
import signal
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import pytest

from rocm_wheels.cli import boundary, build
from rocm_wheels.core import errors
from rocm_wheels.pipeline import run, status

pytestmark = pytest.mark.contract

CLONE = Path(__file__).resolve().parents[2]


def quickstart() -> ModuleType:
    spec = spec_from_file_location("quickstart", CLONE / "build_tools" / "quickstart.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raising(failure: BaseException) -> click.Command:
    def callback() -> None:
        raise failure

    return click.Command("fails", callback=callback)


DISK = [
    (OSError(errno.ENOSPC, "No space left", "from.whl", None, "to.whl"), "No space left (to.whl)"),
    (OSError(errno.EFBIG, "File too large", "big.whl"), "File too large (big.whl)"),
    (OSError(errno.EROFS, "Read-only file system", "dist"), "Read-only file system (dist)"),
    (OSError(errno.ENOTDIR, "Not a directory", "note.txt/dist"), "Not a directory (note.txt/dist)"),
]


@pytest.mark.parametrize(("failure", "said"), DISK)
def test_the_disk_is_named_where_it_was_to_be_written(
    failure: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.run_command(raising(failure), []) == 2
    told = capsys.readouterr().err
    assert f"error: {said}\ntip: " in told
    assert "Traceback" not in told


def test_what_the_screen_cannot_show_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp437")  # of a program that reads us, on Windows
    monkeypatch.setattr(sys, "stdout", pipe)
    assert boundary.run_command(click.Command("says", callback=lambda: click.echo("a … → b")), []) == 0
    pipe.flush()
    assert pipe.buffer.getvalue().split() == [b"a", b"?", b"?", b"b"]  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_a_lost_terminal_interrupts_unless_it_is_ignored() -> None:
    hang_up = click.Command("hang-up", callback=lambda: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
    try:
        assert boundary.run_command(hang_up, []) == boundary.INTERRUPTED
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert boundary.run_command(hang_up, []) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_step_summary_that_cannot_be_written_takes_nothing_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run.RunSummary((status.SummaryRow("pytorch", "built", wheel="torch-2.whl"),), None, 1.0)
    build._print_summary(summary, {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "page")}, as_json=False)
    told = capsys.readouterr()
    assert "torch-2.whl" in told.out
    assert "the step summary cannot be written: No such file or directory" in told.err


def test_a_step_summary_is_cut_where_github_would_show_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"GITHUB_STEP_SUMMARY": str(tmp_path / "page")}
    boundary.append_step_summary(env, "é of \udcff\n")
    assert (tmp_path / "page").read_text(encoding="utf-8") == "é of \\udcff\n" and not capsys.readouterr().err
    boundary.append_step_summary(env, "é" * (1 << 20))
    page = (tmp_path / "page").read_bytes()
    assert (1 << 20) - 2 <= len(page) <= 1 << 20 and page.startswith("é of ".encode())
    assert page.decode("utf-8").endswith("é\n\n**cut here: GitHub takes 1 MiB of a summary**\n")
    assert "the step summary is cut" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "tip"),
    [
        (".cache/rocm-wheels/pages", "XDG_CACHE_HOME names another folder"),
        (".cache", "XDG_CACHE_HOME names another folder"),
        (".local/state/rocm-wheels", "XDG_STATE_HOME names another folder"),
        ("work", errors.DISK_TIPS[errno.EACCES]),
    ],
)
def test_a_home_that_is_closed_names_the_variable_of_another_folder(
    monkeypatch: pytest.MonkeyPatch, place: str, tip: str
) -> None:
    monkeypatch.setenv("HOME", "/closed")
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    failure = OSError(errno.EACCES, "Permission denied", f"/closed/{place}")
    shown = boundary.convert_disk_error(failure)
    assert shown is not None and shown.tip == tip and f"/closed/{place}" in shown.message


def test_a_closed_folder_is_told_of_where_nobody_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", refuse)
    shown = boundary.convert_disk_error(OSError(errno.EACCES, "Permission denied", "/srv/out/x"))
    assert shown is not None and shown.tip == errors.DISK_TIPS[errno.EACCES]


def test_an_output_folder_that_is_not_writable_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and allowed(path, mode))
    words = ["build", "--source-dir", str(tmp_path), "--output-dir", str(closed / "dist")]
    assert boundary.run_command(build.production, words) == 2
    assert f"{closed} is not writable" in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == [closed]


ENDINGS = [
    (KeyboardInterrupt(), 130, "error: interrupted; run the same command again\n"),
    (
        OSError(errno.EROFS, "Read-only file system", ".venv.lock"),
        2,
        "error: Read-only file system (.venv.lock); ",
    ),
]


@pytest.mark.parametrize(("failure", "code", "said"), ENDINGS)
def test_quickstart_ends_in_one_line(
    failure: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> int:
        raise failure

    script = quickstart()
    monkeypatch.setattr(script, "main", failing)
    assert script.run() == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows starts a process, which a unit test does not")
def test_quickstart_runs_the_copy_that_it_lies_in(monkeypatch: pytest.MonkeyPatch) -> None:
    script, started = quickstart(), []
    monkeypatch.setenv("PYTHONPATH", "/of/another/clone")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        script.hand_over("demo", None, [])
    (program, words, env) = started[0]
    assert program == str(CLONE / ".venv" / "bin" / "python")
    assert words[1:] == [str(CLONE / "build_tools" / "demo.py")]
    assert "PYTHONPATH" not in env
    assert env["KEPT"] == "1"


def test_quickstart_can_be_read_by_a_python_that_it_refuses() -> None:
    """Nothing that Python 3.6 stumbles over may come before the check of the version."""
    tree = ast.parse((CLONE / "build_tools" / "quickstart.py").read_text("utf-8"), feature_version=(3, 6))
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not imported & {"__future__", "collections.abc"}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        arguments = [*function.args.args, *function.args.kwonlyargs]
        for note in (function.returns, *(argument.annotation for argument in arguments)):
            base = note.value if isinstance(note, ast.Subscript) else note
            assert isinstance(base, (ast.Name, ast.Constant, type(None))), ast.dump(function)
            assert base is note or (isinstance(base, ast.Name) and base.id == "Iterator")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGPIPE")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "words",
    [["audit", "--explain"], ["compat", "show", "lines"], ["--help"], ["audit", "none.whl"]],
)
def test_nobody_reads_on(words: list[str], number: int, tmp_path: Path) -> None:
    """As `| head -1` is when it has its line: the pipe is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    other = tmp_path / "other"
    with other.open("wb") as file:
        streams = (writer, file) if number == 1 else (file, writer)
        command = [sys.executable, "-m", "rocm_wheels", *words]
        code = subprocess.run(command, stdout=streams[0], stderr=streams[1], check=False).returncode
    os.close(writer)
    printed = {1: words != ["audit", "none.whl"], 2: words == ["audit", "none.whl"]}[number]
    assert code == (141 if printed else 2 if number == 1 else 0)
    assert "Traceback" not in other.read_text()
    assert printed != bool(other.read_text())
