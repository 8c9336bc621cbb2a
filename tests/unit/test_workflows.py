# ruff: noqa: E501 - tables: one row, one line
"""The workflows of GitHub: what every one of them keeps to, and what is refused."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from workflow_rules import FOLDER, find_faults, load_workflows

from rocm_wheels.models import get_index, load_ci_table

CLONE = Path(__file__).resolve().parents[2]
TABLE = load_ci_table()
WORKFLOWS = load_workflows()


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            yield from ((f"{name} {key}", step) for step in job.get("steps", ()))


def test_every_step_is_one_command_and_no_expression_is_in_it() -> None:
    found = [(where, step["run"]) for where, step in steps() if "run" in step]
    assert len(found) > 30
    for where, command in found:
        assert "${{" not in command and "\n" not in command, where
        assert re.match(r"(rocm-wheels|python3 build_tools/\w+\.py|bash (\.ci|tests/real)/run)\b", command), (
            where
        )
        bare = re.sub(r'"\$[A-Z_]+"', "", command)
        assert not set(bare) & set("$`;&|<(){}'\""), (where, command)


def test_every_action_is_pinned_by_one_commit_that_its_comment_names() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(FOLDER.glob("*.yml")):
        text = path.read_text(encoding="utf-8")
        for action, sha, version in re.findall(r"uses: ([\w./-]+)@(\S+) # (\S+)", text):
            pins.setdefault("/".join(action.split("/")[:2]), set()).add((sha, version))
        assert text.count("uses: ") == len(re.findall(r"uses: (\.|[\w./-]+@[0-9a-f]{40} # v\d)", text)), path
    assert len(pins) > 5 and {name for name, versions in pins.items() if len(versions) > 1} == set()


def test_choices_in_the_files_are_those_of_the_tables() -> None:
    promote = WORKFLOWS["promote.yml"]["on"]["workflow_dispatch"]["inputs"]
    assert promote["family"]["options"] == [*TABLE.all_families, "multi-arch"]
    pythons = {python for trigger in TABLE.triggers.values() for python in trigger.pythons}
    own_tests = WORKFLOWS["ci.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(own_tests) == {python for python in pythons if not python.endswith("t")}


def test_jobs_have_limits_and_say_what_they_may() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {}, name
        for key, job in workflow["jobs"].items():
            assert "permissions" in job and ("uses" in job or "timeout-minutes" in job), (name, key)


def test_only_jobs_that_write_to_the_store_may_ask_for_a_token_and_none_runs_what_was_built() -> None:
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            runs = " ".join(step.get("run", "") for step in job.get("steps", ()))
            stores = '"$STORE"' in runs
            if "steps" in job:
                assert ("id-token" in job["permissions"]) == stores, (name, key)
            if stores:
                assert not re.search(r"build_prod_wheels|smoke_tests|rocm-wheels (install|checkout)", runs)
    text = (FOLDER / "presubmit.yml").read_text(encoding="utf-8").partition("\nname:")[2]
    assert "id-token" not in text and "secrets" not in text and "store" not in text


# what a job does with the store, the one role that it has for that, and its environment, by which it gets it
ROLES = {
    "set stage": ("STAGING", "staging"),
    "set evidence add": ("EVIDENCE", "evidence"),
    "set gate": ("READ", None),
    "store fsck": ("READ", None),
    "set promote": ("RELEASE", "${{ inputs.channel }}"),
    "set refresh": ("RELEASE", "nightly"),
    "set dashboard": ("RELEASE", "nightly"),
}


def test_a_job_has_the_role_of_what_it_does_and_no_other() -> None:
    done = set()
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            runs = [step["run"] for step in job.get("steps", ()) if '"$STORE"' in step.get("run", "")]
            asked = [step["with"]["role-to-assume"] for step in job.get("steps", ())
                     if step.get("uses", "").startswith("aws-actions/")]  # fmt: skip
            if not runs:
                assert not asked, (name, key)
                continue
            ((role, environment),) = {
                ROLES[action] for action in ROLES for run in runs if run.startswith(f"rocm-wheels {action} ")
            }
            assert asked == [f"${{{{ vars.ROCM_WHEELS_{role}_ROLE }}}}"], (name, key)
            assert job.get("environment") == environment, (name, key)
            done.add(role)
    assert done == {role for role, _ in ROLES.values()}


def test_jobs_that_add_results_can_attest_them_and_no_job_may_without_need() -> None:
    """The bundle is that of the step before; of what was written, nothing is added twice."""
    adding = set()
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            if "steps" not in job:
                continue
            attests = [step for step in job["steps"] if "/attest-build-provenance@" in step.get("uses", "")]
            assert ("attestations" in job["permissions"]) == bool(attests), (name, key)
            adds = [step for step in job["steps"] if " set evidence add " in step.get("run", "")]
            if not adds:
                continue
            adding.add(key)
            (attest,), with_bundle = attests, adds.pop()
            assert attest["with"] == {"subject-path": "payloads/*.json"} and attest["id"] == "attestation"
            assert with_bundle["run"].endswith(' --from payloads --attestation "$BUNDLE"'), key
            assert with_bundle["env"]["BUNDLE"] == "${{ steps.attestation.outputs.bundle-path }}"
            assert "steps.attestation.outcome == 'success'" in with_bundle["if"]
            for plain, written in zip(adds[::2], adds[1::2], strict=True):
                assert written["run"] == f"{plain['run']} --write-payloads payloads", key
                assert plain["if"].endswith("&& vars.ROCM_WHEELS_EVIDENCE_SIGNED != 'true' }}"), key
                assert written["if"].endswith("&& vars.ROCM_WHEELS_EVIDENCE_SIGNED == 'true' }}"), key
                assert f"steps.{written['id']}.outcome == 'success'" in attest["if"], key
    assert adding == {"checks", "results"}


def test_forks_read_the_cache_and_only_trusted_code_writes_it() -> None:
    saves = [(where, step) for where, step in steps() if "/cache/save@" in step.get("uses", "")]
    assert [where for where, _ in saves] == ["build-line.yml first"]
    assert "inputs.save_cache" in saves[0][1]["if"]
    assert not [where for where, step in steps() if re.match(r"actions/cache@", step.get("uses", ""))]
    calls = {name: job["with"]["save_cache"] for name, made in WORKFLOWS.items() for job in made["jobs"].values()
             if "save_cache" in job.get("with", {})}  # fmt: skip
    assert [name for name, said in calls.items() if said is True] == ["nightly.yml"]


def test_a_pull_request_from_a_fork_needs_no_variable() -> None:
    """GitHub hands it none; only an image may be missing then: the build is on the machine itself."""
    index = get_index(TABLE.rocm_index).url
    given = WORKFLOWS["presubmit.yml"]["jobs"]["build"]["with"]
    assert given["rocm_index"] == f"${{{{ vars.ROCM_WHEELS_ROCM_INDEX || '{index}' }}}}"
    assert {key for key, said in given.items() if "vars." in str(said)} == {"rocm_index", "build_image"}
    assert re.fullmatch(r".*&& vars\.\w+ \|\| '' }}", given["build_image"])


def test_nobody_waits_in_vain_and_no_push_is_dropped() -> None:
    """A group lets one wait, and cancels it when another comes, unless `queue` says otherwise."""
    made = WORKFLOWS
    promoting = [made["promote.yml"], made["release-set.yml"]["jobs"]["promote"]]
    groups = {one["concurrency"]["group"] for one in promoting}
    assert groups == {"promote-${{ inputs.family }}"}
    assert all(one["concurrency"]["queue"] == "max" for one in promoting)
    for name in ("postsubmit.yml", "ci.yml"):
        assert "github.sha" in made[name]["concurrency"]["group"], name
    assert made["release.yml"]["on"]["workflow_dispatch"]["inputs"]["channel"]["options"] == [
        "prerelease",
        "stable",
    ]


def test_a_push_is_staged_and_tested_and_judged_by_none() -> None:
    given = WORKFLOWS["postsubmit.yml"]["jobs"]["line"]["with"]
    assert given["channel"] == "" and given["promote"] is False and given["trigger"] == "postsubmit"
    assert WORKFLOWS["release-set.yml"]["jobs"]["gate"]["if"].endswith("inputs.channel != '' }}")


def test_machines_that_stay_keep_nothing_of_what_they_test() -> None:
    """A Python of theirs is that of all jobs, and downloads are of a set that is tested once."""
    jobs = WORKFLOWS["release-set.yml"]["jobs"]
    for key in ("test", "tests"):
        (install,) = (step for step in jobs[key]["steps"] if "rocm-wheels install" in step.get("run", ""))
        assert " --venv tested --python " in install["run"] and " --no-cache" in install["run"], key
        (tests,) = (step for step in jobs[key]["steps"] if "build_tools/run_pytorch" in step.get("run", ""))
        assert " --python tested " in tests["run"] and tests["timeout-minutes"].startswith("${{ matrix.")


def test_a_family_is_staged_though_a_cell_of_another_was_not_built() -> None:
    """A condition without a status function has success() before it: every job below a call says its own."""
    jobs = WORKFLOWS["release-set.yml"]["jobs"]
    assert [key for key, job in jobs.items() if "!cancelled()" not in job["if"]] == []


def test_containers_are_root_and_their_python_is_that_of_the_row() -> None:
    """https://github.com/actions/checkout/issues/956: the workspace is the runner's, whatever the image says."""
    for name, made in WORKFLOWS.items():
        for key, job in made["jobs"].items():
            if "container" in job:
                assert "--user=0:0" in job["container"]["options"].split(), (name, key)
    tests = [job for job in WORKFLOWS["release-set.yml"]["jobs"].values() if "container" in job]
    for step in (step for job in tests for step in job["steps"] if step.get("id") == "python"):
        assert "if" not in step and step["with"]["python-version"] == "${{ matrix.python }}"


