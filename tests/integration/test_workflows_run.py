"""The nightly of two families, run from its workflow files on the miniature; and all other workflows.

It is for the running Python. Of the projects torch, triton and torchaudio are built, one of each kind of
job, in a copy of the clone without the other recipes, as somebody has it who needs no more. The exhaustive
night builds all of them, for two Pythons. What other workflows do differently is run on what the night
has made: what a pull request or a push touches, a release, promotions by hand, our own tests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from imitated_gpus import NEW_FAILURE
from workflow_runner import Ran, Runner
from workflow_world import CLONE, FAMILIES, ROCM, History, Night, labels, list_testers, run_night

from rocm_wheels.models import ci, gfx
from rocm_wheels.release.evidence.evidence import Evidence
from rocm_wheels.testing.durations import read_durations

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the miniature is built on Linux alone"),
]


REMOVING: list[subprocess.Popen[bytes]] = []


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="sample", marks=pytest.mark.night),
        pytest.param(True, id="exhaustive", marks=pytest.mark.exhaustive),
    ],
)
def night(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night")
    begin = time.monotonic()
    made = run_night(folder, whole=request.param)
    cells = f"{' and '.join(FAMILIES)} × Python {' and '.join(made.pythons)}"
    print(f"\n{cells}: {len(made.runner.jobs)} jobs in {time.monotonic() - begin:.0f} s")
    yield made
    REMOVING.append(subprocess.Popen(["rm", "-rf", folder]))  # hundreds of thousands of files: nobody waits


NIGHT = r"nightly20\d{6}\.17\.1"  # in the versions of its wheels


def said(night: Night, job: str, step: str) -> str:
    return night.runner.jobs[f"nightly.yml/line[0]/{job}"].said(step)


def test_jobs_run_as_the_workflow_says(night: Night) -> None:
    """One lock, by which all check out; what serves every family once a Python; a cell that goes first."""
    cells = len(FAMILIES) * len(night.pythons)
    results = {place.removeprefix("nightly.yml/"): ran.result for place, ran in night.runner.jobs.items()}
    wanted = {
        "plan": "success",
        "line[0]/build/lock": "success",
        "line[0]/build/sources[0]": "success",
        **{f"line[0]/build/shared[{number}]": "success" for number in range(len(night.pythons))},
        "line[0]/build/first[0]": "success",
        **{f"line[0]/build/others[{number}]": "success" for number in range(cells - 1)},
        **{f"line[0]/build/companions[{number}]": "success" for number in range(len(night.pythons))},
        "line[0]/build": "success",
    }
    assert {name: results.get(name) for name in wanted} == wanted, night.failures()
    assert [name for name in results if "/build/" in name and name not in wanted] == []
    of_cells = {f"wheels-{family}-{tag}" for family in FAMILIES for tag in night.tags()}
    shared = {f"{name}-{tag}" for tag in night.tags() for name in ("shared", "companions")}
    once = {"lock-2.13-linux"}
    of_build = {name for name in night.runner.services.artifacts if not name.startswith(("smoke-", "tests-"))}
    assert of_build == of_cells | shared | once
    # the first cell found no cache and saved one; all others found it
    asked = [one for one in night.runner.services.asked if one.startswith("cache")]
    found = [one for one in asked if "cache: ccache-2.13-linux-4711-1 for" in one]
    assert len(found) == cells - 1 + len(night.pythons)
    assert not [one for one in asked if "not saved" in one]
    # the first checkout filled the mirror; those of all other jobs took every commit from it
    builders = [place for place in results if re.search("/build/(shared|first|others|companions)", place)]
    assert asked.count("cache: mirrors-linux for mirrors-linux") == len(builders)
    for place in builders:
        fetched = night.runner.jobs[f"nightly.yml/{place}"].said("check out, patch, hipify")
        assert "is in the mirror" in fetched and "fetching" not in fetched, fetched
    others = [ran for place, ran in night.runner.jobs.items() if "/build/others[" in place]
    for ran in others:  # whatever their family and Python: what is compiled for the host is the same
        assert re.search(r"ccache answered .*\(host [1-9]", ran.said("build")), ran.steps


def test_every_wheel_is_of_the_one_lock(night: Night) -> None:
    lock = json.loads((night.runner.services.artifacts["lock-2.13-linux"] / "sources.lock.json").read_text())
    assert lock["rocm"] == ROCM and lock["pythons"] == sorted(night.pythons)
    assert re.fullmatch(NIGHT, lock["local_version"])
    audio = set()
    for family in FAMILIES:
        (document,) = (night.store / "v2-staging" / family / "sets").glob("*/set.json")
        staged = json.loads(document.read_text())
        assert len(staged["files"]) == len(night.projects) * len(night.pythons)
        code = {target for file in staged["files"] for target in file.get("targets", ())}
        assert code == set(gfx.get_gfx_families()[family])
        for file in staged["files"]:  # the next night, and other torches of this one, have other names
            torch = "" if file["project"] == "torch" else r"torch2\.13\.0a0\."
            assert re.search(rf"[+.]{NIGHT}\.{torch}rocm7\.1\.0\.miniature$", file["version"]), file
        audio |= {file["sha256"] for file in staged["files"] if file["project"] == "torchaudio"}
    assert len(audio) == len(night.pythons), "one for all families"


GONE, ALIVE = "line[0]/set[0]", "line[0]/set[1]"  # sets of the families whose machines are gone, and alive


def test_a_label_without_a_machine_holds_nobody_but_its_own_set(night: Night) -> None:
    """Its jobs stay queued; what else there is of its set is done, and its gate waits for the morning."""
    results = {place.removeprefix("nightly.yml/"): ran.result for place, ran in night.runner.jobs.items()}
    assert results[f"{GONE}/stage"] == results[f"{GONE}/checks"] == "success", night.failures()
    for number in range(len(night.pythons)):
        row = f"{GONE}/rows[{number}]"
        assert results[f"{row}/smoke/smoke[0]"] == "queued"
        assert {results[f"{row}/{job}"] for job in ("results", "suites")} == {"waiting"}
    assert results[f"{GONE}/gate"] == "waiting"
    assert not list((night.store / "v2").glob(f"{FAMILIES[0]}/**/*.whl"))
    assert night.runner.result == "queued", "for a day, and nobody needs it to end"


def test_the_set_of_the_other_family_is_promoted_when_all_its_results_are_there(night: Night) -> None:
    """Its smoke tests pass, which is what a night asks for.

    Of torch's own tests one fails anew, one is flaky, and the GPU is lost: that is evidence, and shown.
    """
    results = {place.removeprefix("nightly.yml/"): ran.result for place, ran in night.runner.jobs.items()}
    promoted = [
        place for place, result in results.items() if place.endswith("/promote") and result == "success"
    ]
    assert promoted == [f"{ALIVE}/gate/promote"], night.failures()
    assert list((night.store / "v2").glob(f"{FAMILIES[1]}/**/torch-*.whl"))
    evidence = read_evidence(night.store, FAMILIES[1])
    assert {entry.outcome for entry in evidence if entry.kind == "smoke"} == {"pass"}
    tests = [entry for entry in evidence if entry.kind == "tests"]
    assert len(tests) == len(night.pythons) and {entry.outcome for entry in tests} == {"lost"}
    for entry in tests:
        assert entry.failed == (NEW_FAILURE,) and (entry.counts.passed, entry.counts.flaky) == (2, 1)
        assert entry.host.kind in list_testers(FAMILIES[1])


def test_later_nights_share_out_files_by_what_this_one_took(night: Night) -> None:
    """Every shard of a suite would be handed the results of the last run of it."""
    kept = [
        folder for key, folder in night.runner.services.caches.items() if key.startswith("durations-default-")
    ]
    assert len(kept) == len(night.pythons)
    (durations,) = read_durations([kept[0]], "default").items()
    assert durations == ("test_nn", 9.0), "the file that the GPU was lost in took nobody knows how long"


def read_evidence(store: Path, family: str) -> list[Evidence]:
    """Return what was found out about the sets of a family."""
    files = (store / "v2-staging" / family / "evidence").glob("*/*.json")
    return [Evidence.model_validate_json(path.read_text(encoding="utf-8")) for path in sorted(files)]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "ours.git")


PATCH = "patches/pytorch/2.13/base/0001-a-change.patch"


def changed(night: Night, history: History, name: str, **served: str) -> Runner:
    """Run what a pull request begins; jobs are ``served`` with a result as if others did them."""
    history.pull_request({name: "changed"})
    done = {f"presubmit.yml/{job}": Ran(result) for job, result in served.items()}
    return night.run("presubmit.yml", event="pull_request", history=history.folder, served=done)


def test_a_pull_request_that_touches_a_patch_builds_its_line(night: Night, history: History) -> None:
    """One cell of each platform, of the line of the patch alone; nothing of what its base has beside it."""
    runner = changed(night, history, PATCH, **{"build[1]": "success"})
    first, second = (runner.called[f"presubmit.yml/build[{number}]"] for number in (0, 1))
    line = runner.called["presubmit.yml/build[0]/build[0]"]
    assert (first["line"], first["platform"], second["platform"]) == ("2.13", "linux", "windows")
    assert (first["families"], first["pythons"]) == ("gfx94X-dcgpu", "3.12")
    assert line["rocm_index"].startswith("https://") and line["save_cache"] is False
    lock = json.loads((runner.services.artifacts["lock-2.13-linux"] / "sources.lock.json").read_text())
    assert lock["pythons"] == ["3.12"] and lock["rocm"] == first["rocm_version"]
    builders = [one.label for one in ci.load_ci_table().platforms["linux"].builders]
    build = "presubmit.yml/build[0]/build[0]"
    assert any(one in runner.jobs[f"{build}/sources[0]"].said("runner") for one in builders)
    assert runner.jobs[f"{build}/first"].result == "waiting" and runner.result == "queued"
    assert not [one for one in runner.services.asked if "role" in one]


def test_what_a_pull_request_builds_is_smoke_tested_from_its_artifacts(night: Night) -> None:
    """No store: an index is made on the machine with the GPU. It says here that it has none."""
    given = {"line": "2.13", "families": FAMILIES[0], "pythons": night.pythons[0], "rocm_version": ROCM}
    runner = night.run(
        "build.yml",
        {**given, "rocm_index": night.given["rocm_index"]},
        served={"build.yml/build[0]": Ran("success")},
        after=night.runner,
        artifacts=("wheels-", "shared-", "companions-"),
        machines=list_testers(FAMILIES[0]),
        env={"PYTEST_ADDOPTS": "-k test_versions"},
    )
    smoke = runner.jobs["build.yml/smoke/smoke[0]"]
    assert re.search(rf"torch 2\.13\.0a0\+{NIGHT}\.", smoke.said("install from the index")), smoke.steps
    assert "exit code 16" in smoke.said("smoke tests")
    assert f"smoke-{FAMILIES[0]}-{night.tags()[0]}" not in runner.services.artifacts, "nothing was tested"
    assert not [one for one in runner.services.asked if "role" in one or "environment" in one]


def test_a_pull_request_that_touches_nothing_builds_nothing(night: Night, history: History) -> None:
    runner = changed(night, history, "README.md")
    assert runner.jobs["presubmit.yml/plan"].outputs["lines_count"] == "0"
    assert runner.jobs["presubmit.yml/build"].result == "skipped" and runner.result == "success"


def test_a_pull_request_that_touches_everything_builds_the_newest_line(
    night: Night, history: History
) -> None:
    runner = changed(
        night, history, "build_tools/rocm_wheels/x.py", **{"build[0]": "success", "build[1]": "success"}
    )
    assert runner.result == "success"
    lines = [given["line"] for given in runner.called.values()]
    newest = max((str(line) for line in lines), key=lambda line: int(line.split(".")[1]))
    assert lines == [newest, newest] and newest != "2.13"


def test_a_push_is_staged_and_tested_though_a_cell_was_not_built(night: Night, history: History) -> None:
    """All that the push has: not only its last commit. Its sets are judged by no gate, and shown nowhere."""
    first = history.commit({PATCH: "changed"}, history.base)
    history.commit({PATCH: "changed", "README.md": "changed"}, first)
    families = [f"line[0]/set[{number}]" for number in range(1, 12)]
    served = {
        **{f"postsubmit.yml/{name}": Ran("success") for name in (*families, "line[1]")},
        "postsubmit.yml/line[0]/build": Ran("failure"),
        "postsubmit.yml/line[0]/set[0]/stage": night.ran("set[0]/stage"),
        "postsubmit.yml/line[0]/set[0]/checks": night.ran("set[0]/checks"),
    }
    about = {"event": {"before": history.base}, "sha": first}
    runner = night.run("postsubmit.yml", event="push", about=about, history=history.folder, served=served)
    line = runner.called["postsubmit.yml/line[0]"]
    assert (line["line"], line["channel"], line["promote"], line["save_cache"]) == ("2.13", "", False, False)
    since = [
        name for name, one in ci.load_ci_table().families.items() if one.since in {"presubmit", "postsubmit"}
    ]
    assert line["families"].split() == since and line["store"] == str(night.store)
    results = {job: ran.result for job, ran in runner.jobs.items() if "set[0]/" in job}
    wanted = {"stage": "success", "rows[0]/smoke/smoke[0]": "queued", "gate": "waiting"}
    for job, result in wanted.items():
        assert results[f"postsubmit.yml/line[0]/set[0]/{job}"] == result, results


def test_a_release_is_judged_and_never_shown(night: Night) -> None:
    served = {
        "release.yml/line[0]/build": night.ran("build"),
        "release.yml/line[0]/set[0]/stage": night.ran("set[1]/stage"),
        "release.yml/line[0]/set[0]/checks": night.ran("set[1]/checks"),
        **{f"release.yml/line[0]/set[0]/rows[{n}]": Ran("success") for n in range(len(night.pythons))},
    }
    given = {key: value for key, value in night.given.items() if key != "promote"}
    given |= {"families": FAMILIES[1], "channel": "prerelease"}
    runner = night.run("release.yml", given, served=served)
    told = runner.jobs["release.yml/line[0]/set[0]/gate/gate"].said("gate")
    assert "prerelease" in told
    assert runner.jobs["release.yml/line[0]/set[0]/gate/promote"].result == "skipped"
    assert not [one for one in runner.services.asked if one.startswith("environment prerelease")]


@pytest.mark.parametrize(
    ("number", "gate", "promote"), [(0, "failure", "skipped"), (1, "success", "success")]
)
def test_somebody_promotes_a_set_of_the_night(number: int, gate: str, promote: str, night: Night) -> None:
    chosen = night.ran(f"set[{number}]/stage").outputs["set"]
    given = {"set": chosen, "family": FAMILIES[number], "channel": "nightly"}
    runner = night.run("promote.yml", given)
    assert runner.jobs["promote.yml/promote/gate"].result == gate
    assert runner.jobs["promote.yml/promote/promote"].result == promote
    asked = runner.services.asked
    assert ("environment nightly for promote.yml/promote/promote" in asked) == (promote == "success")


@pytest.mark.parametrize(
    ("layout", "families", "promote"),
    [("", "gfx1151", True), ("multi-arch", "", True), ("multi-arch", "gfx1151", False)],
)
def test_a_set_for_families_that_somebody_chose_does_not_take_the_place_of_one_for_all(
    layout: str, families: str, promote: bool, night: Night
) -> None:
    """On a channel the newest wheels are everybody's: of others than the chosen GPUs they have no code."""
    given = {**night.given, "layout": layout, "families": families}
    runner = night.run("nightly.yml", given, served={"nightly.yml/line[0]": Ran("success")})
    assert runner.called["nightly.yml/line[0]"]["promote"] is promote


