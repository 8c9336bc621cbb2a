"""Runs our workflows under bash on this machine: jobs one after the other, artifacts as they are passed.

It knows what our workflows use and nothing else: a key, an expression, an action, an input or a container
that it does not know raises ``Unknown``, so that nothing is skipped silently. A job whose label no machine
has is queued, as on GitHub for a day, and what needs it waits. Each Python has machines of its own: what one
job left in the environment of the tool is found by the next.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from warm_python import warm_script
from workflow_actions import ACTIONS, At, Failed, Services, workspace_of
from workflow_expressions import PURE, Optional, Unknown, as_text, condition, fill

_OF_WORKFLOW = {"name", "run-name", "on", "permissions", "concurrency", "defaults", "jobs"}
_OF_JOB = {
    *("name", "needs", "if", "strategy", "permissions", "uses", "with", "runs-on", "timeout-minutes"),
    *("outputs", "container", "environment", "concurrency", "steps"),
}
_OF_STEP = {"name", "id", "if", "env", "run", "uses", "with", "continue-on-error", "timeout-minutes"}
_OF_ACTION = {"name", "description", "inputs", "outputs", "runs"}
_OF_ACTION_STEP = {"name", "id", "if", "shell", "env", "run", "uses", "with"}
_OUR_ACTION = "./.github/actions/"
_UNENDED = {"queued", "waiting"}
_SHELL = {"run": {"shell": "bash"}}
# python3 of a machine that is warm: the scripts of the clone begin in the warm Python of its environment
_PYTHON = """\
#!/bin/sh
PATH="${PATH#*:}"
case "$(command -v python3) $1" in
*/quickstart.py) ;;
*/.venv/bin/python3\\ build_tools/*) exec .venv/bin/warm-python "$@" ;;
esac
exec python3 "$@"
"""


@dataclass
class Ran:
    """What came of a job: result, outputs, and what its steps said, by name."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def said(self, step: str) -> str:
        """Return what a step printed."""
        return next(text for name, _, text in self.steps if name == step)


@dataclass
class Runner:
    """Runs workflows of a folder. ``machines`` are labels that somebody serves, ``env`` their environment.

    ``jobs`` has every job that ran, by its place: ``nightly.yml/line[0]/build/lock``; ``called`` what called
    workflows were given. ``served`` are jobs that do not run here: another run did them. ``imitated`` are
    machines that are not here, by label: what stands in for one is told the runner, the workflow and the row,
    and leaves artifacts. ``about`` is what else GitHub says of the event. ``lines`` are the commands that
    succeeded: file, job, command.
    """

    folder: Path
    services: Services
    machines: set[str]
    env: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    event: str = "workflow_dispatch"
    about: Mapping[str, Any] = field(default_factory=dict)
    served: Mapping[str, Ran] = field(default_factory=dict)
    imitated: Mapping[str, Callable[[Runner, str, dict[str, Any]], Ran]] = field(default_factory=dict)
    jobs: dict[str, Ran] = field(default_factory=dict)
    called: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: set[tuple[str, str, str]] = field(default_factory=set)
    result: str = ""
    _at: tuple[str, str] = ("", "")

    def start(self, name: str, inputs: Mapping[str, Any]) -> str:
        """Run a workflow as an event does; return its result."""
        said = self._read(name)["on"][self.event]
        # a workflow that has inputs, and is begun without, has empty ones
        by_hand = self.event == "workflow_dispatch"
        given = self._given(said.get("inputs", {}), inputs, name) if by_hand else Optional()
        self.env = {**self.env, "GITHUB_REPOSITORY": "somebody/rocm-wheels"}
        self.result = self._workflow(name, given, name).result
        return self.result

    def _read(self, name: str) -> dict[str, Any]:
        text = (self.folder / name).read_text(encoding="utf-8").replace("\non:\n", '\n"on":\n', 1)
        made: dict[str, Any] = yaml.safe_load(text)
        _refuse(made, _OF_WORKFLOW, name)
        callers = "permissions" not in made and set(made["on"]) == {"workflow_call"}  # jobs may have theirs
        if made.get("defaults", _SHELL) != _SHELL or not (callers or made["permissions"] == {}):
            raise Unknown(f"{name}: defaults or permissions of another kind")
        return made

    def _given(self, wanted: Mapping[str, Any], inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
        if strange := sorted(set(inputs) - set(wanted)):
            raise Unknown(f"{name} has no inputs {strange}")
        given = {}
        for key, said in wanted.items():
            if key not in inputs and said["required"]:
                raise Unknown(f"{name} needs the input {key}")
            value = inputs.get(key, said.get("default", ""))
            if isinstance(value, bool) != (said["type"] == "boolean"):
                raise Unknown(f"{name}: {key} is {value!r}, and no {said['type']}")
            given[key] = value
        return given

    def _workflow(self, name: str, inputs: dict[str, Any], place: str) -> Ran:
        made = self._read(name)
        needs: dict[str, Any] = {}
        for key, job in _in_order(made["jobs"]):
            _refuse(job, _OF_JOB, f"{name} {key}")
            mine = {one: needs[one] for one in job.get("needs", [])}
            self._at = (name, key)
            if _UNENDED & {one["result"] for one in mine.values()}:
                ran = self.jobs[f"{place}/{key}"] = Ran("waiting")
            else:
                ran = self._job(job, {"inputs": inputs, "needs": mine}, f"{place}/{key}")
            needs[key] = {"result": ran.result, "outputs": Optional(ran.outputs)}
        results = [one["result"] for one in needs.values()]
        outputs = {}
        call = made["on"].get("workflow_call") or {}
        for key, said in call.get("outputs", {}).items():
            outputs[key] = as_text(fill(said["value"], {"jobs": needs}, PURE))
        # what a called workflow hands back when a job of it failed, nobody says
        return Ran(_join(results), outputs if _join(results) == "success" else {})

    def _job(self, job: dict[str, Any], contexts: dict[str, Any], place: str) -> Ran:
        results = [one["result"] for one in contexts["needs"].values()]
        contexts |= {"github": self._github(None), "vars": Optional(self.variables), "secrets": Optional({})}
        if not condition(job.get("if"), contexts, _status(lambda: {*results} <= {"success"})):
            self.jobs[place] = Ran("skipped")
            return self.jobs[place]
        rows = [None, *()] if "strategy" not in job else list(self._rows(job["strategy"], contexts))
        ran = []
        for number, row in enumerate(rows):
            each = contexts if row is None else {**contexts, "matrix": row}
            fill(job.get("name", ""), each, PURE)
            ran.append(self._one(job, each, place if row is None else f"{place}[{number}]"))
        outputs = {key: value for one in ran for key, value in one.outputs.items()}
        return Ran(_join([one.result for one in ran]), outputs)

    def _rows(self, strategy: dict[str, Any], contexts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        _refuse(strategy, {"fail-fast", "matrix"}, "strategy")
        if strategy["fail-fast"] is not False:
            raise Unknown("fail-fast")
        matrix = fill(strategy["matrix"], contexts, PURE)
        rows = matrix.pop("include", None)
        if rows is None:
            rows = [dict(zip(matrix, one, strict=True)) for one in itertools.product(*matrix.values())]
        elif matrix:
            raise Unknown("include beside other keys of a matrix")
        if not 0 < len(rows) <= 256:
            raise Unknown(f"a matrix of {len(rows)} jobs")
        yield from rows

    def _one(self, job: dict[str, Any], contexts: dict[str, Any], place: str) -> Ran:
        if "uses" in job:
            name = job["uses"].removeprefix("./.github/workflows/")
            given = fill(job["with"], contexts, PURE)
            wanted = self._read(name)["on"]["workflow_call"]["inputs"]
            self.called[place] = self._given(wanted, given, name)
            ran = self.served.get(place) or self._workflow(name, self.called[place], place)
        else:
            ran = self.served.get(place) or self._machine(job, contexts, place)
        self.jobs[place] = ran
        return ran

    def _machine(self, job: dict[str, Any], contexts: dict[str, Any], place: str) -> Ran:
        label, minutes = (fill(job[key], contexts, PURE) for key in ("runs-on", "timeout-minutes"))
        if int(minutes) <= 0 or fill(job.get("container", {}).get("image", ""), contexts, PURE):
            raise Unknown(f"{place}: a container, or no time")
        if label in self.imitated:
            return self.imitated[label](self, self._at[0], contexts["matrix"])
        if label not in self.machines:
            return Ran("queued", steps=[("runner", "queued", f"no machine has the label {label}")])
        asked = next((str(fill(one, contexts, PURE)) for one in self._pythons(job["steps"])), "")
        workspace = workspace_of(self.services, asked if asked in self.services.pythons else "tool")
        temporary = self.services.folder / self.services.run / "temporary" / place.replace("/", "_")
        temporary.mkdir(parents=True)
        if "environment" in job:
            named = fill(job["environment"], contexts, PURE)
            self.services.asked.append(f"environment {named} for {place}")
        at = At(self.services, workspace, [], {})
        done: dict[str, Any] = {}
        ran = Ran("success")
        contexts = {**contexts, "steps": done, "github": self._github(workspace)}
        for number, step in enumerate(job["steps"]):
            _refuse(step, _OF_STEP, f"{place} step {number}")
            if not 0 < int(fill(step.get("timeout-minutes", 1), contexts, PURE)) <= int(minutes):
                raise Unknown(f"{place} step {number}: a limit beyond that of its job, or no time")
            self._step(step, at, contexts, ran, temporary / str(number))
        ran.outputs = {
            key: as_text(fill(value, contexts, PURE)) for key, value in job.get("outputs", {}).items()
        }
        return ran

    def _pythons(self, steps: list[dict[str, Any]]) -> Iterator[Any]:
        """Yield which Pythons steps set up, which tells the machine before anything is on it."""
        for step in steps:
            given = step.get("with", {})
            if step.get("id") == "python":
                yield given["python-version"]
            elif step.get("uses", "").startswith(_OUR_ACTION):
                inputs = _read_action(self.services.clone / step["uses"])["inputs"]
                yield given.get("python", inputs.get("python", {}).get("default", ""))

    def _step(self, step: dict[str, Any], at: At, contexts: dict[str, Any], ran: Ran, files: Path) -> None:
        name = step.get("name") or step.get("uses", step.get("run", "")).split("@")[0]
        begin = time.monotonic()
        outcome, said, at.outputs = "skipped", "", {}
        if condition(step.get("if"), contexts, _status(lambda: ran.result == "success")):
            try:
                said = self._done(step, at, contexts, files)
                outcome = "success"
            except Failed as failure:
                outcome, said = "failure", str(failure)
                if fill(step.get("continue-on-error", False), contexts, PURE) is not True:
                    ran.result = "failure"
        ran.steps.append((name, outcome, said))
        ran.seconds[name] = time.monotonic() - begin
        if "id" in step:
            contexts["steps"][step["id"]] = {"outcome": outcome, "outputs": Optional(at.outputs)}

    def _done(self, step: dict[str, Any], at: At, contexts: dict[str, Any], files: Path) -> str:
        if step.get("uses", "").startswith(_OUR_ACTION):
            return self._our_action(step, at, contexts, files)
        if "uses" in step:
            name, _, sha = step["uses"].partition("@")
            if name not in ACTIONS or len(sha) != 40:
                raise Unknown(f"the action {step['uses']}")
            ACTIONS[name](at, fill(step.get("with", {}), contexts, PURE))
            return ""
        own = {key: as_text(value) for key, value in fill(step.get("env", {}), contexts, PURE).items()}
        files.mkdir()
        told = {f"GITHUB_{kind}": files / kind for kind in ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY")}
        for path in told.values():
            path.touch()
        script = files / "script.sh"
        script.write_text(step["run"] + "\n", encoding="utf-8")
        env = {
            **self.env,
            "PATH": os.pathsep.join([*self._programs(), *at.paths, self.env["PATH"]]),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "somebody",
            "GITHUB_WORKSPACE": str(at.workspace),
            **{key: str(path) for key, path in told.items()},
            **own,
        }
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        where = {"cwd": at.workspace, "env": env, "text": True, "check": False}
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **where)  # noqa: PLW1510
        at.outputs.update(_outputs(told["GITHUB_OUTPUT"]))
        at.paths[:0] = reversed(told["GITHUB_PATH"].read_text(encoding="utf-8").split("\n")[:-1])
        if told["GITHUB_ENV"].read_text():
            raise Unknown("GITHUB_ENV was written to, and nothing of ours reads it")
        if ended.returncode:
            raise Failed(f"exit code {ended.returncode}\n{ended.stdout}")
        self.lines.add((*self._at, step["run"]))
        if at.services.warm and "quickstart.py setup" in step["run"]:
            warm_script(at.workspace / ".venv" / "bin" / "rocm-wheels")
        return ended.stdout

    def _our_action(self, step: dict[str, Any], at: At, contexts: dict[str, Any], files: Path) -> str:
        """Run the steps of an action of ours, which is there once a step before has checked it out.

        They see its inputs, and neither variables of the repository nor anything else of the job.
        """
        made = _read_action(at.workspace / step["uses"])
        passed = fill(step.get("with", {}), contexts, PURE)
        if strange := sorted(set(passed) - set(made["inputs"])):
            raise Unknown(f"{step['uses']} has no inputs {strange}")  # GitHub warns, and goes on
        defaults = {key: declared.get("default", "") for key, declared in made["inputs"].items()}
        inputs = {key: as_text(value) for key, value in {**defaults, **passed}.items()}
        inner = {"inputs": inputs, "github": contexts["github"], "steps": {}, "runner": {"os": "Linux"}}
        ran, where = Ran("success"), self._at
        self._at = (step["uses"].removeprefix(_OUR_ACTION), "")
        files.mkdir()
        for number, inner_step in enumerate(made["runs"]["steps"]):
            _refuse(inner_step, _OF_ACTION_STEP, f"{step['uses']} step {number}")
            if "run" in inner_step and inner_step.get("shell") != "bash":
                raise Unknown(f"{step['uses']} step {number}: no shell, or another")
            self._step(inner_step, at, inner, ran, files / str(number))
        self._at, at.outputs = where, {}
        printed = "\n".join(text for *_, text in ran.steps)
        if ran.result != "success":
            raise Failed(printed)
        outputs = made.get("outputs", {}).items()
        at.outputs = {key: as_text(fill(declared["value"], inner, PURE)) for key, declared in outputs}
        return printed

    def _programs(self) -> list[str]:
        if not self.services.warm:
            return []
        python = self.services.folder / "programs" / "python3"
        if not python.exists():
            python.parent.mkdir(parents=True)
            python.write_text(_PYTHON, encoding="utf-8")
            python.chmod(0o755)
        return [str(python.parent)]

    def _github(self, workspace: Path | None) -> dict[str, Any]:
        said: dict[str, Any] = {
            "event_name": self.event,
            "ref": "refs/heads/main",
            "ref_name": "main",
            "event": {"repository": {"default_branch": "main"}},
            "run_id": "4711",
            "run_number": "17",
            "run_attempt": "1",
        }
        said["event"] = {**said["event"], **self.about.get("event", {})}
        said |= {key: value for key, value in self.about.items() if key != "event"}
        return {**said, "workspace": str(workspace)} if workspace is not None else said


def _read_action(folder: Path) -> dict[str, Any]:
    try:
        made: dict[str, Any] = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Failed(f"there is no action in {folder}: nothing is checked out") from None
    _refuse(made, _OF_ACTION, str(folder))
    if made["runs"].keys() != {"using", "steps"} or made["runs"]["using"] != "composite":
        raise Unknown(f"{folder}: not the steps of a composite action")
    return made


def _outputs(path: Path) -> dict[str, str]:
    found, lines = {}, iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        name, mark, end = line.partition("<<")
        if mark and "=" not in name:
            found[name] = "\n".join(itertools.takewhile(lambda one, end=end: one != end, lines))
        else:
            name, _, found_value = line.partition("=")
            found[name] = found_value
    return found


def _join(results: list[str]) -> str:
    """Return what jobs come to together: as long as one has not ended, nobody knows."""
    return next((one for one in ("queued", "waiting", "failure") if one in results), "success")


def _status(succeeded: Callable[[], bool]) -> dict[str, Callable[..., Any]]:
    never = {"cancelled": lambda: False}
    return {**PURE, **never, "success": succeeded}


def _refuse(made: Mapping[str, Any], known: set[str], where: str) -> None:
    if strange := sorted(set(made) - known):
        raise Unknown(f"{where}: keys that are not known: {strange}")


def _in_order(jobs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    done: set[str] = set()
    while len(done) < len(jobs):
        ready = [key for key, job in jobs.items() if key not in done and {*job.get("needs", [])} <= done]
        if not ready:
            raise Unknown(f"jobs wait for each other: {sorted(set(jobs) - done)}")
        yield ready[0], jobs[ready[0]]
        done.add(ready[0])
