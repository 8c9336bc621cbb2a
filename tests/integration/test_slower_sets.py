"""A slower set on its way to a channel: the gate, ``set promote``, and ``set refresh`` when it is there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from commands import Ended, call
from stores import FAMILY, TARGET, World

from rocm_wheels.models.test_results import Results
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.channel import read_channel
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract

POLICY = "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}, speed: {at_least: 0.8}}}}"
SMOKE_TESTS = Path(__file__).resolve().parents[2] / "smoke-tests"
GPU = "AMD Instinct MI300X"
CONV = "tflops:conv2d-float32-32x128x56x56"
FAST, SLOW = {CONV: 2.577}, {CONV: 0.016}  # what happened between two nightlies of ROCm


class Store:
    """A store with two staged sets, and commands about them."""

    def __init__(self, tmp_path: Path) -> None:
        self.place, self.folder = tmp_path / "store", tmp_path
        self.policy = tmp_path / "policy.yaml"
        self.policy.write_text(POLICY)
        self.store, self.paths = folder.FolderStore(self.place), store_paths.FamilyPaths(FAMILY)
        first = World(tmp_path / "1")
        self.ids = []
        for world in (first, first.next(tmp_path / "2")):
            self.ids.append(call(*world.words(self.place), "--json").json["set"])
            self.add(self.ids[-1], "audit")

    def judge(self, command: str, set_id: str, *more: str, code: int = 0) -> Ended:
        named = ["--set", set_id, "--channel", "nightly", "--policy", self.policy]
        return call("set", command, self.place, *named, *more, code=code)

    def add(
        self, set_id: str, kind: str, speeds: Mapping[str, float] | None = None, hours: float = 1
    ) -> None:
        """Hand in results of all wheels of a set, found so long ago."""
        document = wheel_set.find_set(self.store, set_id)
        results = {
            "kind": kind,
            "tool": "a tool",
            "when": datetime.now(timezone.utc) - timedelta(hours=hours),
            "host": "runner-1",
            "wheels": {file.name: file.sha256 for file in document.files},
            "tests": [{"name": "test", "outcome": "passed", "measurements": speeds or {}}],
        }
        if kind == "smoke":
            results |= {"gfx": TARGET, "machine": {"gpus": [{"name": GPU, "gfx": TARGET}]}}
        path = self.folder / "results.json"
        path.write_bytes(Results.model_validate(results).to_json())
        call("set", "evidence", "add", self.place, "--set", set_id, "--from", path)

    @property
    def shown(self) -> tuple[str, ...]:
        return read_channel(self.store, self.paths, "nightly").channel.shown


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_set_with_a_lost_kernel_stays_away_from_a_channel(place: Store) -> None:
    old, new = place.ids
    place.add(old, "smoke", FAST)
    told = place.judge("gate", old, "--explain").out
    assert f"speed on {TARGET}  1 speed on {GPU}, the first there: nothing to compare with" in told
    place.judge("promote", old)
    place.judge("gate", old)  # a set is not held against itself

    place.add(new, "smoke", SLOW, hours=0.9)
    told = place.judge("gate", new, "--explain", code=15).out
    slower = f"{CONV[7:]} on {GPU}: 0.016 TFLOP/s, 0.621 % of the 2.58 of {old}; at least 80 % needed"
    assert f"FAIL  speed on {TARGET}  {slower}" in told
    assert "next: mend it, which makes another set; or measure again" in told
    rules = place.judge("gate", new, "--json", code=15).json["rules"]
    (rule,) = [item for item in rules if item["rule"] == "speed"]
    assert rule["reasons"][0]["slower"][0]["speed"] == 0.016 and rule["reasons"][0]["set"] == old
    place.judge("promote", new, code=15)
    assert place.shown == (old,)

    place.add(new, "smoke", FAST, hours=0.8)
    place.judge("promote", new)
    assert place.shown == (old, new)
    place.judge("gate", old)  # nor against what came after it


def test_a_set_that_turns_out_to_be_slower_is_told_of_and_fails_a_refresh(place: Store) -> None:
    old, new = place.ids
    for set_id in place.ids:
        place.add(set_id, "smoke", FAST)
        place.judge("promote", set_id)
    place.add(new, "smoke", SLOW, hours=0.5)
    refresh = ["set", "refresh", str(place.place), "--policy", str(place.policy)]
    told = call(*refresh, code=15).err
    assert new in told and old not in told
    listed = ["set", "list", str(place.place), "--channel", "nightly", "--policy", str(place.policy)]
    (channel,) = call(*listed, "--json").json["channels"]
    told = {item["set"]: item for item in channel["sets"]}
    for moment in ("then", "now"):  # what its pages tell, and what is known
        assert told[new][moment]["state"] == "checks failed" and told[old][moment]["state"] != "checks failed"
        assert any(line.startswith(f"speed on {TARGET}: {CONV[7:]}") for line in told[new][moment]["told"])


def test_results_without_a_speed_do_not_pass_for_a_set_that_was_fast(place: Store) -> None:
    old, new = place.ids
    place.add(old, "smoke", FAST)
    place.judge("promote", old)
    place.add(new, "smoke")
    told = place.judge("gate", new, code=15).out
    assert f"not measured, and {old} was, on {GPU}" in told
    place.judge("promote", new, code=15)
    assert place.shown == (old,)


MEASURE = """
import json, sys, time
import torch
import test_speed

if "slow" in sys.argv:
    calculate = torch.nn.functional.conv2d

    def calculate_slowly(*values, **options):
        begun = time.perf_counter()
        result = calculate(*values, **options)
        time.sleep(19 * (time.perf_counter() - begun))
        return result

    torch.nn.functional.conv2d = calculate_slowly
found = {}
for operation, dtype in (("gemm", "float32"), ("conv2d", "float32"), ("attention", "bfloat16")):
    test_speed.test_speed(torch, "cpu", operation, dtype, found.__setitem__)
print(json.dumps({name.replace("cpu-", ""): speed for name, speed in found.items()}))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_a_torch_whose_convolutions_take_twenty_times_as_long_is_held(place: Store) -> None:
    """The CPU stands for a GPU; a quarter of the speed is enough, for others work on it as well."""
    place.policy.write_text(POLICY.replace("0.8", "0.25"))

    def measure(*words: str) -> dict[str, float]:
        path = os.pathsep.join([str(SMOKE_TESTS), *sys.path])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}  # several wait for each other
        argv = [sys.executable, "-c", MEASURE, *words]
        ended = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        numbers: dict[str, float] = json.loads(ended.stdout)
        return numbers

    old, new = place.ids
    place.add(old, "smoke", measure())
    place.judge("promote", old)
    place.add(new, "smoke", measure("slow"))
    place.judge("promote", new, code=15)
    rules = place.judge("gate", new, "--json", code=15).json["rules"]
    (rule,) = [item for item in rules if item["rule"] == "speed"]
    (slower,) = rule["reasons"][0]["slower"]
    assert "conv2d" in slower["name"] and slower["ratio"] < 0.1
    place.add(new, "smoke", measure(), hours=0.5)
    place.judge("promote", new)