@pytest.fixture(scope="module")
def together(night: Night) -> Runner:
    """The same families in the other layout, for one Python, with the compiler cache that the night left.

    Where its lock names the same commits, the sources are the same. Its results are attested.
    """
    given = {**night.given, "layout": "multi-arch", "pythons": RUNNING, "promote": False}
    machines = labels() - {"ubuntu-24.04"}
    return night.run(
        "nightly.yml",
        given,
        machines=machines,
        served={"nightly.yml/line[0]/build/sources[0]": night.ran("build/sources[0]")},
        after=night.runner,
        artifacts=("sources-",),
        attests=True,
    )


RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"
ONE_SET = "nightly.yml/line[0]/set[0]"


def test_one_set_is_for_all_families(night: Night, together: Runner) -> None:
    """One build of all, staged as one set; each family is tested by itself."""
    results = {place: ran.result for place, ran in together.jobs.items()}
    tag = f"cp{RUNNING.replace('.', '')}-2.13-linux"
    wanted = ["lock", "sources[0]", "shared[0]", "first[0]", "companions[0]"]
    assert {results.get(f"nightly.yml/line[0]/build/{job}") for job in wanted} == {"success"}, results
    assert results["nightly.yml/line[0]/build/others"] == "skipped"
    assert f"wheels-multi-arch-{tag}" in together.services.artifacts
    assert results[f"{ONE_SET}/stage"] == "success" and not any("/set[1]" in place for place in results)
    built = together.jobs["nightly.yml/line[0]/build/first[0]"].said("build")
    assert re.search(r"ccache answered .*\(host [1-9]", built)
    (document,) = (night.store / "v2-staging" / "multi-arch" / "sets").glob("*/set.json")
    staged = json.loads(document.read_text())
    both = {target for family in FAMILIES for target in gfx.get_gfx_families()[family]}
    assert staged["layout"] == "multi-arch" and len(staged["files"]) == len(night.projects)
    assert {file["project"]: set(file.get("targets", ())) for file in staged["files"]} == {
        name: set() if name == "triton" else both for name in night.projects
    }
    assert all("+dispatch" in file["version"] or "torch" in file["version"] for file in staged["files"])
    tests = [f"{ONE_SET}/rows[{number}]/smoke/smoke[0]" for number in range(len(FAMILIES))]
    assert [results[one] for one in tests] == ["queued", "queued"]  # no machine has a GPU
    assert results[f"{ONE_SET}/gate"] == "waiting"


