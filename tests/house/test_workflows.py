"""The workflows of GitHub: each of their lines is a command that takes it, each name that they use is there.

GitHub itself is not here: that the files say what was meant is read, not run. Pins, tokens that stay and what
attackers look for are zizmor's (``test_workflow_lints.py``). What their lines call is run by
tests of the commands and of the scripts, on the miniature.
"""

from __future__ import annotations

import ast
import copy
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from commands import call
from commands import find_faults as find_line_faults

from rocm_wheels.ci import matrix_report
from rocm_wheels.ci.matrix import MatrixSelection, plan_matrix
from rocm_wheels.core import errors
from rocm_wheels.models import ci, package_indexes
from rocm_wheels.sources import resolve_lock

CLONE = Path(__file__).resolve().parents[2]
FOLDER = CLONE / ".github" / "workflows"
TABLE = ci.load_ci_table()
LOCAL = "./.github/workflows/"
START = "./.github/actions/start"


def load(path: Path) -> Any:
    """Read YAML 1.2 as GitHub does: `on` is a word, as all is here."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


WORKFLOWS: dict[str, Any] = {path.name: load(path) for path in sorted(FOLDER.glob("*.yml"))}
ACTIONS = {START: load(CLONE / START / "action.yml")}


def jobs(workflows: Mapping[str, Any] = WORKFLOWS) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, workflow in workflows.items():
        for key, job in workflow["jobs"].items():
            yield name, key, job


def steps(workflows: Mapping[str, Any] = WORKFLOWS) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, key, job in jobs(workflows):
        yield from ((name, key, step) for step in job.get("steps", ()))


def inputs_of(workflow: Mapping[str, Any]) -> dict[str, Any]:
    events = [event for event in workflow["on"].values() if isinstance(event, dict)]
    return {name: said for event in events for name, said in event.get("inputs", {}).items()}


# ---- each line is one command of ours, with options that it has


def test_every_step_is_one_command_that_takes_its_words_and_no_expression_is_in_it() -> None:
    """Of those, too, that run on Windows, on a GPU, in another repository."""
    public = load(CLONE / "action.yml")
    runs = [(f"{name} {key}", step) for name, key, step in steps() if "run" in step]
    for where, action in (("action.yml", public), *ACTIONS.items()):
        runs += [(where, step) for step in action["runs"]["steps"] if "run" in step]
    assert len(runs) > 40
    for where, step in runs:
        command = step["run"]
        assert "${{" not in command and "\n" not in command, where
        assert re.match(
            r"(rocm-wheels|python3 (\"\$GITHUB_ACTION_PATH/)?build_tools/\w+\.py|uv pip install"
            r"|bash (\.ci|tests/real)/run|git config --system)\b",
            command,
        ), (where, command)
        bare = re.sub(r'"\$[A-Z_]+[\w./]*"', "", command).replace("> requirements.txt", "")
        assert not set(bare) & set("$`;&|<(){}'\""), (where, command)
        used = set(re.findall(r"\$([A-Z_]+)", command)) - {"GITHUB_ACTION_PATH"}
        of_programs = ("ROCM_WHEELS_", "CCACHE_", "SCCACHE_", "UV_", "XDG_")  # which no command line names
        assert used == {name for name in step.get("env", {}) if not name.startswith(of_programs)}, (
            where,
            command,
        )
        assert find_line_faults(command) == [], (where, command)


def test_the_action_with_its_own_defaults_says_nothing_by_an_empty_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what is to be built, and that it is tested, has to be said."""
    action = load(CLONE / "action.yml")
    inputs = {name: said["default"] for name, said in action["inputs"].items()}
    inputs |= {"build": "gfx942 gfx1100", "test": "built"}
    lines: dict[str, str] = {}
    for step in action["runs"]["steps"]:
        values = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)
            for name, text in step.get("env", {}).items()
        }
        for name in (name for name in values if name.startswith("ROCM_WHEELS_")):
            monkeypatch.setenv(name, values[name])
        lines[step["name"]] = Template(step["run"]).safe_substitute(values)
    assert [fault for line in lines.values() for fault in find_line_faults(line)] == []
    requests: list[resolve_lock.LockRequest] = []

    def take(request: resolve_lock.LockRequest, **_: object) -> None:
        requests.append(request)
        raise errors.SourceError("this is not asked of GitHub here", tip="")

    monkeypatch.setattr(resolve_lock, "make_lock", take)
    call(*shlex.split(lines["lock"])[1:], code=errors.SourceError.exit_code)
    (request,) = requests
    assert (request.line, request.rocm, request.options) == (None, None, {})
    assert request.targets == ("gfx942", "gfx1100")


