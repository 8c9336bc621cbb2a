# ruff: noqa: E501 - tables: one row, one line
"""The workflows of GitHub: what every one of them keeps to, and what is refused."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_lines import find_faults as find_line_faults
from workflow_rules import FOLDER, find_faults, inline_actions, load_actions, load_workflows

from rocm_wheels.ci import matrix_report
from rocm_wheels.ci.matrix import MatrixSelection, plan_matrix
from rocm_wheels.models import ci, package_indexes

CLONE = Path(__file__).resolve().parents[2]
TABLE = ci.load_ci_table()
FILES, ACTIONS = load_workflows(), load_actions()
WORKFLOWS = inline_actions(FILES, ACTIONS)


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            yield from ((f"{name} {key}", step) for step in job.get("steps", ()))


def test_every_step_is_one_command_and_no_expression_is_in_it() -> None:
    found = [(where, step["run"]) for where, step in steps() if "run" in step]
    assert len(found) > 30
    for where, command in found:
        assert "${{" not in command and "\n" not in command, where
        assert re.match(
            r"(rocm-wheels|python3 build_tools/\w+\.py|uv pip install|bash (\.ci|tests/real)/run|git config)\b",
            command,
        ), where
        bare = re.sub(r'"\$[A-Z_]+"', "", command)
        assert not set(bare) & set("$`;&|<(){}'\""), (where, command)


def test_every_line_of_a_workflow_and_of_the_actions_is_one_that_its_command_takes() -> None:
    """Of those, too, that no run here gets to: on Windows, on a GPU, in another repository."""
    public = yaml.safe_load((CLONE / "action.yml").read_text(encoding="utf-8"))
    of_actions = [step for action in (public, *ACTIONS.values()) for step in action["runs"]["steps"]]
    of_actions = [step for step in of_actions if "run" in step]
    runs = [(where, step["run"]) for where, step in steps() if "run" in step]
    runs += [(f"action.yml {step['name']}", step["run"]) for step in of_actions]
    for step in of_actions:
        used, declared = set(re.findall(r"\$([A-Z_]+)", step["run"])), set(step.get("env", {}))
        assert used - {"GITHUB_ACTION_PATH"} == {
            name for name in declared if not name.startswith("ROCM_WHEELS_")
        }
        assert "${{" not in step["run"] and step["shell"] == "bash"
    assert len(runs) > 40
    assert [(where, fault) for where, text in runs for fault in find_line_faults(text)] == []


def test_every_action_is_pinned_by_one_commit_that_its_comment_names() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    updates = yaml.safe_load((FOLDER.parent / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert updates[0]["directories"] == ["/", *(name.removeprefix(".") for name in ACTIONS)]
    for path in sorted([*FOLDER.glob("*.yml"), *FOLDER.parent.glob("actions/*/action.yml")]):
        text = path.read_text(encoding="utf-8")
        for action, sha, version in re.findall(r"uses: ([\w./-]+)@(\S+) # (\S+)", text):
            pins.setdefault("/".join(action.split("/")[:2]), set()).add((sha, version))
        assert text.count("uses: ") == len(re.findall(r"uses: (\.|[\w./-]+@[0-9a-f]{40} # v\d)", text)), path
    assert len(pins) > 5 and {name for name, versions in pins.items() if len(versions) > 1} == set()


TESTING = (("test-smoke.yml", "smoke"), ("test-suite.yml", "tests"))  # jobs on machines with GPUs


def test_choices_in_the_files_are_those_of_the_tables() -> None:
    promote = WORKFLOWS["promote.yml"]["on"]["workflow_dispatch"]["inputs"]
    assert promote["family"]["options"] == [*TABLE.all_families, "multi-arch"]
    pythons = {python for trigger in TABLE.triggers.values() for python in trigger.pythons}
    own_tests = WORKFLOWS["ci.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(own_tests) == {python for python in pythons if not python.endswith("t")}


def test_jobs_have_limits_and_say_what_they_may() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow.get("permissions") == (None if name == "build-line.yml" else {}), name
        for key, job in workflow["jobs"].items():
            assert "uses" in job or "timeout-minutes" in job, (name, key)
            builds = any(
                "build_prod_wheels.py build " in step.get("run", "") for step in job.get("steps", ())
            )
            assert ("permissions" in job) != builds, (name, key)


def test_only_jobs_that_write_to_the_store_may_ask_for_a_token_and_none_runs_what_was_built() -> None:
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            runs = " ".join(step.get("run", "") for step in job.get("steps", ()))
            stores = '"$STORE"' in runs
            if "steps" in job:
                assert ("id-token" in job.get("permissions", {})) == stores, (name, key)
            if stores:
                assert not re.search(r"build_prod_wheels|smoke_tests|rocm-wheels (install|checkout)", runs)
    for name in ("presubmit.yml", "build.yml", "build-line.yml", "test-smoke.yml"):
        text = (FOLDER / name).read_text(encoding="utf-8").partition("\nname:")[2]
        assert "id-token" not in text and "secrets" not in text and " store" not in text, name


def test_jobs_with_tokens_install_what_stores_need_and_no_tests() -> None:
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            setup = [
                step["run"] for step in job.get("steps", ()) if "quickstart.py setup" in step.get("run", "")
            ]
            if "id-token" in job.get("permissions", ()) and "steps" in job:
                assert setup == ["python3 build_tools/quickstart.py setup --store --github-path"], (name, key)
            assert not any("--tests" in command for command in setup), (name, key)


# what a job does with the store, the one role that it has for that, and its environment, by which it gets it
ROLES = {
    "set stage": ("STAGING", "staging"),
    "set evidence add": ("EVIDENCE", "evidence"),
    "set gate": ("READ", None),
    "set list": ("READ", None),
    "set show": ("READ", None),
    "store fsck": ("READ", None),
    "store prune": ("PRUNE", "prune"),
    "set promote": ("RELEASE", "${{ inputs.channel }}"),
    "set refresh": ("RELEASE", "nightly"),
}


def test_a_job_has_the_role_of_what_it_does_and_no_other() -> None:
    done = set()
    for name, workflow in WORKFLOWS.items():
        for key, job in workflow["jobs"].items():
            runs = [step["run"] for step in job.get("steps", ()) if '"$STORE"' in step.get("run", "")]
            asked = [step["with"]["role-to-assume"] for step in job.get("steps", ())
                     if step.get("uses", "").startswith("aws-actions/")]  # fmt: skip
            if not runs:
                assert asked in ([], ["${{ vars.ROCM_WHEELS_CACHE_ROLE }}"]), (name, key)
                assert not asked or name == "build-line.yml", (name, key)
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
            assert ("attestations" in job.get("permissions", {})) == bool(attests), (name, key)
            adds = [step for step in job["steps"] if " set evidence add " in step.get("run", "")]
            if not adds:
                continue
            adding.add(f"{name} {key}")
            (attest,), with_bundle = attests, adds.pop()
            assert attest["with"] == {"subject-path": "payloads/*.json"} and attest["id"] == "attestation"
            assert with_bundle["run"].endswith(' --from payloads --attestation "$BUNDLE"'), key
            assert with_bundle["env"]["BUNDLE"] == "${{ steps.attestation.outputs.bundle-path }}"
            assert "steps.attestation.outcome == 'success'" in with_bundle["if"]
            for plain, written in zip(adds[::2], adds[1::2], strict=True):
                assert written["run"] == f"{plain['run']} --write-payloads payloads", key
                assert plain["if"].endswith("vars.ROCM_WHEELS_EVIDENCE_SIGNED != 'true' }}"), key
                assert written["if"].endswith("vars.ROCM_WHEELS_EVIDENCE_SIGNED == 'true' }}"), key
                assert f"steps.{written['id']}.outcome == 'success'" in attest["if"], key
    assert adding == {"release-set.yml checks", "evidence.yml add"}


def test_forks_read_the_cache_and_only_trusted_code_writes_it() -> None:
    saves = {where: step["if"] for where, step in steps() if "/cache/save@" in step.get("uses", "")}
    assert set(saves) == {"build-line.yml sources", "build-line.yml first", "evidence.yml add"}
    assert all("inputs.save_cache" in saves[f"build-line.yml {job}"] for job in ("sources", "first"))
    assert "github.ref_name == github.event.repository.default_branch" in saves["evidence.yml add"]
    assert not [where for where, step in steps() if re.match(r"actions/cache@", step.get("uses", ""))]
    calls = {name: job["with"]["save_cache"] for name, made in WORKFLOWS.items() for job in made["jobs"].values()
             if "save_cache" in job.get("with", {})}  # fmt: skip
    assert [name for name, said in calls.items() if said is True] == ["nightly.yml"]


def test_what_may_not_fill_the_bucket_of_the_cache_has_no_credentials_for_it() -> None:
    """A build that is not trusted to save reads without them: no code of a pull request gets a token."""
    roles = [(where, step) for where, step in steps() if step.get("uses", "").startswith("aws-actions/")
             and where.startswith("build-line.yml")]  # fmt: skip
    builds = [
        (where, step) for where, step in steps() if "build_prod_wheels.py build " in step.get("run", "")
    ]
    assert [where for where, _ in roles] == [where for where, _ in builds] and len(builds) == 4
    for _, step in roles:
        assert step["if"] == "${{ vars.ROCM_WHEELS_CACHE_BUCKET != '' && inputs.save_cache }}"
    for where, step in builds:
        assert step["env"]["SCCACHE_S3_NO_CREDENTIALS"] == "${{ !inputs.save_cache }}", where
        assert ' --compiler-cache "$CACHE" ' in step["run"], where
    for where, step in steps():
        if step.get("uses", "").startswith("actions/cache/") and step["with"]["path"] == ".ccache":
            assert "vars.ROCM_WHEELS_CACHE_BUCKET == ''" in step["if"], where
    call = WORKFLOWS["build.yml"]["jobs"]["build"]
    assert call["permissions"] == {"contents": "read"} and not call["with"]["save_cache"]
    assert WORKFLOWS["presubmit.yml"]["jobs"]["build"]["permissions"] == {"contents": "read"}


def test_a_pull_request_from_a_fork_needs_no_variable() -> None:
    """GitHub hands it none; only an image may be missing then: the build is on the machine itself."""
    index = package_indexes.get_index(TABLE.rocm_index).url
    assert not [
        key for key, said in WORKFLOWS["presubmit.yml"]["jobs"]["build"]["with"].items() if "vars." in said
    ]
    for key, images in (("build", "build_image"), ("smoke", "test_image")):
        given = WORKFLOWS["build.yml"]["jobs"][key]["with"]
        usual = f"${{{{ inputs.rocm_index || vars.ROCM_WHEELS_ROCM_INDEX || '{index}' }}}}"
        assert given["rocm_index"] == usual
        assert {name for name, said in given.items() if "vars." in str(said)} == {"rocm_index", images}
        assert re.fullmatch(r".*&& vars\.\w+ \|\| '' }}", given[images])


def test_nobody_waits_in_vain_and_no_push_is_dropped() -> None:
    """A group lets one wait, and cancels it when another comes, unless `queue` says otherwise.

    Nights have none: one in which a label has no machine does not end for a day.
    """
    promoting = WORKFLOWS["gate.yml"]["jobs"]["promote"]["concurrency"]
    assert promoting["group"] == "promote-${{ inputs.family }}" and promoting["queue"] == "max"
    assert "concurrency" not in WORKFLOWS["nightly.yml"]
    for name in ("postsubmit.yml", "ci.yml"):
        assert "github.sha" in WORKFLOWS[name]["concurrency"]["group"], name
    assert WORKFLOWS["release.yml"]["on"]["workflow_dispatch"]["inputs"]["channel"]["options"] == [
        "prerelease",
        "stable",
    ]


def test_no_job_of_a_set_but_its_gate_waits_for_another_row() -> None:
    """Results of a row, or of a suite, are added when they are there, whatever machine is gone.

    A gate that waits for such a machine is asked in the morning by gates.yml, which waits for none.
    """
    release = WORKFLOWS["release-set.yml"]["jobs"]
    assert [key for key, job in release.items() if "rows" in job.get("needs", ())] == ["gate"]
    row = WORKFLOWS["test-row.yml"]["jobs"]
    assert row["results"]["needs"] == ["plan", "smoke"]
    assert [key for key, job in row.items() if "suites" in job.get("needs", ())] == []


def test_a_night_that_somebody_begins_promotes_when_asked_to() -> None:
    assert WORKFLOWS["nightly.yml"]["on"]["workflow_dispatch"]["inputs"]["promote"]["default"] is False
    for name in ("nightly.yml", "gates.yml"):
        (check,) = (
            step for step in WORKFLOWS[name]["jobs"]["plan"]["steps"] if step.get("id") == "repository"
        )
        assert ' --branch "$BRANCH" --default-branch "$DEFAULT_BRANCH"' in check["run"], name
    given = WORKFLOWS["nightly.yml"]["jobs"]["line"]["with"]
    promotes = given["promote"].removeprefix("${{ ").removesuffix(" }}")
    # what a channel may get later, gates.yml knows by its name
    assert given["local_version"].startswith(f"${{{{ {promotes} && 'nightly' || 'dispatch' }}}}")


def test_a_push_is_staged_and_tested_and_judged_by_none() -> None:
    given = WORKFLOWS["postsubmit.yml"]["jobs"]["line"]["with"]
    assert given["channel"] == "" and given["promote"] is False and given["trigger"] == "postsubmit"
    assert WORKFLOWS["release-set.yml"]["jobs"]["gate"]["if"].endswith("inputs.channel != '' }}")


def test_machines_that_stay_keep_nothing_of_what_they_test() -> None:
    """A Python of theirs is that of all jobs; what is downloaded is in the workspace, and goes with it."""
    for name, key in TESTING:
        job = WORKFLOWS[name]["jobs"][key]
        (install,) = (step for step in job["steps"] if "rocm-wheels install" in step.get("run", ""))
        assert " --venv tested --python " in install["run"], key
        assert install["run"].endswith(" --no-cache --keep-wheels installed-wheels"), key
        (tests,) = (step for step in job["steps"] if " --output-dir " in step.get("run", ""))
        assert " --python tested --wheels installed-wheels " in tests["run"]
        assert all(" --no-cache " in step["run"] for step in job["steps"] if "uv pip" in step.get("run", ""))
        assert tests["timeout-minutes"].startswith("${{ matrix.")


def test_a_family_is_staged_though_a_cell_of_another_was_not_built() -> None:
    """A condition without a status function has success() before it: every job below a call says its own."""
    jobs = WORKFLOWS["release-set.yml"]["jobs"]
    assert [key for key, job in jobs.items() if "!cancelled()" not in job["if"]] == []


def test_containers_are_root_and_their_python_is_that_of_the_row() -> None:
    """https://github.com/actions/checkout/issues/956: the workspace is the runner's, whatever the image says."""
    matrix = plan_matrix(TABLE, MatrixSelection("release", platforms=("linux",), day=date(2026, 11, 24)))
    rows = [
        row
        for kind in ("tested", "torch_tested")
        for row in matrix_report.make_rows(matrix.built, TABLE, kind)
    ]
    assert rows and all("--user=0:0" in row["container_options"].split() for row in rows)
    for name, made in WORKFLOWS.items():
        for key, job in made["jobs"].items():
            if "container" in job and (name, key) not in TESTING:
                assert "--user=0:0" in job["container"]["options"].split(), (name, key)
    for name, key in TESTING:
        job = WORKFLOWS[name]["jobs"][key]
        assert job["container"]["options"] == "${{ matrix.container_options }}"
        (python,) = (step for step in job["steps"] if step.get("id") == "python")
        assert python["if"] == "${{ matrix.python != '' }}"
        assert python["with"]["python-version"] == "${{ matrix.python }}"


