"""The demo's script: it must be blocked by the gate, carries on after a kill, prints what can be pasted."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import find_faults

import _script
import demo as script
from rocm_wheels.cli import boundary
from rocm_wheels.core import errors
from rocm_wheels.release.policy import load_policy


@pytest.fixture
def started(tmp_path: Path) -> script.Demo:
    (tmp_path / "releases" / "results").mkdir(parents=True)
    return script.Demo(tmp_path, {})


def test_a_gate_that_lets_it_pass_ends_the_demo(
    started: script.Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started, "run", lambda line: None)
    with pytest.raises(errors.DataError, match=r"the gate passed a set that no GPU tested"):
        started.meet_gate("rocm-wheels set gate")
    assert not (started.folder / "releases/policy.yaml").exists()


def test_only_a_gate_that_blocks_is_met(started: script.Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exception is one of the rules of everybody: they stand above it, word for word."""

    def block(line: str) -> None:
        raise errors.ReleaseError("2.13.0-abc cannot go to nightly", tip="test it")

    monkeypatch.setattr(started, "run", block)
    started.meet_gate("rocm-wheels set gate")
    policy, everybodys = load_policy(started.folder / "releases/policy.yaml"), load_policy(None)
    nightly = everybodys.channels["nightly"].model_copy(update={"signed": False})  # here nobody has a key
    assert policy.channels == {**everybodys.channels, "nightly": nightly}
    assert policy.waivers == everybodys.waivers
    excepted = [name for name, family in policy.families.items() if family.bypass_tests_for_releases]
    assert excepted == ["gfx94X-dcgpu"]


def test_what_a_kill_cut_is_run_again_and_what_is_whole_only_for_another_source(
    started: script.Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[str]()

    def kill(line: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(started, "run", kill)
    with pytest.raises(KeyboardInterrupt):
        started.run_once("releases/results", "a set", "rocm-wheels test")
    monkeypatch.setattr(started, "run", ran.append)
    for source, count in (("a set", 1), ("a set", 1), ("another", 2)):
        started.run_once("releases/results", source, "rocm-wheels test")
        assert len(ran) == count


def test_a_step_that_fails_shows_the_end_of_the_log(
    started: script.Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.SdkError), started.step("run a program"):
        started.run("sh -c 'echo {rocm}; exit 3'")
    shown = capsys.readouterr().err
    assert f"[ 1/15] run a program failed; the end of {started.folder}/demo.log:" in shown
    assert "\n  $ sh -c 'echo 7.1.0+miniature; exit 3'\n  7.1.0+miniature\n" in shown


def test_every_line_that_it_runs_or_shows_is_one_that_commands_take(
    started: script.Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is run; wheels are one for each pattern that looks for them."""
    lines = list[str]()

    def note(words: list[str], **_: object) -> None:
        lines.append(shlex.join(words))
        if "--explain" in words:
            raise errors.ReleaseError("2.13.0-abc cannot go to nightly", tip="test it")

    def name_wheels(_: script.Demo, *patterns: str) -> list[Path]:
        return [started.folder / f"{pattern.replace('*', '2.13')}.whl" for pattern in patterns]

    monkeypatch.setattr(script, "COMMANDS", {})
    monkeypatch.setattr(script.process, "run_command", note)
    monkeypatch.setattr(script.Demo, "find_wheels", name_wheels)
    monkeypatch.setattr(script, "fingerprint_wheels", lambda wheels: "of none")
    for name in ("make_folder", "mark_folder"):
        monkeypatch.setattr(script.miniature, name, lambda *_: None)
    monkeypatch.setattr(script.Demo, "make_inputs", lambda _: None)
    started.names |= {"pytorch": "file:///pytorch", "triton": "file:///triton"}
    (started.folder / "releases/store/multi-arch/sets/2.13.0-abc").mkdir(parents=True)
    started.build()
    started.index()
    started.release()
    ours = [line for line in lines if re.match("rocm-wheels|build_tools/", line)]
    assert len(ours) > 25 and started.number == script.STEPS
    # where the Python that runs this has no script of ours beside it, it is shown with -m
    summary = started.format_summary("2 min").replace("python -m rocm_wheels", "rocm-wheels")
    shown = summary.splitlines()[8:10]
    assert all("rocm-wheels " in line for line in shown)
    assert [fault for line in [*ours, *shown] for fault in find_faults(line)] == []


@pytest.mark.skipif(sys.platform == "win32", reason="the script has another name there")
def test_the_demo_prints_how_its_clone_starts_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my clone/.venv/bin/rocm-wheels"
    monkeypatch.setattr(_script, "CLONE", tmp_path / "my clone")
    monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
    words = ("rocm-wheels", ["lock", "-o", "a lock.json"])
    assert script.format_line(*words) == ".venv/bin/python -m rocm_wheels lock -o 'a lock.json'"
    program.parent.mkdir(parents=True)
    program.touch()
    assert script.format_line(*words) == ".venv/bin/rocm-wheels lock -o 'a lock.json'"
    monkeypatch.setattr(_script, "CLONE", tmp_path / "elsewhere")
    assert script.format_line(*words) == f"'{program}' lock -o 'a lock.json'"


def test_it_builds_for_the_python_that_runs_it_whoever_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script of the clone notes the Python that it was started by, for builds; environments are of ours."""
    monkeypatch.setenv("ROCM_WHEELS_STARTED_BY", "/opt/older/python3")
    seen = list[bool]()
    monkeypatch.setattr(script.Demo, "build", lambda _: seen.append("ROCM_WHEELS_STARTED_BY" in os.environ))
    for name in ("index", "release"):
        monkeypatch.setattr(script.Demo, name, lambda _: None)
    monkeypatch.setattr(script.Demo, "format_summary", lambda *_: "done")
    assert boundary.run_command(script.demo, ["--output-dir", str(tmp_path)]) == 0
    assert seen == [False]


def test_without_the_extras_it_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "auditwheel", None)
    assert boundary.run_command(script.demo, ["--output-dir", str(tmp_path / "out")]) == 2
    assert "[build]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
