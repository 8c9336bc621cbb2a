"""The job that builds what serves every family, run without what it builds: which torch does it take?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from workflow_actions import Services, pythons_here
from workflow_expressions import Optional
from workflow_runner import Ran, Runner

CLONE = Path(__file__).resolve().parents[2]
TORCH, OTHER = "gfx900-cp312-2.13-linux", "gfx94X-dcgpu-cp312-2.13-linux"
ROW = {
    "name": "cp312-2.13-linux",
    "python": "3.12",
    "targets": "gfx900,gfx942",
    "extras": "device-gfx900,device-gfx942",
    "projects": "pytorch_audio",
    "wheels": "wheels/torchaudio-*.whl",
    "torch": TORCH,
    "builder": "here",
    "minutes": 40,
}
INPUTS = {
    "line": "2.13",
    "platform": "linux",
    "rocm_index": "https://h/",
    "save_cache": False,
}
STUB = """#!/bin/sh
case "$*" in
*"build --lock"*) mkdir -p wheels && cp torch/* wheels/torchaudio-2-py3-none-any.whl && echo "$@" ;;
esac
"""


def run_job(folder: Path, torches: list[str], reserve: str) -> Ran:
    """Run the job where these cells have left a torch; what it builds has the name of that cell inside."""
    made = yaml.safe_load((CLONE / ".github" / "workflows" / "build-line.yml").read_text(encoding="utf-8"))
    (folder / "bin").mkdir()
    for name in ("rocm-wheels", "python3"):
        (folder / "bin" / name).write_text(STUB)
        (folder / "bin" / name).chmod(0o755)
    clone = folder / "clone"  # what is checked out: of our files only the action has a part in this
    subprocess.run(["git", "init", "-q", clone], check=True)
    shutil.copytree(CLONE / ".github" / "actions", clone / ".github" / "actions")
    services = Services(folder / "github", clone, {"3.12": next(iter(pythons_here().values()))})
    for name, file in [
        ("lock-2.13-linux", "sources.lock.json"),
        ("sources-2.13-linux", "sources.tar.zst"),
        *((f"wheels-{cell}", "torch-2.13-py3-none-any.whl") for cell in torches),
    ]:
        place = services.artifacts[name] = folder / "kept" / name
        place.mkdir(parents=True)
        (place / file).write_text(name)
    (services.folder / "tools" / "3.12" / "bin").mkdir(parents=True)
    env = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    runner = Runner(CLONE / ".github" / "workflows", services, {"here"}, env)
    contexts: dict[str, Any] = {"inputs": INPUTS, "matrix": {**ROW, "reserve": reserve}, "vars": Optional()}
    contexts["needs"] = {"lock": {"outputs": {"image": "", "plat": "auto"}}}
    ran = runner._machine(made["jobs"]["companions"], contexts, "companions")
    built = services.artifacts.get("companions-cp312-2.13-linux")
    ran.outputs["built against"] = "".join(one.read_text() for one in built.iterdir()) if built else ""
    return ran


@pytest.mark.parametrize(
    ("torches", "reserve", "against"),
    [
        ([TORCH, OTHER], OTHER, f"wheels-{TORCH}"),
        ([OTHER], OTHER, f"wheels-{OTHER}"),  # the leading cell failed: that costs its own family alone
        ([TORCH], "", f"wheels-{TORCH}"),
    ],
)
def test_it_is_built_against_the_torch_of_a_cell_that_was_built(
    torches: list[str], reserve: str, against: str, tmp_path: Path
) -> None:
    ran = run_job(tmp_path, torches, reserve)
    assert ran.result == "success", ran.steps
    assert ran.outputs["built against"] == against
    said = ran.said("build against a torch")
    assert "--project pytorch_audio" in said and "--gfx gfx900,gfx942" in said
    assert "--rocm-extras device-gfx900,device-gfx942" in said and "--pytorch-wheel torch" in said


@pytest.mark.parametrize(("torches", "reserve"), [([], OTHER), ([OTHER], ""), ([], "")])
def test_without_any_torch_it_fails_and_says_whose_is_missing(
    torches: list[str], reserve: str, tmp_path: Path
) -> None:
    """It leaves nothing: the gate names what each set lacks, and it is run again with its cells."""
    ran = run_job(tmp_path, torches, reserve)
    assert ran.result == "failure" and ran.outputs["built against"] == ""
    told = [text for _, outcome, text in ran.steps if outcome == "failure"]
    assert told == [f"Artifact 'wheels-{one}' not found" for one in (TORCH, reserve) if one]
    assert ("build against a torch", "skipped") in [(name, outcome) for name, outcome, _ in ran.steps]