def list_attested(store: Path, family: str) -> dict[str, list[bool]]:
    """Return whether the bundle that is kept with each evidence of a set names its payload, by kind."""
    attested: dict[str, list[bool]] = {}
    for path in (store / "v2-staging" / family / "evidence").glob("*/*.json"):
        evidence = Evidence.model_validate_json(path.read_text(encoding="utf-8"))
        if evidence.signature is not None:
            bundle = json.loads(evidence.signature.value)
            statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
            digests = [subject["digest"]["sha256"] for subject in statement["subject"]]
            named = hashlib.sha256(evidence.payload).hexdigest() in digests
            attested.setdefault(evidence.kind, []).append(named)
    return attested


def test_results_are_attested_where_the_repository_says_so(night: Night, together: Runner) -> None:
    """One bundle for all of a job. Who signed it is no question here: the real action never ran."""
    checks = together.jobs[f"{ONE_SET}/checks"]
    outcomes = {name: outcome for name, outcome, _ in checks.steps}
    assert (outcomes["write it down"], outcomes["write it down, attested"]) == ("skipped", "success")
    attested = list_attested(night.store, "multi-arch")
    assert set(attested) >= {"verify", "resolver"} and all(map(all, attested.values())), attested
    assert list_attested(night.store, FAMILIES[0]) == {}
    assert sum(one.startswith("attested ") for one in together.services.asked) == 1


