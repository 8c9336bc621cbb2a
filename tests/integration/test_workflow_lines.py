"""Lines of the workflows, run as they stand there with values for their variables: a set's way in a folder.

No line is written here again: each is taken from its file, by job and name of the step.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from stores import FAMILY, World
from warm_python import warm_python

CLONE = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these jobs are on Linux")


class Machine:
    """A machine of jobs, in whose workspace the files of our own are that lines name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        for name in (".github", "build_tools"):
            (folder / name).symlink_to(CLONE / name)
        (folder / "bin").mkdir()
        program = folder / "bin" / "rocm-wheels"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(warm_python())} -m rocm_wheels "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
        self.env = {"PATH": path, "PYTHONPATH": str(CLONE / "build_tools"), "HOME": str(folder)}

    def run(self, place: str, code: int = 0, **values: object) -> tuple[dict[str, str], str]:
        """Run the line of ``file job step``; return the outputs of the step, and what it printed.

        ``values`` are those of all variables of the line, and of others of the step, where they are wanted.
        """
        file, job, name = place.split(" ", 2)
        text = (CLONE / ".github" / "workflows" / f"{file}.yml").read_text(encoding="utf-8")
        found: list[dict[str, Any]] = yaml.safe_load(text)["jobs"][job]["steps"]
        (step,) = (step for step in found if step.get("name") == name)
        assert set(re.findall(r"\$([A-Z_]+)", step["run"])) <= {*values} <= {*step.get("env", ())}, place
        outputs = self.folder / "outputs"
        outputs.write_text("")
        env = {
            **self.env,
            "GITHUB_OUTPUT": str(outputs),
            **{key: str(value) for key, value in values.items()},
        }
        argv = ["bash", "-e", "-c", step["run"]]
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, (place, done.stdout, done.stderr)
        told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        return told, done.stdout + done.stderr

    def list_results(self) -> set[tuple[str, str]]:
        """Return what is written down about sets: kinds and outcomes."""
        documents = [json.loads(path.read_text()) for path in self.store.rglob("evidence/*/*.json")]
        return {(document["kind"], document["outcome"]) for document in documents}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def staged(machine: Machine) -> dict[str, str]:
    """Stage a set; return what the job hands on."""
    world = World(machine.folder / "wheels")
    world.lock.rename(machine.folder / "sources.lock.json")
    given = {"STORE": machine.store, "FAMILY": FAMILY, "LAYOUT": "per-family"}
    return machine.run("release-set stage stage", **given)[0]


def test_rows_are_handed_down(machine: Machine) -> None:
    """From the lines of a night to its sets, what is tested of each, and what is built."""
    told, _ = machine.run("nightly plan lines of a night")
    (line,) = (row for row in json.loads(told["lines"])["include"] if row["name"] == "2.13-linux")
    keys = ("line", "platform", "families", "pythons", "layout", "rocm")
    selection = {key.upper(): line[key] for key in keys} | {"TRIGGER": "nightly"}
    given = selection | {"PACKAGING": line["packaging"], "ROCM_WHEELS_DATE": line["date"]}
    told, _ = machine.run("release-line plan sets, and what is tested of each", **given)
    sets = json.loads(told["sets"])["include"]
    assert {row["family"] for row in sets} == {*line["families"].split()}
    (chosen,) = (row for row in sets if row["family"] == "gfx94X-dcgpu")
    rows = chosen["rows"]["include"]
    assert chosen["tested"] and {row["python"] for row in rows} == {*line["pythons"].split()}
    assert [row["suites"] for row in rows].count("") < len(rows)
    built, _ = machine.run("build-line lock matrix", **selection, PACKAGING=line["packaging"])
    assert {"lines", "pythons", "first", "others", "companions", "tested"} <= {*built}
    assert built["first_count"] == "1" and json.loads(built["lines"])["include"][0]["name"] == line["name"]
    image, _ = machine.run("build-line lock image", IMAGE="", PLATFORM="linux")
    assert "@sha256:" in image["image"] and image["plat"].startswith("manylinux_2_")


def test_all_checks_are_added_and_a_failure_is_the_exit_code(
    machine: Machine, staged: dict[str, str]
) -> None:
    """One of these wheels is not what its recipe says; installers take them all."""
    given = {"STORE": machine.store, "SET": staged["set"]}
    _, said = machine.run("release-set check what needs no GPU", code=14, **given)
    assert machine.list_results() >= {("audit", "fail"), ("resolver", "pass")}, said
    machine.run("release-set check write what is attested", **given)
    assert len(list((machine.folder / "payloads").glob("*.json"))) >= 2
    machine.run("release-set check what needs no GPU", code=2, **(given | {"STORE": "none"}))


def test_a_set_is_judged_shown_and_cared_for(machine: Machine, staged: dict[str, str]) -> None:
    asked = {"STORE": machine.store, "SET": staged["set"], "CHANNEL": "nightly"}
    told, said = machine.run("promote gate gate", **asked)
    assert told == {"passed": "false"} and "smoke" in said
    machine.run("promote gate gate that must let it pass", code=15, **asked)
    machine.run("promote promote promote", code=15, **asked)
    name = "labels of the machines that its tests wait for, or waited in vain"
    _, said = machine.run(f"promote gate {name}", ROCM_WHEELS_FAMILIES="gfx94X-dcgpu")
    assert re.search(r"smoke.* on linux-\S+", said)
    told, _ = machine.run("test set set", STORE=machine.store, SET=staged["set"])
    assert (told["set"], told["family"], told["index"]) == (staged["set"], FAMILY, staged["index"])
    told, _ = machine.run("care plan sets that the channel does not show", STORE=machine.store)
    assert told["sets_count"] == "0", "its versions are not of a night"
    assert "no damage" in machine.run("care store look at the store again", STORE=machine.store)[1]
    machine.run("care store read every wheel again", STORE=machine.store)
    _, said = machine.run("care refresh bring channels to what is known", STORE=machine.store)
    assert "there is no channel" in said
    assert "0 sets would go" in machine.run("care prune what would go", STORE=machine.store)[1]


@pytest.mark.parametrize(("family", "tested"), [("gfx94X-dcgpu", True), ("gfx900", False)])
def test_a_family_without_a_machine_is_told(machine: Machine, family: str, tested: bool) -> None:
    """Its matrix is empty, at which GitHub ends the run."""
    given = {"LINE": "2.13", "PLATFORM": "linux", "PYTHONS": "3.12", "LAYOUT": "per-family", "ROCM": "10.1"}
    told, said = machine.run("test set matrix", FAMILY=family, **given)
    rows = json.loads(told["tested"])["include"]
    assert (told["tested_count"] != "0") == bool(rows) == tested
    assert ("nothing is tested: no runner has such a GPU" in said) == (not tested)


def test_results_of_a_gpu_are_added(machine: Machine, staged: dict[str, str]) -> None:
    (machine.folder / "results").mkdir()
    (machine.folder / "results" / "results.json").write_text("{}")
    given = {"STORE": machine.store, "SET": staged["set"], "KIND": "a-label"}
    _, said = machine.run("evidence add write it down", code=2, **given, RESULTS="results/results.json")
    assert "results.json" in said and machine.list_results() == set()
