"""``rocm-wheels verify`` on real files: what it prints, and with which exit code it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from audit_wheels import Draft, library, torch_draft

from rocm_wheels.audit import CHECKS
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.wheel import verify_command


def verify(*arguments: str | Path) -> int:
    return run_command(verify_command, [str(argument) for argument in arguments])


def test_a_good_wheel_passes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = torch_draft().write(tmp_path)
    assert verify(path, "--gfx", "gfx942;gfx1100", "--rocm", "7.1.0") == 0
    told = capfd.readouterr().out
    assert told.startswith(f"{path.name}: passed (")
    assert "skipped: python: the interpreter it is for was not stated" in told
    assert "skipped: import: not imported: no environment to import it in" in told


def test_a_wheel_with_findings_leaves_with_14(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = torch_draft().write(tmp_path)
    assert verify(path, "--gfx", "gfx942,gfx1100,gfx1201", "--rocm", "7.2") == 14
    told = capfd.readouterr()
    assert "error: device-code: torch/lib/libtorch_hip.so: lacks gfx1201" in told.out
    assert "does not require rocm[libraries]==7.2, but rocm[libraries]==7.1.0" in told.out
    assert "checks for ROCm 7.1.0, but was built with 7.2" in told.out
    assert "error: the wheel failed" in told.err


def test_warnings_do_not_fail_a_wheel(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    draft = torch_draft()
    draft.members["torch/lib/libc10.so"] = library(run_path="/opt/rocm/lib")
    assert verify(draft.write(tmp_path)) == 0
    assert (
        "warning: run-paths: torch/lib/libc10.so: looks for libraries in /opt/rocm/lib"
        in capfd.readouterr().out
    )


def test_json_holds_every_wheel_also_one_that_cannot_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = torch_draft().write(tmp_path)
    triton = Draft("triton", "3.5.0", members={"triton/__init__.py": b""}).write(tmp_path)
    cut = tmp_path / "torch-2.8.0-py3-none-any.whl"
    cut.write_bytes(good.read_bytes()[:-100])
    assert verify("--json", good, cut, triton) == 14
    told = capfd.readouterr()
    reports = json.loads(told.out)
    assert [report["passed"] for report in reports] == [True, False, True]
    assert {report["tool"].split()[-1] for report in reports} == {"verify"}
    assert len({report["when"] for report in reports}) == 1
    assert reports[0]["targets"] == ["gfx1100", "gfx942"]
    assert "not a readable wheel" in reports[1]["unreadable"]
    named = {*reports[2]["ran"], *reports[2]["skipped"]}
    assert named == {check.name for check in CHECKS} - {"exceptions"}
    assert "1 of 3 wheels failed" in told.err


@pytest.mark.skipif(sys.platform != "linux", reason="a recipe's wheel is imported where its platform is")
def test_an_interpreter_imports_the_wheel(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    members = {"triton/__init__.py": b"raise ImportError('no libtriton')"}
    path = Draft("triton", "3.5.0", tag="py3-none-any", members=members).write(tmp_path)
    assert verify(path, "--python", sys.executable) == 14
    told = capfd.readouterr().out
    assert "error: import: `import triton` failed with exit code 1" in told
    assert "| ImportError: no libtriton" in told


def test_the_checks_can_be_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert verify("--list-checks") == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [check.name for check in CHECKS]
