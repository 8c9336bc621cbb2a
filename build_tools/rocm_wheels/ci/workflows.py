"""The workflows of GitHub as files: written, compared, shown, and the rules that each of them keeps to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocm_wheels.ci.matrix import choose_lines
from rocm_wheels.ci.workflow_jobs import (
    Usual,
    build_line,
    nightly,
    own_tests,
    postsubmit,
    presubmit,
    promote_by_hand,
    real_chain,
    release,
    release_line,
    release_set,
)
from rocm_wheels.ci.workflow_parts import Noted, Pieces, Workflow, as_yaml
from rocm_wheels.core import DataError, UsageError, write_atomically
from rocm_wheels.models import CI_PLATFORMS, UNRESOLVED_COMMIT, ActionsTable, CiTable, GithubLimits, get_index

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


COMMAND = "rocm-wheels workflows write"
CHANNELS = ("nightly", "prerelease", "stable")
_GENERATED = f"Generated by `{COMMAND}`: change rocm_wheels/ci/workflow*.py or data/, and write it anew."
_ABOUT = {
    "build-line.yml": "A torch line on a platform: one lock, one checkout, what cells share, each cell.",
    "release-set.yml": "A set of wheels, for one family or for all: staged, tested, judged, promoted.",
    "release-line.yml": "A torch line on a platform, built and then released set by set.",
    "nightly.yml": "Every night: all lines of the policy (data/ci.yaml), each to its gate and the channel.",
    "release.yml": "A release, begun by hand: builds, stages, tests, asks the gate. Nothing is promoted.",
    "postsubmit.yml": "A push to the default branch: what it touches is staged and tested, on no channel.",
    "presubmit.yml": "A pull request: the cheapest cells of what it touches. No store, no secrets.",
    "promote.yml": "Somebody shows a staged set on a channel, once its gate lets it pass.",
    "ci.yml": "The tool's own tests.",
    "real.yml": "Every night: the chain on a real ROCm and the real PyTorch (tests/real).",
}


def workflows(table: CiTable, actions: ActionsTable) -> dict[str, Workflow]:
    """Return every workflow by the name of its file. Raises DataError for one that breaks a rule."""
    pieces, channels = Pieces(actions), list(CHANNELS)
    usual = Usual(get_index(table.rocm_index).url)
    pythons = list(dict.fromkeys(one for trigger in table.triggers.values() for one in trigger.pythons))
    made = {
        "build-line.yml": build_line(pieces),
        "release-set.yml": release_set(pieces),
        "release-line.yml": release_line(pieces),
        "nightly.yml": nightly(pieces, usual),
        "release.yml": release(pieces, usual, [one for one in channels if one != "nightly"]),
        "presubmit.yml": presubmit(pieces, usual),
        "postsubmit.yml": postsubmit(pieces, usual),
        "promote.yml": promote_by_hand(pieces, list(table.all_families), channels),
        "ci.yml": own_tests(pieces, sorted((one for one in pythons if not one.endswith("t")), key=_number)),
    }
    made["real.yml"] = real_chain(pieces, "3.12")
    if found := faults(made, table.limits):
        raise DataError("these workflows may not be written:\n  " + "\n  ".join(found))
    return made


def texts(table: CiTable, actions: ActionsTable) -> dict[str, str]:
    """Return every workflow as the text of its file."""
    made = workflows(table, actions)
    return {name: as_yaml(made[name], _header(name, table, actions)) for name in made}


def unresolved(actions: ActionsTable) -> list[str]:
    """Return a line for each action whose commit nobody has read."""
    return [
        f"{name} {action.version} ({action.source})"
        for name, action in actions.actions.items()
        if not action.is_resolved
    ]


def require_resolved(actions: ActionsTable) -> None:
    """Raise UsageError when nobody has read the commit of an action."""
    if missing := unresolved(actions):
        raise UsageError(
            "data/actions.yaml has no commit of " + ", ".join(missing),
            tip="read it in the repository of the action (`git rev-parse TAG^{commit}`);"
            " --allow-unresolved writes workflows that say so, and that GitHub refuses to run",
        )


def differing(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return what a folder lacks or has otherwise, and what is generated there and no longer wanted."""
    said = []
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file():
            said.append(f"{path} is not there")
        elif path.read_bytes() != text.encode():
            said.append(f"{path} is another")
    return [*said, *(f"{path} is no longer made" for path in _left(folder, wanted))]


def write_all(folder: Path, wanted: Mapping[str, str]) -> list[Path]:
    """Write what a folder lacks, delete what was generated and is no longer wanted; return what changed.

    Files that somebody wrote are left alone; one in the place of ours raises UsageError, and nothing is done.
    """
    for name in wanted:
        path = folder / name
        if path.exists() and not _is_ours(path):
            tip = f"move it away, or give another --dir; ours begin with: # {_GENERATED}"
            raise UsageError(f"{path} was not generated", tip=tip)
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomically(path, text)
            changed.append(path)
    for path in _left(folder, wanted):
        path.unlink()
        changed.append(path)
    return changed


def _left(folder: Path, wanted: Mapping[str, str]) -> list[Path]:
    return [path for path in sorted(folder.glob("*.yml")) if path.name not in wanted and _is_ours(path)]


def _is_ours(path: Path) -> bool:
    return path.is_file() and f"`{COMMAND}`" in path.read_text(encoding="utf-8").split("\n", 1)[0]


def _header(name: str, table: CiTable, actions: ActionsTable) -> list[str]:
    lines = [_GENERATED, "", _ABOUT[name]]
    if name in {"build-line.yml", "release-set.yml"}:
        labels = _builders(table) if name == "build-line.yml" else _of_sets(table)
        lines += ["Machines that it may ask for, by label:", *(f"  {label}" for label in labels)]
    if (trigger := name.removesuffix(".yml")) in {"nightly", "release"}:
        pythons = ", ".join(table.triggers[trigger].pythons)
        torch = ", ".join(choose_lines(table, trigger))
        lines += [f"By the tables: torch {torch}, with those of Python {pythons} that they have."]
    if missing := unresolved(actions):
        lines += [
            "",
            "NOT TO BE RUN: nobody has read the commits of these actions:",
            *(f"  {x}" for x in missing),
        ]
    return lines


def _builders(table: CiTable) -> list[str]:
    return sorted({one.label for platform in table.platforms.values() for one in platform.builders})


def _of_sets(table: CiTable) -> list[str]:
    found = {
        one.label
        for family in table.families.values()
        for platform in CI_PLATFORMS
        if (on := family.get_platform(platform)) is not None
        for one in on.runners
    }
    return sorted(found | {one.label for one in table.staging})


def _number(python: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", python))