def test_what_is_tested_has_an_environment_of_its_own(night: Night, together: Runner) -> None:
    """On a machine that says it has a GPU and has none: all is installed, nothing is tested."""
    stage = together.jobs[f"{ONE_SET}/stage"]
    rows = [row["family"] for row in json.loads(stage.outputs["tested"])["include"]]
    number = rows.index(FAMILIES[1])
    row = f"{ONE_SET}/rows[{number}]"
    served = {
        "nightly.yml/line[0]/build": Ran("success"),
        f"{ONE_SET}/stage": stage,
        f"{ONE_SET}/checks": together.jobs[f"{ONE_SET}/checks"],
        f"{ONE_SET}/rows[{1 - number}]": Ran("failure"),
    }
    given = {**night.given, "layout": "multi-arch", "pythons": RUNNING, "promote": False}
    env = {"PYTEST_ADDOPTS": "-k test_versions"}
    testers = list_testers(FAMILIES[1])
    runner = night.run("nightly.yml", given, served=served, after=together, machines=testers, env=env)
    test, results = runner.jobs[f"{row}/smoke/smoke[0]"], runner.jobs[f"{row}/results[0]/add"]
    installed = test.said("install from the index")
    assert re.search(r"making \S+/work/tested \(Python \S+, new, of \S+/tools/\S+\)", installed)
    assert re.search(r"torch 2\.13\.0a0\+dispatch\S+\.rocm7\.1\.0\.miniature \(built for rocm\), ", installed)
    assert all(re.search(rf"[ :]{name} ", installed) for name in night.projects)
    assert "exit code 16" in test.said("smoke tests")
    assert "no results are no evidence" in results.said("write it down")
    assert runner.jobs[f"{row}/suites"].result == "skipped", "hours of tests would say no more"
    gate = runner.jobs[f"{ONE_SET}/gate/gate"]
    words = gate.said("gate")
    assert "multi-arch cannot go to nightly" in words and "smoke on gfx942" in words
    assert gate.outputs == {"passed": "false"}
    assert runner.jobs[f"{ONE_SET}/gate/promote"].result == "skipped"
    home = night.folder / "world" / "home"
    left = [*(night.folder / "github" / "tools").rglob("torch"), *home.rglob("*.whl")]
    assert not left, "for the jobs after"


