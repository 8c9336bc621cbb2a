"""A plan as a workflow of a real Snakemake: done, done already, failed, killed and carried on.

Where Snakemake is not installed (``uv tool install snakemake``), only what is written is looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from commands import Ended
from projects import World
from runs import AUDIO, SMOKE, TORCH, TRITON, has_wheel, start, write_workflow

pytestmark = pytest.mark.contract


needs_snakemake = pytest.mark.skipif(shutil.which("snakemake") is None, reason="no snakemake")


def run(world: World, snakefile: Path, *words: str) -> Ended:
    process = start(world, snakefile, *words)
    out, _ = process.communicate(timeout=240)
    return Ended(process.returncode, out, "")


def test_a_workflow_has_a_rule_for_each_step(world: World) -> None:
    snakefile = write_workflow(world)
    text = snakefile.read_text()
    assert {f"rule {name.replace('-', '_')}:" for name in (TRITON, TORCH, AUDIO)} <= set(text.splitlines())
    plan = snakefile.with_name("Snakefile.plan.json")
    assert plan.exists() and "mem_mb=" in text and "runtime=" in text
    assert "gpu=" not in text
    rules = write_workflow(world, "--test", "smoke").read_text().split("rule ")
    assert [rule.split(":")[0] for rule in rules if "gpu=1" in rule] == [SMOKE.replace("-", "_")]
    refused = world.run(*world.words("--format", "snakemake", command="plan"))
    assert refused.code == 2 and "-o Snakefile" in refused.err
    braces = str(world.folder / "a {night}")
    refused = world.run(*world.words("--format", "snakemake", "-o", braces, command="plan"))
    assert refused.code == 2 and not Path(braces).exists()


@needs_snakemake
def test_snakemake_does_a_plan_and_then_has_nothing_to_do(world: World) -> None:
    snakefile = write_workflow(world)
    ended = run(world, snakefile)
    assert ended.code == 0, ended.out
    assert all(has_wheel(world, name) for name in ("triton", "torch", "torchaudio"))
    assert world.calls().count("pytorch begun") == 1
    again = run(world, snakefile)
    assert (again.code, world.calls()) == (0, [])
    assert "Nothing to be done" in again.out


@needs_snakemake
def test_a_step_that_fails_stops_what_needs_it(world: World) -> None:
    snakefile = write_workflow(world)
    world.disturb("pytorch", "raise SystemExit('x.cpp:1: error: no such thing')")
    failed = run(world, snakefile, "--keep-going")
    assert failed.code == 1 and "x.cpp:1: no such thing" in failed.out
    assert "triton done" in world.calls() and not list(world.output.glob("torchaudio-*"))
    world.disturb("pytorch")
    assert run(world, snakefile).code == 0
    assert has_wheel(world, "torchaudio") and "triton begun" not in world.calls()


@needs_snakemake
def test_a_workflow_that_was_killed_goes_on_to_its_tests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(world.env, "PYTEST_ADDOPTS", "-k test_torch_starts")
    snakefile = write_workflow(world, "--test", "smoke", "--test-on-cpu")
    world.disturb("pytorch", "note('hangs')\ntime.sleep(600)")
    process = start(world, snakefile)
    world.wait_for("pytorch hangs")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for pid in world.processes():
        os.kill(pid, signal.SIGKILL)
    world.disturb("pytorch")
    world.calls()
    assert run(world, snakefile, "--unlock").code == 0
    ended = run(world, snakefile, "--rerun-incomplete")
    assert ended.code == 0, ended.out
    assert has_wheel(world, "torchaudio") and "triton begun" not in world.calls()
    results = json.loads((world.work / "tests" / SMOKE / "results.json").read_text())
    assert [test["outcome"] for test in results["tests"]] == ["passed"] and len(results["wheels"]) == 3