def test_what_is_built_is_built_in_the_image_that_the_data_name() -> None:
    """The digest is in the table alone; wheels must be fit for its system, on no machine by oversight."""
    jobs = WORKFLOWS["build-line.yml"]["jobs"]
    resolves = [step for step in jobs["lock"]["steps"] if "container resolve" in step.get("run", "")]
    assert [step["env"]["IMAGE"] for step in resolves] == ["${{ inputs.build_image }}"]
    for where, step in steps():
        if "build_prod_wheels.py build " in step.get("run", ""):
            job = WORKFLOWS[where.split()[0]]["jobs"][where.split()[1]]
            assert job["container"]["image"] == "${{ needs.lock.outputs.image }}", where
            assert ' --plat "$PLAT" ' in step["run"], where
            assert step["env"]["PLAT"] == "${{ needs.lock.outputs.plat }}", where
    for path in FOLDER.glob("*.yml"):
        assert "@sha256:" not in path.read_text(encoding="utf-8"), path


def test_paths_of_checkouts_may_be_long_on_windows() -> None:
    """Before the first checkout: torch's own trees are deeper than the 260 characters of Windows."""
    for key, job in WORKFLOWS["build-line.yml"]["jobs"].items():
        if "container" in job:
            first, second = job["steps"][:2]
            assert first["run"] == "git config --system core.longpaths true", key
            assert first["if"] == "${{ inputs.platform == 'windows' }}", key
            assert second["uses"].startswith("actions/checkout@"), key