def list_real_lines() -> Iterator[str]:
    """Yield the lines that the chain on a real ROCm runs, with ``$X`` for what only a run of it knows.

    It is run by hand, once in weeks: what it says of commands that changed since is seen here.
    """
    texts: dict[str, str] = {}  # of names, and of methods that return words

    def fill(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(fill, node.values))
        if isinstance(node, ast.FormattedValue):
            return texts.get(ast.unparse(node.value), "$X")
        return str(node.value) if isinstance(node, ast.Constant) else "$X"

    tree = ast.parse((CLONE / "tests/real/test_real.py").read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for function in sorted(functions, key=lambda node: node.lineno):
        nodes = (node for node in ast.walk(function) if isinstance(node, (ast.stmt, ast.expr)))
        for node in sorted(nodes, key=lambda node: node.lineno):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    texts[name] = fill(value)
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    texts[name] += fill(value)
                case ast.Return(value=ast.JoinedStr() as value):
                    texts[f"chain.{function.name}()"] = fill(value)
                case ast.Call(func=ast.Attribute(value=ast.Name(id="chain"), attr="run"), args=[line, *_]):
                    yield fill(line)


def test_the_chain_on_a_real_rocm_says_what_commands_take() -> None:
    lines = list(list_real_lines())
    ours = [line for line in lines if re.search(r"rocm-wheels (build|plan)|packages\.py|_repo\.py", line)]
    assert len(ours) == 5 and all("--" in line for line in ours)
    assert [fault for line in lines for fault in find_line_faults(line)] == []


# ---- rules that hold for each file, and names that are there


def find_faults(workflows: Mapping[str, Any]) -> list[str]:
    """Return a line for each thing that breaks a rule: file, job, what."""
    faults = []
    for name, workflow in workflows.items():
        # jobs may have what the caller's job has where nothing else can begin the workflow
        of_callers = set(workflow["on"]) == {"workflow_call"} and "permissions" not in workflow
        if workflow.get("permissions") != {} and not of_callers:
            faults.append(f"{name}: `permissions` of the workflow must be {{}}: each job has its own")
        text = flatten({key: value for key, value in workflow.items() if key != "on"})
        used, declared = set(re.findall(r"\binputs\.(\w+)", text)), set(inputs_of(workflow))
        faults += [f"{name}: the input {one} is unused, or not there" for one in sorted(used ^ declared)]
        for key, job in workflow["jobs"].items():
            found = [*find_job_faults(workflow, job), *find_call_faults(job, workflows)]
            if "permissions" not in job and not of_callers:
                found.append("no `permissions`")
            faults += [f"{name}: {key}: {fault}" for fault in found]
        if (depth := measure_depth(name, workflows, ())) > TABLE.limits.levels.value:
            faults.append(f"{name}: calls are {depth} levels deep; GitHub has {TABLE.limits.levels.value}")
    return faults


def find_job_faults(workflow: Mapping[str, Any], job: Mapping[str, Any]) -> Iterator[str]:
    needs = set(job.get("needs", ()))
    for other, output in re.findall(r"\bneeds\.(\w+)\.outputs\.(\w+)", flatten(job)):
        if other not in needs or output not in workflow["jobs"][other].get("outputs", {}):
            yield f"there is no output {output} of {other}, or it is not waited for"
    yield from (
        f"it does not wait for {one}"
        for one in re.findall(r"\bneeds\.(\w+)\.result", flatten(job))
        if one not in needs
    )
    rows = job.get("strategy", {}).get("matrix", {})
    if isinstance(rows, dict) and any(
        len(values) > TABLE.limits.matrix_jobs.value for values in rows.values()
    ):
        yield f"more jobs of a matrix than the {TABLE.limits.matrix_jobs.value} that GitHub makes"
    if "uses" in job:
        return
    minutes, longest = str(job.get("timeout-minutes", "")), TABLE.limits.hosted_job_hours.value * 60
    if not minutes:
        yield "no `timeout-minutes`"
    if job["runs-on"].startswith("ubuntu-") and minutes.isdigit() and int(minutes) > longest:
        yield f"{minutes} minutes on a machine of GitHub, which ends a job after {longest}"
    names = {step["id"] for step in job["steps"] if "id" in step}
    for one in set(re.findall(r"\bsteps\.(\w+)\.", flatten(job))) - names:
        yield f"there is no step {one}"
    checked_out = False
    for step in job["steps"]:
        action = step.get("uses", "")
        checked_out = checked_out or action.startswith("actions/checkout@")
        if action == START:
            if not checked_out:
                yield f"{START} is not there before a checkout"
            yield from (
                f"{START} has no input {one}"
                for one in set(step.get("with", {})) - set(ACTIONS[START]["inputs"])
            )
        if action.startswith("actions/upload-artifact@") and step["with"].get("overwrite") != "true":
            yield "a job that is run again is refused the names of its artifacts: overwrite: true"


def find_call_faults(job: Mapping[str, Any], workflows: Mapping[str, Any]) -> Iterator[str]:
    if "uses" not in job:
        return
    name = job["uses"].removeprefix(LOCAL)
    called = workflows.get(name)
    if called is None or "workflow_call" not in called["on"]:
        yield f"{job['uses']} is no workflow of ours that can be called"
        return
    passed, inputs = set(job.get("with", {})), inputs_of(called)
    yield from (f"{name} has no input {key}" for key in sorted(passed - set(inputs)))
    required = {key for key, said in inputs.items() if said.get("required") == "true"}
    yield from (f"{name} needs the input {key}" for key in sorted(required - passed))
    levels = {"none": 0, "read": 1, "write": 2}
    for key, inner in called["jobs"].items():
        for scope, level in inner.get("permissions", {}).items():
            if levels[level] > levels[job.get("permissions", {}).get(scope, "none")]:
                yield f"its job {key} in {name} needs {scope}: {level}, which the caller does not have"


def measure_depth(name: str, workflows: Mapping[str, Any], callers: tuple[str, ...]) -> int:
    if name in callers:
        return 1_000  # it calls itself
    called = {str(job.get("uses", "")).removeprefix(LOCAL) for job in workflows[name]["jobs"].values()}
    return 1 + max(
        (measure_depth(one, workflows, (*callers, name)) for one in called & {*workflows}), default=0
    )


def flatten(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(flatten(inner) for inner in value.values())
    if isinstance(value, list):
        return "\n".join(flatten(inner) for inner in value)
    return str(value)


Change = Callable[[dict[str, Any]], object]
BROKEN: list[tuple[Change, str]] = [
    (lambda jobs: jobs["lock"].pop("timeout-minutes"), "lock: no `timeout-minutes`"),
    (lambda jobs: jobs["lock"].update({"timeout-minutes": "361"}), "361 minutes on a machine of GitHub"),
    (lambda jobs: jobs["lock"]["steps"][-1]["with"].pop("overwrite"), "overwrite: true"),
    (lambda jobs: jobs["lock"]["steps"].pop(0), "start is not there before a checkout"),
    (lambda jobs: jobs["lock"]["steps"][1].update({"with": {"pyton": "3"}}), "start has no input pyton"),
    (lambda jobs: jobs["lock"].update(permissions={"id-token": "write"}), "needs id-token: write, which"),
    (lambda jobs: jobs["lock"]["outputs"].pop("lines"), "no output lines of lock"),
    (lambda jobs: jobs["lock"]["steps"][2].pop("id"), "there is no step matrix"),
    (lambda jobs: jobs["others"]["needs"].remove("sources"), "it does not wait for sources"),
    (lambda jobs: jobs["smoke"]["with"].pop("rows"), "test-smoke.yml needs the input rows"),
    (lambda jobs: jobs["smoke"]["with"].update(row="x"), "has no input row"),
    (lambda jobs: jobs["smoke"].update(uses=f"{LOCAL}x.yml"), "is no workflow of ours"),
    (lambda jobs: jobs["smoke"].update(uses=f"{LOCAL}build-line.yml"), "levels deep"),
    (lambda jobs: jobs["lock"].update(name="${{ inputs.more }}"), "the input more is unused, or not there"),
]  # fmt: skip


def test_every_workflow_keeps_to_the_rules() -> None:
    assert find_faults(WORKFLOWS) == []
    text = flatten(ACTIONS)
    assert not re.search(r"\b(vars|secrets|needs)\.", text), "GitHub gives an action none of them"
    assert set(re.findall(r"\binputs\.(\w+)", text)) == set(ACTIONS[START]["inputs"])


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_what_breaks_a_rule_is_reported(change: Change, message: str) -> None:
    workflows = copy.deepcopy(WORKFLOWS)
    change(workflows["build-line.yml"]["jobs"])
    assert message in "\n".join(find_faults(workflows))


def test_every_key_of_a_row_is_one_that_the_matrix_has() -> None:
    """By what the job's matrix is made of, and by what `row` is in a workflow that is called."""
    cells = plan_matrix(TABLE, MatrixSelection("release", lines=("2.13",), day=date(2026, 11, 24))).built
    kinds = ("lines", "sets", "pythons", "first", "companions", "tested", "torch_tested")
    keys = {kind: {*matrix_report.make_rows(cells, TABLE, kind)[0]} for kind in kinds}
    keys["lines"].add("date")
    suites = next(
        row["suite_rows"]["include"]
        for row in matrix_report.make_rows(cells, TABLE, "tested")
        if row["suites"]
    )
    keys |= {"others": keys["first"], "rows": keys["tested"], "suite_rows": {*suites[0]}}
    keys |= {"shards": keys["torch_tested"], "sets-open": {"set", "family"}}
    row_of = {
        "build-line.yml": "lines",
        "release-line.yml": "lines",
        "release-set.yml": "sets",
        "test-row.yml": "tested",
    }
    checked = set()
    for name, key, job in jobs():
        text, rows = flatten(job), job.get("strategy", {}).get("matrix", "")
        for used in re.findall(r"fromJSON\(inputs\.row\)\.(\w+)", text):
            assert used in keys[row_of[name]], (name, key, used)
        if isinstance(rows, str) and rows:
            kind = re.findall(r"(\w+)\)*(?:\.(\w+))? }}$", rows)[0]
            kind = kind[1] or kind[0]
            kind = {"rows": "tested" if name == "test-smoke.yml" else "rows"}.get(kind, kind)
            kind = "sets-open" if name == "care.yml" else kind
            # steps that kinds of rows share ask `given`, `shared` and `python` of each: not there is ""
            unknown = {*re.findall(r"\bmatrix\.(\w+)", text)} - keys[kind] - {"given", "shared", "python"}
            assert unknown == set(), (name, key, kind)
            checked.add(kind)
    assert checked >= {*kinds} - {"torch_tested"} | {"others", "rows", "suite_rows", "shards"}


# ---- who may do what

# what a job does with the store, the one role that it has for that, and its environment, by which it gets it
READING = ("set gate", "set list", "set show", "store fsck")
ROLES = {
    **dict.fromkeys(("set stage", "set check", "set evidence add", *READING), ("WRITE", "store")),
    "set promote": ("RELEASE", "${{ inputs.channel }}"),
    "set refresh": ("RELEASE", "nightly"),
    "store prune": ("RELEASE", "nightly"),
}  # fmt: skip
TESTING = (("test-smoke.yml", "smoke"), ("test-suite.yml", "tests"))  # jobs on machines with GPUs


def test_a_job_has_the_role_of_what_it_does_and_no_other_and_runs_nothing_that_was_built() -> None:
    done = set()
    for name, key, job in jobs():
        runs = [step["run"] for step in job.get("steps", ()) if "run" in step]
        stores = [run for run in runs if '"$STORE"' in run]
        asked = [step["with"].get("role-to-assume", step["with"].get("role")) for step in job.get("steps", ())
                 if {"role-to-assume", "role"} & {*step.get("with", {})}]  # fmt: skip
        if "steps" in job:
            assert ("id-token" in job.get("permissions", {})) == bool(stores), (name, key)
        if not stores:
            assert asked in ([], ["${{ vars.ROCM_WHEELS_CACHE_ROLE }}"]), (name, key)
            assert not asked or name == "build-line.yml", (name, key)
            continue
        found = {
            ROLES[action] for action in ROLES for run in stores if run.startswith(f"rocm-wheels {action} ")
        }
        ((role, environment),) = found
        assert asked == [f"${{{{ vars.ROCM_WHEELS_{role}_ROLE }}}}"], (name, key)
        assert job.get("environment") == environment, (name, key)
        assert not re.search(r"build_prod_wheels|smoke_tests|rocm-wheels (install|checkout)", " ".join(runs))
        started = [step.get("with", {}).get("packages") for step in job["steps"] if step.get("uses") == START]
        assert started == ["store"], (
            name,
            key,
        )  # half of what tests need: each package runs with these rights
        done.add(role)
    assert done == {"WRITE", "RELEASE"}
    for name in ("presubmit.yml", "build-line.yml", "test-smoke.yml"):
        text = (FOLDER / name).read_text(encoding="utf-8").partition("\nname:")[2]
        assert "id-token" not in text and "secrets" not in text and " store" not in text, name


def test_jobs_that_add_results_can_attest_them_and_no_job_may_without_need() -> None:
    """The bundle is that of the step before; of what was written, nothing is added twice."""
    adding = set()
    for name, key, job in jobs():
        if "steps" not in job:
            continue
        attests = [step for step in job["steps"] if "/attest-build-provenance@" in step.get("uses", "")]
        assert ("attestations" in job.get("permissions", {})) == bool(attests), (name, key)
        if not (with_bundle := [step for step in job["steps"] if "--attestation" in step.get("run", "")]):
            continue
        adding.add(f"{name} {key}")
        (attest,), (added,) = attests, with_bundle
        assert attest["with"] == {"subject-path": "payloads/*.json"} and attest["id"] == "attestation"
        assert added["run"].endswith(' --from payloads --attestation "$BUNDLE"'), key
        assert added["env"]["BUNDLE"] == "${{ steps.attestation.outputs.bundle-path }}"
        assert "steps.attestation.outcome == 'success'" in added["if"]
        assert "ROCM_WHEELS_EVIDENCE_SIGNED" in flatten(job)
    assert adding == {"release-set.yml check", "evidence.yml add"}


def test_forks_read_the_cache_and_only_trusted_code_writes_it() -> None:
    """A build that is not trusted to save reads without credentials: none has code of a pull request."""
    saves = {
        f"{name} {key}": step["if"] for name, key, step in steps() if "/cache/save@" in step.get("uses", "")
    }
    assert set(saves) == {"build-line.yml sources", "build-line.yml first", "evidence.yml add"}
    assert all("inputs.save_cache" in saves[f"build-line.yml {job}"] for job in ("sources", "first"))
    assert "github.ref_name == github.event.repository.default_branch" in saves["evidence.yml add"]
    assert not [step for _, _, step in steps() if re.match(r"actions/cache@", step.get("uses", ""))]
    said = {name: job["with"]["save_cache"] for name, _, job in jobs() if "save_cache" in job.get("with", {})}
    night = "github.event_name == 'schedule'", "inputs.channel == 'nightly'"
    trusted = {"nightly.yml": night[0], "release.yml": night[1], "release-line.yml": "inputs.save_cache"}
    assert said == {name: f"${{{{ {when} }}}}" for name, when in trusted.items()} | {"presubmit.yml": "false"}
    builds = [
        (job, step)
        for _, _, job in jobs()
        for step in job.get("steps", ())
        if "build_prod_wheels.py build " in step.get("run", "")
    ]
    assert len(builds) == 4
    for job, step in builds:
        (role,) = [one for one in job["steps"] if one.get("uses", "").startswith("aws-actions/")]
        assert role["if"] == "${{ vars.ROCM_WHEELS_CACHE_BUCKET != '' && inputs.save_cache }}"
        assert (
            "permissions" not in job
            and step["env"]["SCCACHE_S3_NO_CREDENTIALS"] == "${{ !inputs.save_cache }}"
        )
        assert ' --compiler-cache "$CACHE" ' in step["run"] and "--lock sources.lock.json" in step["run"]
        # in the image that the data name, whose digest is in the table alone, for wheels fit for its system
        assert job["container"] == {"image": "${{ needs.lock.outputs.image }}", "options": "--user=0:0"}
        assert ' --plat "$PLAT" ' in step["run"] and step["env"]["PLAT"] == "${{ needs.lock.outputs.plat }}"
        # before the first checkout: torch's own trees are deeper than the 260 characters of Windows
        assert job["steps"][0]["run"] == "git config --system core.longpaths true"
    assert not [path for path in FOLDER.glob("*.yml") if "@sha256:" in path.read_text(encoding="utf-8")]


def test_a_pull_request_from_a_fork_needs_no_variable() -> None:
    """GitHub hands it none; only an image may be missing then: the build is on the machine itself."""
    index, given = (
        next(row.url for row in package_indexes.list_indexes() if row.name == TABLE.rocm_index),
        WORKFLOWS["presubmit.yml"]["jobs"]["build"]["with"],
    )
    assert given["rocm_index"] == f"${{{{ inputs.rocm_index || vars.ROCM_WHEELS_ROCM_INDEX || '{index}' }}}}"
    assert {name for name, said in given.items() if "vars." in said} == {
        "rocm_index",
        "build_image",
        "test_image",
    }
    assert all(
        re.fullmatch(r".*&& vars\.\w+ \|\| '' }}", given[name]) for name in ("build_image", "test_image")
    )
    assert WORKFLOWS["presubmit.yml"]["jobs"]["build"]["permissions"] == {"contents": "read"}


def test_machines_that_stay_keep_nothing_of_what_they_test() -> None:
    """A Python of theirs is that of all jobs; what is downloaded is in the workspace, and goes with it.

    Containers are root: the workspace is the runner's (https://github.com/actions/checkout/issues/956).
    """
    for name, key in TESTING:
        job = WORKFLOWS[name]["jobs"][key]
        (install,) = (step for step in job["steps"] if "rocm-wheels install" in step.get("run", ""))
        assert " --venv tested --python " in install["run"], key
        assert install["env"]["XDG_CACHE_HOME"] == "${{ github.workspace }}/.cache", key
        assert install["env"]["UV_CACHE_DIR"] == "${{ github.workspace }}/.cache/uv", key
        assert install["run"].endswith(" --keep-wheels installed-wheels"), key
        (tests,) = (step for step in job["steps"] if " --output-dir " in step.get("run", ""))
        assert " --python tested --wheels installed-wheels " in tests["run"]
        assert all(" --no-cache " in step["run"] for step in job["steps"] if "uv pip" in step.get("run", ""))
        assert tests["timeout-minutes"].startswith("${{ matrix.")
        assert job["container"]["options"] == "${{ matrix.container_options }}"
        (start,) = (step for step in job["steps"] if step.get("uses") == START)
        assert start["with"] == {"python": "${{ matrix.python }}"}
    cells = plan_matrix(TABLE, MatrixSelection("release", platforms=("linux",), day=date(2026, 11, 24))).built
    rows = [row for kind in ("tested", "torch_tested") for row in matrix_report.make_rows(cells, TABLE, kind)]  # type: ignore[arg-type]
    assert rows and all("--user=0:0" in row["container_options"].split() for row in rows)


# ---- what waits for what


def test_a_label_without_a_machine_holds_nobody_elses_set() -> None:
    """Results of a row, or of a suite, are added when they are there; the gate of a set is asked once.

    What waits for a machine is asked again in the morning by care.yml, which waits for none and names labels.
    A family is staged though a cell of another was not built: a condition without a status function has
    success() before it, so every job below a call says its own.
    """
    release, row = WORKFLOWS["release-set.yml"]["jobs"], WORKFLOWS["test-row.yml"]["jobs"]
    assert [key for key, job in release.items() if "rows" in job.get("needs", ())] == ["gate"]
    assert [key for key, job in release.items() if "!cancelled()" not in job["if"]] == []
    assert row["results"]["needs"] == ["smoke"]
    assert [key for key, job in row.items() if "suites" in job.get("needs", ())] == []
    care = WORKFLOWS["care.yml"]["jobs"]
    assert care["gate"]["needs"] == ["plan"] and care["gate"]["with"]["must_pass"] == "false"
    gate = WORKFLOWS["promote.yml"]["jobs"]["gate"]["steps"]
    assert gate[-1]["run"] == "rocm-wheels matrix --trigger nightly" and "passed != 'true'" in gate[-1]["if"]
    assert WORKFLOWS["nightly.yml"]["on"]["schedule"] and WORKFLOWS["care.yml"]["on"]["schedule"]


def test_only_a_night_promotes_by_itself_and_by_hand_where_it_is_asked_to() -> None:
    night, release = WORKFLOWS["nightly.yml"]["jobs"]["line"]["with"], WORKFLOWS["release.yml"]
    scheduled = "github.event_name == 'schedule'"
    assert (
        night["promote"] == f"${{{{ {scheduled} }}}}"
        and night["channel"] == f"${{{{ {scheduled} && 'nightly' || '' }}}}"
    )
    assert release["on"]["workflow_dispatch"]["inputs"]["promote"]["default"] == "false"
    given, check = release["jobs"]["line"]["with"], release["jobs"]["plan"]["steps"][2]
    assert check["env"]["PROMOTE"] == "${{ inputs.promote && inputs.channel == 'nightly' }}"
    assert ' --branch "$BRANCH" --default-branch "$DEFAULT_BRANCH"' in check["run"]
    # a set for chosen families takes no place of one for all; what may get there later is called nightly
    promotes = given["promote"].removeprefix("${{ ").removesuffix(" }}")
    assert promotes.endswith("(matrix.layout != 'multi-arch' || inputs.families == '')")
    assert f"{promotes} && 'nightly' || 'dispatch'" in given["local_version"]
    prune, asked = WORKFLOWS["care.yml"]["jobs"]["prune"]["steps"][-2:]
    assert prune["run"].endswith(" --dry-run") and asked["if"] == "${{ inputs.prune }}"
    assert WORKFLOWS["care.yml"]["on"]["workflow_dispatch"]["inputs"]["prune"]["default"] == "false"


def test_our_own_tests_run_on_every_python_that_is_built_for() -> None:
    pythons = {python for trigger in TABLE.triggers.values() for python in trigger.pythons}
    own_tests = WORKFLOWS["ci.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(own_tests) == {python for python in pythons if not python.endswith("t")}


# ---- the script that the others begin with


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
    output, page = tmp_path / "output", tmp_path / "summary"
    output.write_text("")
    page.write_text("")
    env = {
        **os.environ,
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(page),
        "ROCM_WHEELS_STORE": store,
    }
    command = [sys.executable, str(CLONE / "build_tools" / "check_repository.py"), *words.split()]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert (ended.returncode, found) == (code, outputs)
    assert ("ROCM_WHEELS_STORE" in page.read_text()) == (code == 0 and not store.strip())
