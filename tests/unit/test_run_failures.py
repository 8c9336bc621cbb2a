"""Whose failure it was, and what a table calls a wheel that was not made."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rocm_wheels.cli import boundary
from rocm_wheels.core import errors
from rocm_wheels.pipeline import local_executor, run, run_step, status, step

STEP = step.Step("build-pytorch-cp312", "build", "pytorch")


@pytest.mark.parametrize(
    ("message", "several", "said"),
    [
        ("ccache answered 0 of 13", False, "build-pytorch-cp312: ccache answered 0 of 13"),
        ("building pytorch failed", False, "building pytorch failed"),
        ("building pytorch failed", True, "build-pytorch-cp312: building pytorch failed"),
        ("build-pytorch-cp312 was killed", True, "build-pytorch-cp312 was killed"),
    ],
)
def test_a_failure_says_of_which_step_it_is(message: str, several: bool, said: str) -> None:
    failed = run._name_step_failure(
        local_executor.StepOutcome(STEP, "failed", failure=errors.BuildError(message, tip="look")), several
    )
    assert (type(failed), failed.message, failed.tip) == (errors.BuildError, said, "look")


def test_a_step_that_was_interrupted_before_it_could_say_so() -> None:
    state, failure = run_step.judge_step_end(STEP, 130, {}, Path("x.log"))
    assert isinstance(failure, errors.InterruptedRunError)
    assert (state, failure.message) == ("interrupted", "build-pytorch-cp312 was interrupted")


def test_rows_without_a_wheel_name_their_python() -> None:
    table = status.format_summary(
        [status.SummaryRow("pytorch", "not built", python=tag) for tag in ("cp310", "cp312")]
    )
    rows = [line.split()[:2] for line in table.splitlines()[1:]]
    assert rows == [["pytorch", "cp310"], ["pytorch", "cp312"]]


def test_a_step_of_a_run_leaves_it_to_the_run_to_say_that_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def waits() -> None:
        raise KeyboardInterrupt

    said = []
    for variable in (run_step.RECORD_VARIABLE, "ANOTHER_VARIABLE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "runs/x")
            assert boundary.run_command(waits, []) == 130
        said.append(capsys.readouterr().err.strip())
    assert said == ["", "error: interrupted\ntip: run the same command again; it continues where it stopped"]


def test_on_a_narrow_terminal_a_wheel_is_a_block_and_its_name_is_whole() -> None:
    name = "torch-2.9.0+rocm7.1.0-cp312-cp312-linux_x86_64.whl"
    built = status.SummaryRow(
        "pytorch", "built", name, "2.9.0", ("gfx942", "gfx1100"), 3 << 20, 72.0, "7" * 64, "verified"
    )
    assert status.format_summary(
        [built, status.SummaryRow("apex", "failed", python="cp312")], width=80
    ).splitlines() == [
        f"wheel  {name}",
        "  version  2.9.0",
        "  targets  gfx942, gfx1100",
        "  size     3.0 MiB",
        "  time     1 min 12 s",
        "  outcome  built, verified",
        "wheel  apex cp312",
        "  outcome  failed",
    ]