def check_repository(tmp_path: Path, *words: str, store: str = "") -> tuple[int, dict[str, str], str]:
    """Run the check; return its exit code, the outputs of its step, and the summary of the run."""
    output, page = tmp_path / "output", tmp_path / "summary"
    output.write_text("")
    page.write_text("")
    env = {
        **os.environ,
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(page),
        "ROCM_WHEELS_STORE": store,
    }
    command = [sys.executable, str(CLONE / "build_tools" / "check_repository.py"), *words]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return ended.returncode, outputs, page.read_text()


@pytest.mark.parametrize(
    ("words", "store", "code", "outputs"),
    [
        ("--event push", "s3://a", 0, {"store": "s3://a", "promote": "false"}),
        ("--event schedule", " ", 0, {"store": "", "promote": "true"}),
        ("--event workflow_dispatch", "", 2, {}),
        ("--event workflow_dispatch --promote true --branch main --default-branch main", "a", 0,
         {"store": "a", "promote": "true"}),
        ("--event workflow_dispatch --promote true --branch fix --default-branch main", "a", 2, {}),
        ("--event workflow_dispatch --promote false --branch fix --default-branch main", "a", 0,
         {"store": "a", "promote": "false"}),
    ],
)  # fmt: skip
def test_a_repository_without_a_store_stays_green_and_only_the_default_branch_promotes(
    words: str, store: str, code: int, outputs: dict[str, str], tmp_path: Path
) -> None:
    ended, found, page = check_repository(tmp_path, *words.split(), store=store)
    assert (ended, found) == (code, outputs)
    assert ("ROCM_WHEELS_STORE" in page) == (code == 0 and not store.strip())


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
            one_row = str(rows) in {"", "${{ fromJSON(needs.lock.outputs.line) }}"}
            wanted = ("inputs.line", "inputs.platform") if one_row else ("matrix.",)
            if where == "test-suite.yml earlier":  # of all shards of a suite of a row
                wanted = ("inputs.name", "inputs.suite")
            assert all(word in name for word in wanted), (where, name)


