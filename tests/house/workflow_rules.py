"""Rules that every workflow of ours keeps to, beyond GitHub's schema and zizmor."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from workflow_expressions import PURE, Unknown, evaluate

from rocm_wheels.models import ci

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"
_VALUE = re.compile(r'"\$[A-Z_]+"')
_OUR_COMMAND = re.compile(
    r"(rocm-wheels|python3 build_tools/[a-z_]+\.py|uv pip install|bash (\.ci|tests/real)/run)"
    r"( [^;&|<`$(){}\\\n\"']*)?"
    r"|git config --system core\.longpaths true"  # before anything of ours is there
)
_PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_INPUT = re.compile(r"\binputs\.(\w+)")
_LOCAL = "./.github/workflows/"
_OUR_ACTION = "./.github/actions/"
_OF_WORKFLOWS = re.compile(r"\b(vars|secrets|needs)\.")  # contexts that GitHub gives no action
_OF_PROGRAMS = ("ROCM_WHEELS_", "CCACHE_", "SCCACHE_")  # variables that no command line names
_LEVELS = {"none": 0, "read": 1, "write": 2}

Workflow = Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML 1.2 as GitHub reads it: `on` is a word."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if first not in "oO" or tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_workflows() -> dict[str, Any]:
    """Return every workflow by the name of its file."""
    return {
        path.name: yaml.load(path.read_text(encoding="utf-8"), _Loader)
        for path in sorted(FOLDER.glob("*.yml"))
    }


def load_actions() -> dict[str, Any]:
    """Return every action of ours by what calls it."""
    return {
        f"{_OUR_ACTION}{path.parent.name}": yaml.load(path.read_text(encoding="utf-8"), _Loader)
        for path in sorted(FOLDER.parent.glob("actions/*/action.yml"))
    }


def inline_actions(workflows: Mapping[str, Workflow], actions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workflows with the steps of our own actions in the place of their calls.

    Inputs are replaced by what the call gives. Steps that cannot run with that are left out.
    """
    inlined = copy.deepcopy(dict(workflows))
    for workflow in inlined.values():
        for job in workflow["jobs"].values():
            if "steps" in job:
                job["steps"] = [inner for step in job["steps"] for inner in _inline_step(step, actions)]
    return inlined


def _inline_step(step: Mapping[str, Any], actions: Mapping[str, Any]) -> Iterator[Any]:
    action = actions.get(step.get("uses", ""))
    if action is None:
        yield step
        return
    defaults = {name: declared.get("default", "") for name, declared in action["inputs"].items()}
    for inner in action["runs"]["steps"]:
        filled = _fill_inputs(inner, {**defaults, **step.get("with", {})})
        try:
            runs = evaluate(filled.get("if", "true").removeprefix("${{").removesuffix("}}"), {}, PURE)
        except Unknown:  # it asks for what only a run knows
            yield filled
        else:
            if runs:
                yield {key: value for key, value in filled.items() if key != "if"}


def _fill_inputs(value: Any, inputs: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill_inputs(inner, inputs) for key, inner in value.items()}
    if not isinstance(value, str) or "inputs." not in value:
        return value
    whole = re.fullmatch(r"\${{ inputs\.(\w+) }}", value)
    return inputs[whole[1]] if whole else _INPUT.sub(lambda name: _quote(inputs[name[1]]), value)


def _quote(text: str) -> str:
    """Return a text as it stands within an expression."""
    expression = re.fullmatch(r"\${{ (.*) }}", text)
    if expression is None:
        return f"'{text}'"
    return expression[1] if re.fullmatch(r"[\w.]+", expression[1]) else f"({expression[1]})"


