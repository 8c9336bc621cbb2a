"""``build --test``: tests as steps of a plan, on tiny projects and without a GPU."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from projects import TAG, World, wait_until

SMOKE = f"test-smoke-{TAG}"
STARTS = {"PYTEST_ADDOPTS": "-k test_torch_starts"}
FAILS = {"PYTEST_ADDOPTS": "-k 'test_torch_starts or test_linear_algebra_of_the_cpu'"}
ON_CPU = ("--test", "smoke", "--test-on-cpu")
# torch is imported for ever while a file is there: as with a driver that hangs
HANGS = """global INIT; INIT = f'''
import os, time
while os.path.exists({os.environ["TINY_PLACE"] + "/hang"!r}):
    open({os.environ["TINY_PLACE"] + "/hangs"!r}, "w").close()
    time.sleep(0.05)
'''"""


@pytest.fixture(autouse=True)
def _without_results(world: World) -> Iterator[None]:
    yield
    shutil.rmtree(world.work / "tests", ignore_errors=True)
    for name in ("hang", "hangs"):
        (world.place / name).unlink(missing_ok=True)


def read_results(world: World) -> dict[str, Any]:
    known: dict[str, Any] = json.loads((world.work / "tests" / SMOKE / "results.json").read_text())
    return known


@pytest.mark.contract_slow
def test_wheels_are_tested_as_they_are_installed_and_again_when_they_change(world: World) -> None:
    ended = world.build(*ON_CPU, **STARTS)
    assert ended.code == 0, ended.err
    results = read_results(world)
    assert {test["outcome"] for test in results["tests"]} == {"passed"}
    wheels = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in world.output.glob("*.whl")}
    assert results["wheels"] == wheels, "of all wheels of the run, by their digests"
    assert results["machine"]["kernel"].startswith("Linux ")
    again = world.build(*ON_CPU, **STARTS)
    assert again.code == 0 and world.stamp(SMOKE)["outputs"], "up to date"
    assert read_results(world)["when"] == results["when"], "nothing was tested again"
    (world.sources / "pytorch_audio" / "source.txt").write_text("two")
    try:
        failed = world.build(*ON_CPU, **FAILS)
    finally:
        (world.sources / "pytorch_audio" / "source.txt").write_text("one")
    assert failed.code == 16 and "1 passed, 1 failed" in failed.err
    results = read_results(world)
    assert [test["outcome"] for test in results["tests"]].count("failed") == 1, (
        "what failed is there to be handed in"
    )
    assert any(name.startswith("torchaudio-") for name in results["wheels"])
    assert (world.runs()[-1].state, len(list(world.output.glob("*.whl")))) == ("failed", 3)


@pytest.mark.contract_slow
def test_a_run_that_was_killed_in_its_tests_builds_nothing_again(world: World) -> None:
    world.disturb("pytorch", HANGS)
    process = world.start(*world.words(*ON_CPU), **STARTS)
    wait_until((world.work / "tests" / SMOKE).is_dir, "tests of checked wheels")
    (world.place / "hang").touch()
    wait_until((world.place / "hangs").exists, "a torch that hangs")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (world.place / "hang").unlink()
    assert "pytorch done" in world.calls()
    ended = world.build(*ON_CPU, **STARTS)
    assert ended.code == 0, ended.err
    assert world.calls() == []
    assert [test["outcome"] for test in read_results(world)["tests"]] == ["passed"]


@pytest.mark.contract_slow
def test_without_a_gpu_nothing_is_begun_that_could_not_be_tested(world: World) -> None:
    refused = world.build("--test", "smoke,torch")
    assert refused.code == 2 and f"{SMOKE} needs a GPU of gfx942" in refused.err
    assert "--test-on-cpu" in refused.err and world.calls() == []
    planned = world.run(*world.words("--test", "smoke,torch", "--json", command="plan"))
    steps = {step["id"]: step for step in json.loads(planned.out)["steps"]}
    assert steps[SMOKE]["inputs"]["device"] == "a GPU", "planned where no GPU is, for a cluster"
    assert SMOKE in steps[f"test-torch-{TAG}"]["after"]
    assert {f"repair-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio")} <= {
        *steps[SMOKE]["after"]
    }
    for words in (("--test", "smok"), ("--test-on-cpu",), ("triton", "--test", "smoke")):
        assert world.build(*words).code == 2