def test_our_own_tests(night: Night) -> None:
    """The whole command, of which pytest is told to take one file. In a whole night pip installs it."""
    if night.runner.services.warm:
        night.set_up_tests("3.12")
    env = {"PYTEST_ADDOPTS": "tests/unit/test_shell.py"}
    runner = night.run("ci.yml", event="pull_request", only="3.12", env=env)
    ran = [job for job, one in runner.jobs.items() if one.result == "success"]
    assert len(ran) == 1 and " passed" in runner.jobs[ran[0]].said("test")
    assert [one.result for one in runner.jobs.values()].count("failure") == len(runner.jobs) - 1


def test_sets_of_the_night_are_too_young_to_be_pruned(night: Night) -> None:
    for by_hand in (False, True):
        runner = night.run("prune.yml", {"store": str(night.store), "prune": by_hand})
        job = runner.jobs["prune.yml/prune"]
        assert job.result == "success" and "0 sets would go" in job.said("what would go")
        outcomes = {name: outcome for name, outcome, _ in job.steps}
        assert outcomes["prune"] == ("success" if by_hand else "skipped")


def test_a_set_is_tested_again_by_hand_and_promoted_in_the_morning(night: Night) -> None:
    """Gates of sets that wait for a machine are asked, also in vain; what is shown and fails is told."""
    given = {"store": str(night.store), "promote": True}
    before = night.run("gates.yml", given)
    refreshed = before.jobs["gates.yml/refresh"]
    assert refreshed.result == before.result == "failure", before.jobs
    said = refreshed.said("bring channels to what is known, by the policy that each keeps")
    assert "shown, and something failed since: " in said and f"(nightly of {FAMILIES[1]})" in said
    assert before.jobs["gates.yml/validate"].result == "skipped"
    gate = before.jobs["gates.yml/gate[0]/gate"].said("gate")
    assert "FAIL  smoke on gfx942  no evidence that the smoke tests pass" in gate
    (matrix,) = json.loads(before.jobs["gates.yml/open"].outputs["sets"])["include"]
    chosen = night.ran("set[0]/stage").outputs["set"]
    assert matrix == {"set": chosen, "family": FAMILIES[0]}, "what is shown is not asked for again"
    assert before.jobs["gates.yml/gate[0]/promote"].result == "skipped"

    machine = "somebodys-machine"
    again = {"set": chosen, "family": FAMILIES[0], "runner": machine, "store": str(night.store)}
    retest = night.run("test.yml", {**again, "pythons": night.pythons[0]}, imitated=[machine])
    assert retest.jobs["test.yml/rows[0]/results[0]"].result == "success", retest.jobs
    assert {entry.host.kind for entry in read_evidence(night.store, FAMILIES[0]) if entry.gfx} == {machine}

    nobody = night.run("test.yml", {**again, "family": "gfx900"})
    assert nobody.jobs["test.yml/rows"].result == "skipped" and nobody.result == "failure"
    assert "no runner has such a GPU" in nobody.jobs["test.yml/set"].said("matrix")

    after = night.run("gates.yml", given)
    assert after.jobs["gates.yml/gate[0]/promote"].result == "success"
    assert list((night.store / "v2").glob(f"{FAMILIES[0]}/**/torch-*.whl"))
    assert night.run("gates.yml", given).jobs["gates.yml/gate"].result == "skipped", "no set is open"


