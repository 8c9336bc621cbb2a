"""What preflight checks are given, looked up on a real machine: disks, programs, interpreters, folders."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocm_wheels.core import machine
from rocm_wheels.models import project
from rocm_wheels.pipeline import estimates, preflight, preflight_checks

ENV = dict(os.environ)
MIB = 1 << 20


def looked(folder: Path, **changes: Any) -> preflight_checks.PreflightSubject:
    """Look at a run that builds apex in folders below ``folder``."""
    source = folder / "apex"
    source.mkdir(exist_ok=True)
    stated = {name: tuple(changes.pop(name)) for name in ("costs", "pythons") if name in changes}
    given: dict[str, Any] = {
        "env": ENV,
        "work": folder / "work",
        "output": folder / "dist",
        "sources": {"apex": source},
    }
    return preflight.complete_subject(
        preflight_checks.PreflightSubject("linux", machine.measure_machine(ENV), ("apex",), **stated),
        **{**given, **changes},
    )


def said(subject: preflight_checks.PreflightSubject) -> list[tuple[str, str]]:
    return [(finding.check, finding.severity) for finding in preflight_checks.run_preflight_checks(subject)]


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_this_machine(tmp_path: Path) -> None:
    python = preflight.find_headers(Path(sys.executable), ENV)
    (tmp_path / "work").mkdir()
    looked(tmp_path)
    begin = time.process_time()
    subject = looked(tmp_path, pythons=[python])
    assert time.process_time() - begin < 0.5  # 25 ms on two idle cores
    assert [p.name for p in subject.programs if p.fault or p.path is None] == []
    assert {p.name for p in subject.programs} == {"git", "C compiler", "C++ compiler"}
    assert {f.role for f in subject.folders} == {"work", "output", "source", "temporary"}
    assert all(f.free > 0 and f.writable for f in subject.folders)
    assert [c for c, severity in said(subject) if severity == "error" and c != "python-headers"] == []
    assert list((tmp_path / "work").iterdir()) == []  # nothing is left behind


def test_nothing_is_made_for_a_plan(tmp_path: Path) -> None:
    subject = looked(tmp_path)
    assert [f.exists for f in subject.folders] == [False, False, True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apex"]


def let_disk_be(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=free, used=0, free=free))


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = preflight_checks.StepCost(
        "build-apex-cp311", "apex", estimates.Estimate(60, 300 * MIB, 0, "stated", 0, 1)
    )
    let_disk_be(monkeypatch, 200 * MIB)
    subject = looked(tmp_path, costs=[torch])
    [finding] = [one for one in preflight_checks.run_preflight_checks(subject) if one.check == "disk"]
    assert finding.severity == "warning"
    assert "200.0 MiB free, and this run may add 300.0 MiB" in finding.message
    assert len({f.device for f in subject.folders[:3]}) == 1


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_disk_be(monkeypatch, MIB)
    (tmp_path / "work").mkdir()
    assert ("disk", "error") in said(looked(tmp_path))


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    output = Path("/proc/1") if os.geteuid() == 0 else tmp_path / "closed"  # root may write everywhere else
    if os.geteuid():
        output.mkdir(mode=0o500)
    assert ("access", "error") in said(looked(tmp_path, output=output / "dist"))


def test_temporary_files_that_go_nowhere(tmp_path: Path) -> None:
    found = said(looked(tmp_path, env={**ENV, "TMPDIR": str(tmp_path / "gone")}))
    assert found == [("access", "error")]


def test_programs_that_are_missing_or_broken(tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    program(bin, "git", "exit 0")
    program(bin, "cc", "exit 0")
    program(bin, "g++", "echo 'cannot execute cc1plus' >&2; exit 1")
    found = preflight_checks.run_preflight_checks(looked(tmp_path, env={**ENV, "PATH": str(bin)}))
    texts = "\n".join(finding.message for finding in found)
    assert [finding.check for finding in found] == ["programs"]
    assert f"{bin}/g++ does not work: C++ compiler failed" in texts
    assert "cannot execute cc1plus" in texts
    found = preflight_checks.run_preflight_checks(looked(tmp_path, env={**ENV, "PATH": str(tmp_path)}))
    assert [f.message.split(" on ")[0] for f in found] == [
        f"there is no {name}" for name in ("git", "C compiler", "C++ compiler")
    ]


def test_a_compiler_of_several_words(tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    program(bin, "launcher", 'exec "$@"')
    env = {**ENV, "PATH": f"{bin}:{ENV['PATH']}", "CXX": "launcher c++", "CC": f"{bin}/launcher cc"}
    assert said(looked(tmp_path, env=env)) == []


def test_somebody_elses_wheel(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "apex-0.1-cp311-cp311-linux_x86_64.whl").touch()
    (dist / "apex-0.1-cp39-cp39-linux_x86_64.whl").touch()
    wheels = [(project.load_project("apex"), tag, dist, "") for tag in ("cp311", "cp312")]
    subject = looked(tmp_path, wheels=wheels)
    assert len(subject.foreign) == 1
    assert ("foreign-wheels", "error") in said(subject)


def test_a_python_that_is_none(tmp_path: Path) -> None:
    program(tmp_path / "bin", "python3", "exit 3")
    [finding] = preflight_checks.run_preflight_checks(
        looked(tmp_path, pythons=[preflight.find_headers(tmp_path / "bin" / "python3", ENV)])
    )
    assert (finding.check, finding.severity) == ("python-headers", "warning")
    assert "python3" in finding.message
