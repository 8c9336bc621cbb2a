"""`build` for several Pythons and target sets: a run each, in one command, on tiny projects."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from projects import TAG, TARGET, World, finish
from pythons import find_other_pythons
from runs import has_wheel, start, write_workflow

from rocm_wheels.pipeline import plan

pytestmark = pytest.mark.contract

OTHER = "gfx1100"
SETS = ("--per-target", "--gfx", f"{TARGET},{OTHER}", "--allow-unlisted-targets")
FAIL_FOR_FIRST = f"""
if os.environ.get("PYTORCH_ROCM_ARCH") == {TARGET!r}:
    raise SystemExit("x.cpp:1: error: no such thing")
"""

HANG_FOR_SECOND = f"""
if os.environ.get("PYTORCH_ROCM_ARCH") == {OTHER!r}:
    note("hangs")
    time.sleep(600)
"""


def rows(out: str) -> list[tuple[str, str, str]]:
    return [(row["target_set"], row["project"], row["outcome"]) for row in json.loads(out)]


def delivered(world: World, name: str) -> set[str]:
    return {wheel.name.partition("-")[0] for wheel in (world.output / name).glob("*.whl")}


def test_a_set_of_wheels_for_each_target_is_a_run_each(world: World) -> None:
    planned = world.run(*world.words(*SETS, "--dry-run", "--json"))
    assert planned.code == 0, planned.err
    assert [(one["request"]["target_set"], one["targets"]) for one in json.loads(planned.out)] == [
        (TARGET, [TARGET]),
        (OTHER, [OTHER]),
    ]
    ended = world.build(*SETS, "--json")
    assert ended.code == 0, ended.err
    assert rows(ended.out) == [
        *((TARGET, name, "built") for name in ("triton", "pytorch", "pytorch_audio")),
        (OTHER, "triton", "packaged"),
        *((OTHER, name, "built") for name in ("pytorch", "pytorch_audio")),
    ]
    assert [call for call in world.calls() if call.endswith("begun")] == [
        "triton begun",  # the same for both
        *(["pytorch begun", "pytorch_audio begun"] * 2),
    ]
    for name in (TARGET, OTHER):
        assert delivered(world, name) == {"triton", "torch", "torchaudio"}
    assert [run.state for run in world.runs()] == ["done", "done"]
    again = world.build(*SETS, "--json")
    assert (again.code, world.calls(), len(world.runs())) == (0, [], 2)
    assert {outcome for *_, outcome in rows(again.out)} == {"up to date"}
    assert "nothing to do" in again.err
    why = world.run("runs", "why", f"build-pytorch-{TAG}-{TARGET}", "--work-dir", str(world.work))
    assert (why.code, why.out.splitlines()[0]) == (0, f"build-pytorch-{TAG}-{TARGET}: up to date"), why.err


def test_after_a_failure_the_next_set_begins_where_that_is_asked_for(world: World) -> None:
    world.disturb("pytorch", FAIL_FOR_FIRST)
    ended = world.build(*SETS, "--json")
    assert ended.code == 12 and "x.cpp:1: no such thing" in ended.err
    assert rows(ended.out)[1] == (TARGET, "pytorch", "failed")
    assert {outcome for name, _, outcome in rows(ended.out) if name == OTHER} == {"not built"}
    assert len(world.runs()) == 1 and not delivered(world, OTHER)
    ended = world.build(*SETS, "--json", "--keep-going")
    assert ended.code == 12
    assert (OTHER, "pytorch", "built") in rows(ended.out)
    assert delivered(world, OTHER) == {"triton", "torch", "torchaudio"}
    world.disturb("pytorch")
    world.calls()
    ended = world.build(*SETS)
    assert ended.code == 0, ended.err
    assert {call for call in world.calls() if call.endswith("begun")} == {
        "pytorch begun",
        "pytorch_audio begun",
    }
    assert delivered(world, TARGET) == {"triton", "torch", "torchaudio"}


def test_a_command_that_is_killed_or_interrupted_between_two_sets_goes_on(world: World) -> None:
    world.disturb("pytorch", HANG_FOR_SECOND)
    for number in (signal.SIGKILL, signal.SIGINT):
        process = world.start(*world.words(*SETS))
        world.wait_for("pytorch hangs")
        os.kill(process.pid, number)
        ended = finish(process)
        assert ended.code == (-9 if number == signal.SIGKILL else 130)
        world.calls()
    world.disturb("pytorch")
    ended = world.build(*SETS, "--json")
    assert ended.code == 0, ended.err
    begun = [call for call in world.calls() if call.endswith("begun")]
    assert begun == ["pytorch begun", "pytorch_audio begun"]
    assert {outcome for name, _, outcome in rows(ended.out) if name == TARGET} == {"up to date"}


def test_what_is_wrong_with_one_set_is_said_before_another_begins(world: World) -> None:
    words = ("--per-target", "--gfx", f"{TARGET},{OTHER}")
    ended = world.build(*words)  # ROCm's packages have nothing for the second
    assert ended.code == 2 and f"{OTHER} is not among the targets of the installed ROCm" in ended.err
    assert (world.calls(), world.runs()) == ([], [])
    kept = str(world.folder / "plan.json")
    refused = world.run(*world.words(*SETS, "-o", kept, command="plan"))
    assert refused.code == 2 and "of one Python and one set" in refused.err and not Path(kept).exists()


def test_each_python_has_its_wheels_out_of_one_command(world: World, tmp_path: Path) -> None:
    if not (others := find_other_pythons(world.env)):
        pytest.skip("one Python alone is here")
    pythons = ("--python", sys.executable, "--python", str(others[0].path))
    pythons += ("--work-dir", str(tmp_path / "work"), "--no-build-pytorch-audio")
    ended = world.build(*pythons, "--json")
    assert ended.code == 0, ended.err
    made = [(row["python"], row["project"]) for row in json.loads(ended.out)]
    tags = list(dict.fromkeys(tag for tag, _ in made))
    assert len(tags) == 2 and tags[0] == TAG
    assert made == [(tag, name) for tag in tags for name in ("triton", "pytorch")]
    assert {wheel.name.split("-")[2] for wheel in world.output.glob("*.whl")} == set(tags)
    world.calls()
    assert (world.build(*pythons).code, world.calls()) == (0, [])
    assert world.build("--python", sys.executable, "--python", sys.executable).code == 2


@pytest.mark.skipif(shutil.which("snakemake") is None, reason="no snakemake")
def test_one_workflow_builds_all_sets(world: World) -> None:
    snakefile = write_workflow(world, *SETS)
    names = {path.name for path in snakefile.parent.glob("*.plan.json")}
    assert names == {f"Snakefile.{TAG}-{name}.plan.json" for name in (TARGET, OTHER)}
    assert {plan.read_plan(snakefile.parent / name).plan.targets for name in names} == {(TARGET,), (OTHER,)}
    out, _ = (process := start(world, snakefile)).communicate(timeout=240)
    assert process.returncode == 0, out
    assert world.calls().count("triton begun") == 1
    assert not has_wheel(world, "torch")
    for name in (TARGET, OTHER):
        assert delivered(world, name) == {"triton", "torch", "torchaudio"}
    again = world.build(*SETS)
    assert "nothing to do" in again.err, again.err
