"""The workflow of the morning, run from its file: refresh, install on a bare system, say what came of it.

A store in a folder shows a torch that is none: it can be installed, and not imported. That becomes an issue
on a server that answers as GitHub does. There is no container here: the engine runs what it is told on this
machine. The sample installs nothing: what the job with the family would leave behind is written down.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from github_server import TOKEN, Github, github

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from nights import FAMILY, Night, hours_ago, know, verified
from release_world import rocm_wheel
from workflow_actions import Services, pythons_here
from workflow_runner import Ran, Runner
from workflow_world import CLONE, environment

from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.evidence import current_time
from rocm_wheels.cli.main import cli
from rocm_wheels.core import FolderStore
from rocm_wheels.index import add_wheels
from validate_published import list_installs

_ = github  # a fixture
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="containers are of Linux"),
]
SYSTEMS = ("debian", "ubuntu", "fedora", "almalinux")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FolderStore]:
    """One set is on the channel nightly, and ROCm is in an index beside it."""
    folder = tmp_path_factory.mktemp("published")
    found = FolderStore(folder / "store")
    now = current_time()
    document = Night("2.10.0", 21).stage(found, folder / "wheels")
    verified(found, document, hours_ago(now, 1))
    know(found, document, "gfx1100", "pass", hours_ago(now, 1))
    (folder / "policy.yaml").write_text("channels: {nightly: {rules: {verify: {fresh: 1d}}}}\n")
    words = ["set", "promote", found.url, "--set", document.id, "--channel", "nightly"]
    assert run_command(cli, [*words, "--policy", str(folder / "policy.yaml")]) == 0
    add_wheels(folder / "rocm", [rocm_wheel(folder)], now=f"{now:%Y-%m-%dT%H:%M:%SZ}")
    places = [
        "--public-url",
        f"{(folder / 'store').as_uri()}/",
        "--other-index",
        f"{(folder / 'rocm').as_uri()}/",
    ]
    assert run_command(cli, ["set", "refresh", found.url, *places]) == 0
    yield found


STEPS = (("prepare", True), ("install", True), ("import", False))


def write_checked(services: Services, store: FolderStore, system: str) -> None:
    """Leave behind what the job of a system with the family does."""
    document = json.loads((Path(store.url) / "v2" / "support.json").read_text())
    (install,) = list_installs(document, f"{store.url}/v2/support.json", "nightly")
    steps = [{"step": name, "passed": passed, "seconds": 1, "detail": ""} for name, passed in STEPS]
    folder = services.artifacts[f"validated-{system}"] = services.folder / f"validated-{system}"
    folder.mkdir(parents=True)
    result = {**install, "passed": False, "steps": steps}
    report = {"schema": 1, "image": system, "when": "2026-11-26T10:23:00Z", "results": [result]}
    (folder / f"{system}.json").write_text(json.dumps(report))


def test_the_morning(store: FolderStore, github: Github, tmp_path: Path, exhaustive: bool) -> None:
    """The policy of the channel stays; each system has its part; what cannot be imported is one issue."""
    engine = FakeEngine(tmp_path / "engine", "docker")
    env = environment(tmp_path / "world")
    (tmp_path / "world" / "home").mkdir()
    env |= {
        "PATH": os.pathsep.join([str(engine.bin), env["PATH"]]),
        "UV_PYTHON_PREFERENCE": "only-system",
    }
    here = pythons_here()
    here.setdefault("3.12", next(iter(here.values())))
    variables = {
        "ROCM_WHEELS_STORE": store.url,
        "ROCM_WHEELS_SUPPORT_URL": f"{Path(store.url).as_uri()}/v2/support.json",
        "ROCM_WHEELS_NOTIFY": "github:rocm/wheels",
    }
    services = Services(tmp_path / "github", CLONE, here)
    workflows = CLONE / ".github" / "workflows"
    runner = Runner(workflows, services, {"ubuntu-24.04"}, env, variables, event="schedule")
    runner.api_url = github.url
    system = SYSTEMS[current_time().toordinal() % len(SYSTEMS)]  # which has the family today
    if not exhaustive:
        runner.served = {f"morning.yml/validate[{SYSTEMS.index(system)}]": Ran("failure")}
        write_checked(services, store, system)
    runner.start("morning.yml", {})
    jobs = {place.removeprefix("morning.yml/"): ran for place, ran in runner.jobs.items()}
    failed = [step for ran in jobs.values() for step in ran.steps if step[1] == "failure"]
    told = "\n".join(said[-2000:] for _, _, said in failed)
    assert jobs["refresh"].result == jobs["page"].result == "success", told
    written = [services.artifacts[f"validated-{name}"] / f"{name}.json" for name in SYSTEMS]
    results = [json.loads(path.read_text()) for path in written]
    (result,) = [item for report in results for item in report["results"]]
    assert result["family"] == FAMILY and result["gfx"] == "gfx1100"
    assert [(step["step"], step["passed"]) for step in result["steps"]] == [*STEPS], told
    assert [report["image"] for report in results if report["results"]] == [system]
    if exhaustive:
        by_digest = f"docker.io/library/{system}@sha256:"
        assert any(word.startswith(by_digest) for line in engine.told() for word in line)
    assert [ran.result for ran in jobs.values()].count("failure") == 1
    pages = services.artifacts["pages"]
    assert {path.name for path in pages.iterdir()} == {"index.html", "night.html", "dashboard.json"}
    assert f"install on {system}" in (pages / "night.html").read_text()
    assert (Path(store.url) / "v2" / "index.html").read_bytes() == (pages / "index.html").read_bytes()
    assert run_command(cli, ["store", "fsck", store.url]) == 0  # pages are no damage
    (issue,) = github.issues
    assert f"install on {system} fails" in issue["title"] and TOKEN not in json.dumps(issue)
