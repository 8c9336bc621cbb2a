"""What the rules of a workflow ask a cluster for, and what they wait for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from runs import make_facts, settled

from rocm_wheels.executors import snakemake
from rocm_wheels.pipeline.plan import PlanFile
from rocm_wheels.pipeline.step import Plan

pytestmark = pytest.mark.contract


def read_rules(
    folder: Path, *, cells: Sequence[Mapping[str, str]] = ({},), **facts: Any
) -> dict[str, dict[str, Any]]:
    """Return plan, inputs and resources of each rule, by the names of steps; of plans that nobody settles.

    ``cells``: what each of several plans has of its own.
    """
    plans = []
    for own in cells:
        made = make_facts(folder, **{**facts, **own})
        targets = tuple(str(made.request.targets).split(","))
        plans.append(PlanFile(made.request, Plan(settled(made), targets, (), made.python.tag), {}))
    text = snakemake.make_snakefile(plans, folder / "Snakefile")
    steps = {re.sub(r"\W", "_", step.id): step.id for file in plans for step in file.plan}
    rules: dict[str, dict[str, Any]] = {}
    for rule in text.split("\nrule ")[2:]:
        name, inputs, resources = re.findall(
            r"^(\w+):\n.*input:\n(.*)\n    output:.*resources:\n(.*)\n    shell:", rule, re.DOTALL
        )[0]
        rules[steps[name]] = {
            "plan": Path(re.findall(r"'(.+)'", inputs)[0]).name,
            "after": {Path(path).name for path in re.findall(r"'(.+)'", inputs)[1:]},
            "threads": int(re.findall(r"threads: (\d+)\n", rule)[0]),
            **{key: eval(value) for key, value in re.findall(r"(\w+)=(.*?),?(?:\n|$)", resources)},
        }
    assert rules.keys() == set(steps.values())
    return rules


def test_a_job_asks_for_what_its_step_takes_with_the_threads_that_it_gets(tmp_path: Path) -> None:
    rules = read_rules(tmp_path)
    torch, tools = rules["build-pytorch-cp312"], rules["install-tools-cp312"]
    assert (torch["threads"], tools["threads"]) == (16, 2)
    assert [torch["mem_mb"]("", threads) for threads in (2, 16)] == [
        (1 + 2 * 4 * 1.25) * 1024,  # of GiB that one compiler takes
        (1 + 16 * 4 * 1.25) * 1024,
    ]
    assert [torch["runtime"]("", threads) > 2 * 60 * 33 / threads for threads in (2, 16)] == [True, True]
    assert torch["runtime"]("", 2) > 7 * torch["runtime"]("", 16)
    assert tools["runtime"]("", 2) == 30 and tools["mem_mb"]("", 2) < 4096
    # tried again, as after too little memory
    assert [torch["compilers"]("", 16, attempt) for attempt in (1, 2, 3, 9)] == [16, 8, 4, 1]
    assert "compilers" not in tools


def test_tests_alone_ask_for_a_gpu_behind_all_wheels(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, targets="gfx942", tests=("smoke", "torch"))
    smoke, torch = "test-smoke-cp312", "test-torch-cp312"
    assert {name for name, rule in rules.items() if rule.get("gpu") == 1} == {smoke, torch}
    assert {name for name in rules if name.startswith("repair-")} <= rules[smoke]["after"]
    assert smoke in rules[torch]["after"]
    rules = read_rules(tmp_path, targets="gfx942", tests=("smoke",), test_on_cpu=True)
    assert smoke in rules and not any("gpu" in rule for rule in rules.values())


def test_what_works_in_one_tree_waits_for_one_another(tmp_path: Path) -> None:
    rules = read_rules(tmp_path, cells=[{"tag": "cp311"}, {"tag": "cp312"}])
    builds = [rules[f"build-pytorch-{tag}"]["after"] for tag in ("cp311", "cp312")]
    assert "install-tools-cp312" in builds[1] and "build-pytorch-cp311" in builds[1]
    assert {name for name in builds[0] if name.endswith("cp312")} == {"install-rocm-cp312"}
    assert "repair-pytorch-cp311" not in builds[1], "another environment"
    installs = {"install-rocm-cp311", "install-rocm-cp312"}
    assert all(installs <= rule["after"] for name, rule in rules.items() if name not in installs)
    assert [rules[f"build-pytorch-{tag}"]["plan"] for tag in ("cp311", "cp312")] == [
        "Snakefile.cp311.plan.json",
        "Snakefile.cp312.plan.json",
    ]


def test_one_workflow_is_of_all_sets_and_shares_what_is_the_same(tmp_path: Path) -> None:
    sets = [{"targets": target, "target_set": target} for target in ("gfx942", "gfx1100")]
    rules = read_rules(tmp_path, cells=sets)
    shared = {"install-rocm-cp312", "install-tools-cp312", "build-triton-cp312"}
    assert {name for name in rules if "-gfx" not in name} == shared
    assert {rules[name]["plan"] for name in shared} == {"Snakefile.cp312-gfx942.plan.json"}
    second = rules["build-pytorch-cp312-gfx1100"]
    assert second["plan"] == "Snakefile.cp312-gfx1100.plan.json"
    # the environment has one torch at a time
    first = {name for name in rules if name.endswith("-gfx942") and name.startswith(("build-", "repair-"))}
    assert first <= second["after"] and "build-triton-cp312" in second["after"]
    assert not any(name.endswith("-gfx1100") for name in rules["build-apex-cp312-gfx942"]["after"])