def test_variables_that_a_repository_must_set() -> None:
    program = CLONE / "build_tools" / "require_variables.py"

    def require(**env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(program), "A", "B"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert require(A="x", B="y").returncode == 0
    neither, blank = require(), require(A="x", B=" ")
    assert neither.returncode == blank.returncode == 2
    assert "A and B" in neither.stderr and "set B" in blank.stderr and "variables" in blank.stderr


def test_no_source_is_of_a_branch_and_artifacts_have_a_name_a_cell() -> None:
    for where, step in steps():
        if "rocm-wheels checkout" in step.get("run", "") or "build_prod_wheels" in step.get("run", ""):
            assert "--lock sources.lock.json" in step["run"], where
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False and "ref" not in step["with"]
        if step.get("uses", "").startswith("actions/upload-artifact@"):
            job = WORKFLOWS[where.split()[0]]["jobs"][where.split()[1]]
            name = step["with"]["name"]
            rows = job.get("strategy", {}).get("matrix", "")
            if name == "pages":  # of a whole night, once
                assert where == "morning.yml page" and not rows
                continue
            one_row = str(rows) in {"", "${{ fromJSON(needs.lock.outputs.line) }}"}
            wanted = ("inputs.line", "inputs.platform") if one_row else ("matrix.",)
            assert all(word in name for word in wanted), (where, name)


Change = Callable[[dict[str, Any]], object]
BROKEN: list[tuple[Change, str]] = [
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock ${{ inputs.line }}"), "an expression in a script"),
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock; rm -rf x"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock make --line $LINE"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock").update(run="make all"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock")["env"].update(MORE="1"), "`env` and the command do not agree (MORE)"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].pop("timeout-minutes"), "lock: no `timeout-minutes`"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].update({"timeout-minutes": 361}), "361 minutes on a machine of GitHub"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].pop("permissions"), "lock: no `permissions`"),
    (lambda w: w["build-line.yml"].update(permissions={"contents": "write"}), "must be {}: each job has its own"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][0].update(uses="actions/checkout@v4"), "not pinned"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][0].pop("with"), "persist-credentials: false"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][-1]["with"].pop("overwrite"), "overwrite: true"),
    (lambda w: w["release-line.yml"]["jobs"]["set"].update({"if": "${{ needs.build.outputs.x }}"}), "outputs of build, which is a call"),
    (lambda w: given_of(w).update(more={"required": False}), "nothing uses the input more"),
    (lambda w: given_of(w).pop("line"), "there is no input line"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"]["with"].pop("line"), "build-line.yml needs the input line"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"]["with"].update(lines="2.13"), "has no input lines"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"].update(uses="./.github/workflows/x.yml"), "is no workflow of ours"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].update(permissions={"id-token": "write"}),
     "needs id-token: write, which the caller does not have"),
    (lambda w: w["ci.yml"]["jobs"]["test"]["strategy"]["matrix"].update(more=list(range(999))), "jobs of a matrix, and"),
    (lambda w: w["release-set.yml"]["jobs"].update(again=w["nightly.yml"]["jobs"]["line"]), "levels deep"),
]  # fmt: skip


def step_of(made: dict[str, Any], job: str) -> dict[str, Any]:
    return next(step for step in made["build-line.yml"]["jobs"][job]["steps"] if step.get("name") == "lock")


def given_of(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["build-line.yml"]["on"]["workflow_call"]["inputs"]
    return found


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_what_breaks_a_rule_is_reported(change: Change, message: str) -> None:
    workflows = copy.deepcopy(WORKFLOWS)
    assert find_faults(workflows, TABLE.limits) == []
    change(workflows)
    assert message in "\n".join(find_faults(workflows, TABLE.limits))