def _find_action_faults(workflows: Mapping[str, Workflow], actions: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with our own actions, and with the calls of them."""
    for name, action in actions.items():
        if context := _OF_WORKFLOWS.search(_flatten(action)):
            yield f"{name}: GitHub gives an action no `{context[1]}`"
        used, declared = set(_INPUT.findall(_flatten(action))), set(action["inputs"])
        yield from (f"{name}: nothing uses the input {key}" for key in sorted(declared - used))
        yield from (f"{name}: there is no input {key}" for key in sorted(used - declared))
    for file, workflow in workflows.items():
        for key, job in workflow["jobs"].items():
            checked_out = False
            for step in job.get("steps", ()):
                name = step.get("uses", "")
                checked_out = checked_out or name.startswith("actions/checkout@")
                if name not in actions:
                    continue
                if not checked_out:
                    yield f"{file}: {key}: {name} is not there before a checkout"
                extra = sorted(set(step.get("with", {})) - set(actions[name]["inputs"]))
                yield from (f"{file}: {key}: {name} has no input {passed}" for passed in extra)
                commands = [inner.get("run", "") for inner in _inline_step(step, actions)]
                if ["quickstart.py setup" in command for command in commands].count(True) != 1:
                    yield f"{file}: {key}: with these inputs {name} does not set up rocm-wheels"


def find_faults(
    workflows: Mapping[str, Workflow], actions: Mapping[str, Any], limits: ci.GithubLimits
) -> list[str]:
    """Return a line for each thing that breaks a rule: file, job, what."""
    faults = list(_find_action_faults(workflows, actions))
    workflows = inline_actions(workflows, actions)
    for name, workflow in workflows.items():
        faults += [f"{name}: {fault}" for fault in _find_input_faults(workflow)]
        if workflow.get("permissions") != {} and not _has_permissions_of_callers(workflow):
            faults.append(f"{name}: `permissions` of the workflow must be {{}}: each job has its own")
        for key, job in workflow["jobs"].items():
            faults += [f"{name}: {key}: {fault}" for fault in _find_job_faults(job, workflows, limits)]
            if "permissions" not in job and not _has_permissions_of_callers(workflow):
                faults.append(f"{name}: {key}: no `permissions`")
            if "uses" in job and f"needs.{key}.outputs" in _flatten(workflow["jobs"]):
                faults.append(f"{name}: it uses outputs of {key}, which is a call")
        depth = _measure_depth(name, workflows, (name,))
        if depth > limits.levels.value:
            faults.append(f"{name}: calls are {depth} levels deep; GitHub allows {limits.levels.value}")
    return faults


def _has_permissions_of_callers(workflow: Workflow) -> bool:
    """Tell whether jobs may have what the caller's job has: where nothing else can begin the workflow."""
    return set(workflow["on"]) == {"workflow_call"} and "permissions" not in workflow


def _find_input_faults(workflow: Workflow) -> Iterator[str]:
    used = set(_INPUT.findall(_flatten({key: value for key, value in workflow.items() if key != "on"})))
    declared = set(_get_inputs(workflow))
    yield from (f"nothing uses the input {name}" for name in sorted(declared - used))
    yield from (f"there is no input {name}" for name in sorted(used - declared))


def _get_inputs(workflow: Workflow) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for event in workflow["on"].values():
        if isinstance(event, Mapping):
            inputs.update(event.get("inputs", {}))
    return inputs


def _find_job_faults(
    job: Mapping[str, Any], workflows: Mapping[str, Workflow], limits: ci.GithubLimits
) -> Iterator[str]:
    rows = job.get("strategy", {}).get("matrix", {})
    if isinstance(rows, Mapping):
        count = 1
        for values in rows.values():
            count *= len(values)
        if count > limits.matrix_jobs.value:
            yield f"{count} jobs of a matrix, and GitHub makes {limits.matrix_jobs.value}"
    if "uses" in job:
        yield from _find_call_faults(job, workflows)
        return
    minutes = job.get("timeout-minutes")
    if minutes is None:
        yield "no `timeout-minutes`"
    longest = limits.hosted_job_hours.value * 60
    if job["runs-on"].startswith("ubuntu-") and isinstance(minutes, int) and minutes > longest:
        yield f"{minutes} minutes on a machine of GitHub, which ends a job after {longest}"
    for step in job["steps"]:
        yield from _find_step_faults(step)


def _find_step_faults(step: Mapping[str, Any]) -> Iterator[str]:
    if "run" in step:
        command = step["run"]
        if "${{" in command:
            yield f"an expression in a script: {command}"
        if not _OUR_COMMAND.fullmatch(_VALUE.sub("value", command)):
            yield f"not one simple command of ours: {command}"
        used = set(re.findall(r"\$([A-Z_]+)", command))
        declared = {name for name in step.get("env", {}) if not name.startswith(_OF_PROGRAMS)}
        if used != declared:
            yield f"`env` and the command do not agree ({', '.join(sorted(used ^ declared))}): {command}"
        return
    name = step["uses"]
    if not _PINNED_ACTION.fullmatch(name):
        yield f"not pinned by a commit: {name}"
    if name.startswith("actions/upload-artifact@") and step["with"].get("overwrite") is not True:
        yield "a job that is run again is refused the names of its artifacts: overwrite: true"
    if name.startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
        yield "checkout leaves its token to every later step: persist-credentials: false"


def _find_call_faults(job: Mapping[str, Any], workflows: Mapping[str, Workflow]) -> Iterator[str]:
    name = job["uses"].removeprefix(_LOCAL)
    called = workflows.get(name)
    if called is None or "workflow_call" not in called["on"]:
        yield f"{job['uses']} is no workflow of ours that can be called"
        return
    passed, inputs = set(job.get("with", {})), _get_inputs(called)
    yield from (f"{name} has no input {key}" for key in sorted(passed - set(inputs)))
    required = {key for key, declared in inputs.items() if declared["required"]}
    yield from (f"{name} needs the input {key}" for key in sorted(required - passed))
    for key, inner in called["jobs"].items():
        for scope, level in inner.get("permissions", {}).items():
            if _LEVELS[level] > _LEVELS[job.get("permissions", {}).get(scope, "none")]:
                yield f"its job {key} in {name} needs {scope}: {level}, which the caller does not have"


def _measure_depth(name: str, workflows: Mapping[str, Workflow], callers: tuple[str, ...]) -> int:
    deepest = 1
    for job in workflows.get(name, {"jobs": {}})["jobs"].values():
        called = str(job.get("uses", "")).removeprefix(_LOCAL)
        if called in callers:
            return 1_000  # it calls itself
        if called:
            deepest = max(deepest, 1 + _measure_depth(called, workflows, (*callers, called)))
    return deepest


def _flatten(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(_flatten(inner) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return "\n".join(_flatten(inner) for inner in value)
    return str(value)
