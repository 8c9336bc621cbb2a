"""What every workflow must keep to, whoever wrote it.

- a step runs one command of ours, quoted, and no expression is a part of it
- every job has a limit of time and says what it may do; what a called workflow may do, its caller may, too
- every action is pinned; every input is used, and every input that is needed is given
- what a called workflow hands back is not used: nobody says what it is when one of its jobs failed
- limits of GitHub: how deep workflows call each other, how many jobs a matrix has, how long a job may take
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rocm_wheels.ci.workflows.text import Noted
from rocm_wheels.model.actions import UNRESOLVED_COMMIT
from rocm_wheels.model.ci import GithubLimits

_VALUE = re.compile(r'"\$[A-Z_]+"')
_OURS = re.compile(
    r"(rocm-wheels|python3 build_tools/[a-z_]+\.py|bash (\.ci|tests/real)/run)( [^;&|<`$(){}\\\n\"']*)?"
)
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@([0-9a-f]{40}|" + UNRESOLVED_COMMIT + ")")
_INPUT = re.compile(r"\binputs\.(\w+)")
_LOCAL = "./.github/workflows/"
_LEVEL = {"none": 0, "read": 1, "write": 2}


def faults(workflows: Mapping[str, Mapping[str, Any]], limits: GithubLimits) -> list[str]:
    """Return a line for each thing that breaks a rule: file, job, what."""
    found = []
    for name, workflow in workflows.items():
        found += [f"{name}: {fault}" for fault in _inputs(workflow)]
        if workflow.get("permissions") != {}:
            found.append(f"{name}: `permissions` of the workflow must be {{}}: each job says its own")
        found += [f"{name}: {fault}" for fault in _handed_back(workflow)]
        for key, job in workflow["jobs"].items():
            found += [f"{name}: {key}: {fault}" for fault in _job(job, workflows, limits)]
        if (deep := _levels(name, workflows, (name,))) > limits.levels.value:
            found.append(
                f"{name}: workflows call each other {deep} levels deep; GitHub allows {limits.levels.value}"
            )
    return found


def _inputs(workflow: Mapping[str, Any]) -> Iterator[str]:
    text = _plain({key: value for key, value in workflow.items() if key != "on"})
    used, given = set(_INPUT.findall(text)), set(_given(workflow))
    yield from (f"nothing uses the input {one}" for one in sorted(given - used))
    yield from (f"there is no input {one}" for one in sorted(used - given))


def _handed_back(workflow: Mapping[str, Any]) -> Iterator[str]:
    calls = [key for key, job in workflow["jobs"].items() if "uses" in job]
    text = _plain(workflow["jobs"])
    used = [one for one in calls if f"needs.{one}.outputs" in text]
    yield from (f"it uses outputs of {one}, which is a call" for one in used)


def _given(workflow: Mapping[str, Any]) -> dict[str, Any]:
    events = [event for event in workflow["on"].values() if isinstance(event, Mapping)]
    return {name: one for event in events for name, one in event.get("inputs", {}).items()}


def _job(
    job: Mapping[str, Any], workflows: Mapping[str, Mapping[str, Any]], limits: GithubLimits
) -> Iterator[str]:
    if "permissions" not in job:
        yield "it does not say its `permissions`"
    rows = job.get("strategy", {}).get("matrix", {})
    if isinstance(rows, Mapping) and (count := _count(rows)) > limits.matrix_jobs.value:
        yield f"{count} jobs of a matrix, and GitHub makes {limits.matrix_jobs.value}"
    if "uses" in job:
        yield from _call(job, workflows)
        return
    if "timeout-minutes" not in job:
        yield "it has no `timeout-minutes`"
    most = limits.hosted_job_hours.value * 60
    minutes = job.get("timeout-minutes")
    if job["runs-on"].startswith("ubuntu-") and isinstance(minutes, int) and minutes > most:
        yield f"{minutes} minutes on a machine of GitHub, which ends a job after {most}"
    for step in job["steps"]:
        yield from _step(step)


def _count(rows: Mapping[str, Any]) -> int:
    count = 1
    for values in rows.values():
        count *= len(values)
    return count


def _step(step: Mapping[str, Any]) -> Iterator[str]:
    if "run" in step:
        command = step["run"]
        if "${{" in command:
            yield f"an expression in a script: {command}"
        if not _OURS.fullmatch(_VALUE.sub("value", command)):
            yield f"not one simple command of ours: {command}"
        named = set(re.findall(r"\$([A-Z_]+)", command))
        given = {name for name in step.get("env", {}) if not name.startswith(("ROCM_WHEELS_", "CCACHE_"))}
        if named != given:
            yield f"`env` and the command do not agree ({', '.join(sorted(named ^ given))}): {command}"
        return
    name = step["uses"].text if isinstance(step["uses"], Noted) else step["uses"]
    if not _PINNED.fullmatch(name):
        yield f"not pinned by a commit: {name}"
    if name.startswith("actions/upload-artifact@") and step["with"].get("overwrite") is not True:
        yield "a job that is run again is refused the names of its artifacts: overwrite: true"
    if name.startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
        yield "checkout leaves its token to every later step: persist-credentials: false"


def _call(job: Mapping[str, Any], workflows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    name = job["uses"].removeprefix(_LOCAL)
    called = workflows.get(name)
    if called is None or "workflow_call" not in called["on"]:
        yield f"{job['uses']} is no workflow of ours that can be called"
        return
    given, wanted = set(job.get("with", {})), _given(called)
    yield from (f"{name} has no input {one}" for one in sorted(given - set(wanted)))
    needed = {one for one, said in wanted.items() if said["required"]}
    yield from (f"{name} needs the input {one}" for one in sorted(needed - given))
    for inner, one in called["jobs"].items():
        for what, level in one.get("permissions", {}).items():
            if _level(level) > _level(job.get("permissions", {}).get(what, "none")):
                yield f"its job {inner} in {name} wants {what}: {_plain(level)}, which the caller has not"


def _level(said: str | Noted) -> int:
    return _LEVEL[_plain(said)]


def _levels(name: str, workflows: Mapping[str, Mapping[str, Any]], above: tuple[str, ...]) -> int:
    deepest = 1
    for job in workflows.get(name, {"jobs": {}})["jobs"].values():
        called = str(job.get("uses", "")).removeprefix(_LOCAL)
        if called in above:
            return 1_000  # it calls itself
        if called:
            deepest = max(deepest, 1 + _levels(called, workflows, (*above, called)))
    return deepest


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(_plain(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return "\n".join(_plain(one) for one in value)
    return value.text if isinstance(value, Noted) else str(value)
