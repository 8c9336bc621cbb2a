"""The release part of the demonstration: it must be blocked, and carries on after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.cli import demo
from rocm_wheels.core import errors
from rocm_wheels.demo import commands
from rocm_wheels.release.policy import load_policy


def releasing(folder: Path) -> commands.DemoRelease:
    asked = commands.DemoRelease(folder, Path("/bin/uv"))
    (asked.store / "multi-arch" / "sets" / "2.13.0-abc").mkdir(parents=True)
    return asked


def test_a_gate_that_lets_it_pass_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = releasing(tmp_path)
    monkeypatch.setattr(demo, "run_calls", lambda calls: None)
    with pytest.raises(errors.DataError, match=r"the gate passed a set that no GPU tested: .*gate"):
        demo.demonstrate_gate(asked)
    assert not asked.policy.exists()


def test_only_a_gate_that_blocks_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exception is one of the rules of everybody: they stand above it, word for word."""
    asked = releasing(tmp_path)

    def block(calls: list[commands.DemoCommand]) -> None:
        raise errors.ReleaseError("2.13.0-abc cannot go to nightly", tip="test it")

    monkeypatch.setattr(demo, "run_calls", block)
    demo.demonstrate_gate(asked)
    policy, everybodys = load_policy(asked.policy), load_policy(None)
    nightly = everybodys.channels["nightly"].model_copy(update={"signed": False})  # here nobody has a key
    assert policy.channels == {**everybodys.channels, "nightly": nightly}
    assert policy.waivers == everybodys.waivers
    assert [name for name, one in policy.families.items() if one.bypass_tests_for_releases] == [
        "gfx94X-dcgpu"
    ]


def test_results_are_found_again_when_a_kill_cut_them_or_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ran = releasing(tmp_path), list[str]()

    def run(calls: list[commands.DemoCommand]) -> None:
        ran.extend(call.arguments[0] for call in calls)

    def killed(calls: list[commands.DemoCommand]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_calls", killed)
    with pytest.raises(KeyboardInterrupt):
        demo.run_staged_tests(asked)
    monkeypatch.setattr(demo, "run_calls", run)
    for age, found in ((0.0, True), (0.0, False), (8 * 24 * 3600.0, True)):
        ran.clear()
        monkeypatch.setattr(demo, "_seconds_since_made", lambda folder, age=age: age)
        demo.run_staged_tests(asked)
        assert bool(ran) == found