def test_the_store_of_the_night_is_looked_at_and_whole(night: Night) -> None:
    """Every morning; every week all bytes are read."""
    job = night.others[-1].jobs["gates.yml/store"]
    assert job.result == "success" and "no damage; 3 sets" in job.said("look at the store again")
    runner = night.run("store.yml", {"store": str(night.store)})
    assert runner.result == "success"
    assert "of wheels read" in runner.jobs["store.yml/hash"].said("read every wheel again")
    pruned = night.run("prune.yml", {"store": str(night.store), "prune": True})
    assert pruned.result == "success", pruned.jobs


def test_a_fork_without_a_store_stays_green(night: Night, history: History) -> None:
    about = {"event": {"before": history.base}, "sha": history.base}
    for name, event in (("nightly.yml", "schedule"), ("gates.yml", "schedule"), ("postsubmit.yml", "push")):
        runner = night.run(name, event=event, about=about, store="", history=history.folder)
        assert runner.result == "success", runner.jobs
        results = {place: ran.result for place, ran in runner.jobs.items()}
        assert results.pop(f"{name}/plan") == "success" and {*results.values()} == {"skipped"}
        assert "ROCM_WHEELS_STORE" in runner.jobs[f"{name}/plan"].said("what the repository has")


# what cannot succeed without a GPU, and what no run here gets to because of that
_SUITE = "test-suite.yml"
NOT_HERE = {
    (
        "release-set.yml",
        "stage",
        "split into host and device wheels",
    ): "test_build_packaging runs `set package`",
    ("release-set.yml", "stage", "put ROCm into torch"): "as the one before",
    (
        "test-smoke.yml",
        "smoke",
        "whether torch starts, and sees a GPU",
    ): "no family that asks for it has machines",
    ("test-smoke.yml", "smoke", "smoke tests"): "ran, and said that there is no GPU",
    ("evidence.yml", "add", "write what is attested"): "without a GPU there are no results to attest",
    ("evidence.yml", "add", "write it down, attested"): "as the one before",
    (_SUITE, "tests", "install from the index of the set"): "as that of the smoke tests",
    (_SUITE, "tests", "what the tests of its commit need"): "test_torch_tests_run does",
    (_SUITE, "tests", "install that"): "installs what PyPI has for torch's own CI",
    (_SUITE, "tests", "torch's own tests"): "as the one before: no GPU",
    **{
        (name, job, "long paths"): "are those of Windows"
        for name, job in (
            *(("build-line.yml", job) for job in ("sources", "shared", "first", "others", "companions")),
            *(("test-smoke.yml", "smoke"), ("test-suite.yml", "tests")),
        )
    },
    (
        "gates.yml",
        "refresh",
        "bring channels to what is known, by the policy that each keeps",
    ): "ran, and named the set that is shown and lost its GPU in tests",
    (
        "gates.yml",
        "validate",
        "install what is published",
    ): "test_validate_published runs it; nothing is published here",
    ("real.yml", "chain", "the chain"): "takes root, 30 GB and half an hour",
    ("real.yml", "exhaustive", "every kill point, a whole night"): "is what the suite takes samples of",
}


def test_every_command_of_every_workflow_ran(night: Night) -> None:
    """And succeeded. The last of this file: what the runs before it did counts."""
    ran = night.runner.lines.union(*(one.lines for one in night.others))
    steps = [
        (path.name, key, step)
        for path in sorted((CLONE / ".github" / "workflows").glob("*.yml"))
        for key, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
        for step in job.get("steps", ())
    ]
    for path in (CLONE / ".github" / "actions").glob("*/action.yml"):
        made = yaml.safe_load(path.read_text(encoding="utf-8"))
        steps += [(path.parent.name, "", step) for step in made["runs"]["steps"]]
    steps = [(file, key, step) for file, key, step in steps if "run" in step]
    left = [(file, key, step["name"]) for file, key, step in steps if (file, key, step["run"]) not in ran]
    assert sorted(left) == sorted(NOT_HERE)