def test_sets_are_pruned_only_by_hand() -> None:
    dry, real = (
        step
        for step in WORKFLOWS["prune.yml"]["jobs"]["prune"]["steps"]
        if "store prune" in step.get("run", "")
    )
    assert dry["run"].endswith(" --dry-run") and "if" not in dry
    assert real["if"] == "${{ inputs.prune }}" and "--dry-run" not in real["run"]
    assert WORKFLOWS["prune.yml"]["on"]["workflow_dispatch"]["inputs"]["prune"]["default"] is False


def test_artifacts_are_kept_no_longer_than_a_failed_job_may_be_run_again() -> None:
    """For as many days whatever job makes them, by what their names begin with."""
    days: dict[str, set[int]] = {}
    for _, step in steps():
        if "/upload-artifact@" in step.get("uses", ""):
            kind = step["with"]["name"].partition("-")[0]
            days.setdefault(kind, set()).add(step["with"]["retention-days"])
    assert len(days) > 5 and all(len(found) == 1 and found <= {2, 3} for found in days.values()), days


Change = Callable[[dict[str, Any]], object]
BROKEN: list[tuple[Change, str]] = [
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock ${{ inputs.line }}"), "an expression in a script"),
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock; rm -rf x"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock").update(run="rocm-wheels lock make --line $LINE"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock").update(run="make all"), "not one simple command of ours"),
    (lambda w: step_of(w, "lock")["env"].update(MORE="1"), "`env` and the command do not agree (MORE)"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].pop("timeout-minutes"), "lock: no `timeout-minutes`"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].update({"timeout-minutes": 361}), "361 minutes on a machine of GitHub"),
    (lambda w: w["postsubmit.yml"]["jobs"]["plan"].pop("permissions"), "plan: no `permissions`"),
    (lambda w: w["postsubmit.yml"].pop("permissions"), "must be {}: each job has its own"),
    (lambda w: w["build-line.yml"].update(permissions={"contents": "write"}), "must be {}: each job has its own"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][0].update(uses="actions/checkout@v4"), "not pinned"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][0].pop("with"), "persist-credentials: false"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][-1]["with"].pop("overwrite"), "overwrite: true"),
    (lambda w: w["release-line.yml"]["jobs"]["set"].update({"if": "${{ needs.build.outputs.x }}"}), "outputs of build, which is a call"),
    (lambda w: given_of(w).update(more={"required": False}), "nothing uses the input more"),
    (lambda w: given_of(w).pop("line"), "there is no input line"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"]["with"].pop("line"), "build.yml needs the input line"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"]["with"].update(lines="2.13"), "has no input lines"),
    (lambda w: w["presubmit.yml"]["jobs"]["build"].update(uses="./.github/workflows/x.yml"), "is no workflow of ours"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"].update(permissions={"id-token": "write"}),
     "needs id-token: write, which the caller does not have"),
    (lambda w: w["ci.yml"]["jobs"]["test"]["strategy"]["matrix"].update(more=list(range(999))), "jobs of a matrix, and"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"].pop(0), "start is not there before a checkout"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][1].update({"with": {"pyton": "3"}}), "start has no input pyton"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][1].update(uses="./.github/actions/x"), "not pinned by a commit"),
    (lambda w: w["build-line.yml"]["jobs"]["lock"]["steps"][1].update({"with": {"packages": "stores"}}), "does not set up rocm-wheels"),
    (lambda w: w["release-set.yml"]["jobs"].update(again=w["nightly.yml"]["jobs"]["line"]), "levels deep"),
]  # fmt: skip


def step_of(made: dict[str, Any], job: str) -> dict[str, Any]:
    return next(step for step in made["build-line.yml"]["jobs"][job]["steps"] if step.get("name") == "lock")


def given_of(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["build-line.yml"]["on"]["workflow_call"]["inputs"]
    return found


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_what_breaks_a_rule_is_reported(change: Change, message: str) -> None:
    workflows = copy.deepcopy(FILES)
    assert find_faults(workflows, ACTIONS, TABLE.limits) == []
    change(workflows)
    assert message in "\n".join(find_faults(workflows, ACTIONS, TABLE.limits))


def test_what_github_does_not_give_an_action_is_reported() -> None:
    actions = copy.deepcopy(ACTIONS)
    actions["./.github/actions/start"]["runs"]["steps"][-1]["with"]["aws-region"] = "${{ vars.REGION }}"
    faults = find_faults(FILES, actions, TABLE.limits)
    assert [fault.partition(": ")[2] for fault in faults] == [
        "GitHub gives an action no `vars`",
        "nothing uses the input region",
    ]
