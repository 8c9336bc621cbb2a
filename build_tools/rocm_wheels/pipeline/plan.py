"""Plan a run: check the request, settle every step, print what will be done, keep it as a file.

Planning is pure: the same facts, the same answer. The file says what a run was asked for, the trees it is
of, and its steps. No secret is in it: of a package index that has a password, the step that installs from
it is told the address again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from rocm_wheels import __version__
from rocm_wheels.core import errors, files, log, records, shell, tables
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import versions
from rocm_wheels.models.project import Project
from rocm_wheels.models.project_names import use_planned_recipes
from rocm_wheels.pipeline import provided_wheel_checks, provided_wheels, source_checks, step_kinds, tools
from rocm_wheels.pipeline.estimates import Estimate
from rocm_wheels.pipeline.facts import Facts, gather_facts
from rocm_wheels.pipeline.planner import NoTargetsLeft, Planner
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest, select_projects
from rocm_wheels.pipeline.status import shorten_digests
from rocm_wheels.pipeline.step import (
    COMPILING_KINDS,
    BuildCell,
    BuiltAgainst,
    KnownAfter,
    Plan,
    Step,
    StepGraph,
    StepInput,
    StepKind,
    make_step_graph,
)
from rocm_wheels.sdk import build_environment, rocm_prefix
from rocm_wheels.sources import git
from rocm_wheels.sources.trees import TreeIdentity


def settle_step(planner: Planner, name: str) -> Step:
    """Return a step with all that is known of it now. Raises UsageError for targets that cannot be built."""
    step = planner.graph.steps[name]
    try:
        return step_kinds.STEP_KINDS[step.kind].settle(planner, step)
    except NoTargetsLeft as nothing:
        return replace(step, verdict="left out", why=nothing.message)


def settle_all_steps(graph: StepGraph, facts: Facts) -> dict[str, Step]:
    """Settle all steps, in their order."""
    settled: dict[str, Step] = {}
    for name in graph.steps:
        settled[name] = settle_step(Planner(graph, facts, settled), name)
    return settled


def list_run_targets(graph: StepGraph, facts: Facts, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return every target of a run, as far as they are known."""
    planner = Planner(graph, facts, {step.id: step for step in steps})
    run_targets: dict[str, None] = {}
    for step in steps:
        targets = (
            planner.find_targets(step.cell)
            if step.kind in COMPILING_KINDS and step.verdict != "left out"
            else ()
        )
        if not isinstance(targets, KnownAfter):
            run_targets.update(dict.fromkeys(targets))
    return tuple(run_targets)


_VERDICT_WORDS = {"run": "runs", "skip": "done", "known later": "later", "left out": "out"}


def format_plan(plan: Plan, *, details: bool, of_done: bool = True) -> str:
    """Write a plan: each step with whether and why it runs, then what all of it is expected to take.

    ``details``: all that is known of each step; with ``of_done`` of those too that do not run.
    """
    steps = list(plan)
    rows = []
    for step in steps:
        why = "" if step.verdict == "skip" else shorten_digests(step.why)
        cost = f"  ({_format_cost(step)})" if step.estimate is not None and step.may_run else ""
        rows.append((_VERDICT_WORDS[step.verdict], step.id, f"{why}{cost}"))
    lines: list[str] = []
    for step, line in zip(steps, tables.align_rows(rows), strict=True):
        lines.append(line)
        if details and (of_done or step.may_run):
            lines += [*(f"         {line}" for line in _format_details(step)), ""]
    lines += [""] if lines[-1:] != [""] else []
    return "\n".join([*lines, *map(format_built_against, plan.against), *_format_totals(steps)])


def format_built_against(wheel: BuiltAgainst) -> str:
    """Say what is built against a wheel that the run has not built, and where that comes from."""
    code = f", with code for {wheel.targets}" if wheel.targets else ""
    wheel_text = f"{wheel.project} {wheel.version} for {wheel.python} ({wheel.source}: {wheel.place})"
    return f"built against {wheel_text}{code}"


def _format_details(step: Step) -> Iterator[str]:
    yield f"fingerprint  {step.fingerprint or step.waits_for}"
    if step.after:
        yield f"after        {', '.join(step.after)}"
    if step.behind:
        yield f"behind       {', '.join(step.behind)}"
    if step.command:
        yield f"command      {step.command}"
    for name, value in step.environment.items():
        yield f"environment  {name}" + (" is removed" if value is None else f"={value}")
    for name, input_value in step.inputs.items():
        if step.environment.get(name) != input_value:  # a variable that reaches a compiler is shown already
            yield f"input        {name}: {shell.hide_variable_value(name, str(input_value))}"
    if step.estimate is not None:
        yield f"expected     {_format_cost(step)}; {step.estimate.source}; disk as stated"


def _format_cost(step: Step) -> str:
    estimate = step.estimate
    assert estimate is not None
    size, memory = tables.format_size(estimate.disk), tables.format_size(estimate.memory)
    return f"about {tables.format_duration(estimate.seconds)}, {size} disk, {memory} memory"


def _format_totals(steps: Iterable[Step]) -> Iterator[str]:
    """Say how many steps run, and what is expected of them, one after another, with the sources of that."""
    steps = list(steps)
    runs = [step for step in steps if step.may_run]
    later = sum(step.verdict == "known later" for step in runs)
    text = (
        f"{tables.format_count(len(steps), 'step')}: {len(runs) - later} to run, "
        f"{len(steps) - len(runs)} done"
    )
    yield text + (f", {later} depend on what others make" if later else "")
    estimates = [step.estimate for step in runs if step.estimate is not None]
    if estimates:
        memory = max(estimate.memory for estimate in estimates)
        yield (
            "expected, one after another: "
            f"{tables.format_duration(sum(estimate.seconds for estimate in estimates))}, "
            f"{tables.format_size(sum(estimate.disk for estimate in estimates))} disk, "
            f"{tables.format_size(memory)} memory at most"
        )
        for source in sorted({_describe_source(estimate) for estimate in estimates}):
            yield f"  {source}"


def _describe_source(estimate: Estimate) -> str:
    """Return what an estimate comes from: of a recorded run its name (``--details`` have the rest)."""
    run, scaled, _ = estimate.source.partition(" (")
    return f"as in {run}; disk as stated" if scaled and run.startswith("run ") else estimate.source


def explain_step(step: Step, *, never: bool, changes: Iterable[str]) -> str:
    """Say of one step whether it runs, and all that changed since it was done last, if it ``never`` was."""
    lines = [f"{step.id}: {step.why if step.verdict != 'skip' else 'up to date'}"]
    lines += [f"  {line}" for line in changes if line not in step.why]
    if never:
        lines.append("  it has not run in this work directory")
    if (waits := step.waits_for) is not None:
        names = [name for name, value in step.inputs.items() if value is waits or value == waits]
        lines.append(f"  {', '.join(names)}: {waits}")
    return "\n".join(lines)


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was looked over, before anything is known of the disk but source trees and lock."""

    request: WheelsRequest
    projects: tuple[Project, ...]
    env: Mapping[str, str]
    locked: source_checks.LockedBuild | None


@dataclass(frozen=True)
class PlannedRun:
    """A plan with what it was made of."""

    facts: Facts
    graph: StepGraph
    plan: Plan

    @property
    def plan_file(self) -> PlanFile:
        """What of it goes into a file."""
        trees = {name: tree.identity for name, tree in self.facts.trees.items()}
        return PlanFile.from_plan(self.facts.request, self.plan, trees, self.facts.locked)


def check_request(request: WheelsRequest, env: Mapping[str, str]) -> CheckedRequest:
    """Refuse what cannot be right, and compare the trees with the lock where there is one."""
    projects = select_projects(request)
    _check_folders(request, projects)
    provided_wheels.refuse_stray_wheels(request, projects)
    env = clean_environment(request, env)
    locked, asked_packages = None, bool(_list_unused_options(request.sdk))
    if request.lock is not None:
        request, locked = source_checks.apply_lock(request, request.lock, projects, env)
    if not asked_packages:
        request = choose_rocm(request, env)
    if request.sdk.rocm_path is not None:
        rocm_prefix.inspect_prefix(request.sdk.rocm_path, env)  # before anything is written
    _check_packaging(request)
    _check_tests(request, projects)
    project_names = {project.name for project in projects}
    request = replace(request, chosen={name: name in project_names for name in request.sources})
    _ = request.target_sets
    if (
        not request.install_rocm
        and request.packaging != "fat"
        and (unused := _list_unused_options(request.sdk))
    ):
        log.log_note(f"{', '.join(unused)}: of no effect on ROCm packages, which are taken as installed")
    return CheckedRequest(request, tuple(projects), env, locked)


def choose_rocm(request: WheelsRequest, env: Mapping[str, str]) -> WheelsRequest:
    """Return the request on the installed ROCm that ``ROCM_PATH`` names, where nothing else says which.

    Packages that are asked for, and those that the work directory has, go before it.
    """
    path, sdk = env.get(_ROCM_VARIABLE, ""), request.sdk
    if not path or request.install_rocm or sdk.rocm_path is not None or sdk.current_env:
        return request
    workspace = Workspace(request.work)
    environments = [
        build_environment.check_environment(request.sdk_for(p), workspace, env) for p in request.interpreters
    ]
    if any(status.environment is not None for status in environments):
        log.log_note(
            f"{_ROCM_VARIABLE}={path} does not count: ROCm's packages are installed (--rocm-path takes it)"
        )
        return request
    log.log_note(f"{_ROCM_VARIABLE}: building on the ROCm in {path} (--install-rocm takes packages instead)")
    return replace(request, install_rocm=True, sdk=replace(sdk, rocm_path=Path(path).absolute()))


def clean_environment(
    request: WheelsRequest, env: Mapping[str, str], *, quietly: bool = False
) -> Mapping[str, str]:
    """Return the environment of all work: that of no git hook, with no packages before those of a build."""
    env = git.strip_repository_variables(env)
    if request.sdk.current_env:
        return env
    strangers = [name for name in ("PYTHONPATH", "PYTHONHOME") if env.get(name)]
    if strangers and not quietly:
        log.log_note(f"{' and '.join(strangers)}: not for the build environment (--current-env takes them)")
    return {name: value for name, value in env.items() if name not in strangers}


def plan_run(checked: CheckedRequest) -> PlannedRun:
    """Look everything up and plan. Raises what the looks raise."""
    facts = gather_facts(checked.request, checked.projects, checked.env, checked.locked)
    tools.check_locked_tools(facts)
    if checked.locked is not None:
        for python in facts.pythons.values():
            if python.ready is not None:
                checked.locked.check_rocm(python.ready.sdk.version)
    graph = make_step_graph(facts)
    _refuse_run_misfits(graph, facts)
    steps = settle_all_steps(graph, facts)
    targets = list_run_targets(graph, facts, list(steps.values()))
    return PlannedRun(facts, graph, Plan(steps, targets, provided_wheel_checks.list_built_against(facts)))


def _refuse_run_misfits(graph: StepGraph, facts: Facts) -> None:
    """Refuse all wheels at once that cannot be built against, as far as that is known."""
    planner, builds = Planner(graph, facts, {}), []
    asking = {
        project.name: project
        for project in facts.projects
        if not all(map(facts.builds_project, project.build.after))
    }
    for step in graph.steps.values():
        if step.kind in COMPILING_KINDS and step.project in asking:
            targets = planner.find_targets(step.cell)
            known_targets = () if isinstance(targets, KnownAfter) else targets
            builds.append((asking[step.project], step.cell.tag, known_targets))
    provided_wheel_checks.refuse_misfits(facts, builds)
    provided_wheel_checks.warn_of_unread_code(facts, builds)


def log_rocm_and_targets(planned: PlannedRun) -> None:
    """Tell which ROCm and which targets it will be, as far as that is known."""
    facts = planned.facts
    ready = next((python.ready for python in facts.pythons.values() if python.ready is not None), None)
    sdk = facts.installed_rocm if ready is None else ready.sdk
    if sdk is None:
        return
    if sdk.prefix is not None:
        for name, text in sdk.prefix.describe()[1:-1]:
            log.log_note(f"{name}: {text}")
    source = f" (from {facts.locked.path})" if facts.locked is not None and facts.locked.lock.targets else ""
    log.log_note(f"ROCm {sdk.version} at {sdk.root}; targets {', '.join(planned.plan.targets)}{source}")


def _check_folders(request: WheelsRequest, projects: Sequence[Project]) -> None:
    for project in projects:
        tree = request.sources[project.name].resolve()
        for folder, option in ((request.output, "--output-dir"), (request.work, "--work-dir")):
            if folder.resolve().is_relative_to(tree):
                raise errors.UsageError(
                    f"{option} {folder} is inside the source tree of {project.name}, {tree}",
                    tip="choose a folder outside: what is put there would count as changed sources",
                )
    versions.make_version_suffix("0", request.version_suffix)


def _check_packaging(request: WheelsRequest) -> None:
    """Raise UsageError where a way to package wheels lacks what it needs."""
    if request.sdk.rocm_path is not None and request.packaging in ("fat", "split"):
        raise errors.UsageError(
            f"--packaging {request.packaging} is for a torch that requires ROCm's packages, and on an"
            " installed ROCm it requires none",
            tip="`rocm packages --from-prefix` makes packages of it: build with these, by --find-links",
        )
    links = request.sdk.find_links
    if request.packaging == "fat" and ("://" in links if links else not request.sdk.index_url):
        raise errors.UsageError(
            "--packaging fat takes ROCm's wheels from a folder or an index, and none is given",
            tip="name what its ROCm is installed from: --find-links DIR or --rocm-index URL",
        )


def _check_tests(request: WheelsRequest, projects: Sequence[Project]) -> None:
    """Raise UsageError where there is nothing to test, or nothing to test it by."""
    builds_torch = any(project.name == "pytorch" for project in projects)
    if request.tests and not builds_torch and not request.given_wheels.get("pytorch"):
        raise errors.UsageError(
            "--test tests a torch, and none is built or given", tip="build it too, or give its wheel"
        )
    torch_tree = request.sources["pytorch"]
    if "torch" in request.tests and not torch_tree.is_dir():
        raise errors.UsageError(
            f"--test torch: torch's own tests are in its sources, and there is no {torch_tree}",
            tip="check them out, or give --pytorch-dir",
        )


def _list_unused_options(request: SdkRequest) -> list[str]:
    """Name the options given that say where ROCm packages would come from."""
    option_values = {
        "--rocm-index": request.index_url,
        "--find-links": request.find_links,
        "--rocm-extras": request.extras,
    }
    return [option for option, value in option_values.items() if value]


_ROCM_VARIABLE = "ROCM_PATH"
PLAN_FORMAT = 2
_STEP_ID = re.compile(r"\w[\w.-]*")
_ADDRESS_OPTIONS = {"index_url": "--rocm-index", "find_links": "--find-links"}
_REQUEST_ADAPTER = TypeAdapter(WheelsRequest)


@dataclass(frozen=True)
class PlanFile:
    """A plan with all that running its steps needs. ``lock``: path and SHA-256 of the lock it is of."""

    request: WheelsRequest
    plan: Plan
    identities: Mapping[str, TreeIdentity]
    lock: tuple[Path, str] | None = None

    @classmethod
    def from_plan(
        cls,
        request: WheelsRequest,
        plan: Plan,
        identities: Mapping[str, TreeIdentity],
        locked: source_checks.LockedBuild | None,
    ) -> PlanFile:
        """Make it from what a run has."""
        return cls(
            request, plan, identities, None if locked is None else (locked.path.absolute(), locked.digest)
        )


def write_plan(path: Path, file: PlanFile) -> None:
    """Write a plan, whole or not at all."""
    files.write_json_file(path, make_plan_json(file))


def make_plan_json(file: PlanFile) -> dict[str, Any]:
    """Return a plan as plain JSON values."""
    sdk = file.request.sdk
    urls: dict[str, Any] = {name: getattr(sdk, name) for name in _ADDRESS_OPTIONS}
    hidden = {name: shell.hide_credentials(url) for name, url in urls.items() if url}
    public_request = replace(
        file.request, sdk=replace(sdk, **{**urls, **hidden}), lock=file.lock and file.lock[0]
    )
    return {
        "format": PLAN_FORMAT,
        "rocm-wheels": __version__,
        "request": _REQUEST_ADAPTER.dump_python(public_request, mode="json"),
        "lock": None if file.lock is None else {"path": str(file.lock[0]), "sha256": file.lock[1]},
        "targets": list(file.plan.targets),
        "built against": [asdict(wheel) for wheel in file.plan.against],
        "trees": {name: asdict(identity) for name, identity in file.identities.items()},
        "steps": [make_step_json(step) for step in file.plan],
    }


def make_step_json(step: Step) -> dict[str, Any]:
    """Return a step as plain JSON values; an input that is known later is an object that says after what."""
    inputs = {
        name: {"known after": value.step} if isinstance(value, KnownAfter) else value
        for name, value in step.inputs.items()
    }
    return {
        "id": step.id,
        "kind": step.kind,
        "python": step.cell.tag,
        "target set": step.cell.target_set,
        "project": step.project,
        "after": list(step.after),
        "behind": list(step.behind),
        "delivers": step.delivers,
        "verdict": step.verdict,
        "why": step.why,
        "fingerprint": step.fingerprint,
        "inputs": inputs,
        "command": step.command,
        "environment": dict(step.environment),
        "estimate": None if step.estimate is None else asdict(step.estimate),
    }


def read_plan(path: Path) -> PlanFile:
    """Read a plan, and have the recipes that it was made with from now on, whatever others there are here.

    DataError when it is none, or one of another version of this program.
    """
    raw = records.read_json_file(path, complaint="is no plan", tip="make one: rocm-wheels plan … -o FILE")
    if not isinstance(raw, dict) or raw.get("format") != PLAN_FORMAT:
        raise errors.DataError(
            f"{path} is no plan of this version ({__version__})", tip="make it again with `plan`"
        )
    try:
        request = _REQUEST_ADAPTER.validate_python(raw["request"])
        use_planned_recipes(request.recipes)
        steps = [_parse_step(fields) for fields in raw["steps"]]
        _refuse_unsound_steps(steps)
        lock = raw["lock"]
        return PlanFile(
            request,
            Plan(
                {step.id: step for step in steps},
                tuple(raw["targets"]),
                tuple(BuiltAgainst(**fields) for fields in raw["built against"]),
            ),
            {name: TreeIdentity(**fields) for name, fields in raw["trees"].items()},
            None if lock is None else (Path(lock["path"]), str(lock["sha256"])),
        )
    except ValidationError as cause:
        wrong = f"{path} is a damaged plan: its request: {records.summarize_faults(cause, WheelsRequest)}"
        raise errors.DataError(wrong, tip="make it again with `plan`") from None
    except (KeyError, TypeError, ValueError) as cause:
        raise errors.DataError(f"{path} is a damaged plan", tip="make it again with `plan`") from cause


def restore_addresses(file: PlanFile, step: str, addresses: Mapping[str, str | None]) -> PlanFile:
    """Return the plan with the given ``addresses`` of packages, by their names in its request.

    Raises UsageError where a password is not in the file, not given, and the step needs it.
    """
    sdk = file.request.sdk
    for name, option in _ADDRESS_OPTIONS.items():
        address = getattr(sdk, name)
        if (
            address
            and shell.HIDDEN in address
            and not addresses.get(name)
            and file.plan.find_step(step).kind in ("install-rocm", "fat")
        ):
            raise errors.UsageError(
                f"the plan has {option} {address}: its password is not in the plan",
                tip=f"give {option}, or set ROCM_WHEELS_{name.upper()}",
            )
    replacements: dict[str, Any] = {name: addresses[name] for name in _ADDRESS_OPTIONS if addresses.get(name)}
    return replace(file, request=replace(file.request, sdk=replace(sdk, **replacements)))


def _refuse_unsound_steps(steps: Sequence[Step]) -> None:
    """Raise ValueError for ids that are no names (files are called by them), and for what is not there."""
    step_ids = {step.id for step in steps}
    for step in steps:
        if not _STEP_ID.fullmatch(step.id) or step.kind not in get_args(StepKind):
            raise ValueError(f"{step.id} ({step.kind}) is no step")
        if missing := {*step.after, *step.behind} - step_ids:
            raise ValueError(f"{step.id} waits for {', '.join(sorted(missing))}, which the plan has not")


def _parse_step(raw: Mapping[str, Any]) -> Step:
    inputs: dict[str, StepInput] = {
        name: KnownAfter(value["known after"]) if isinstance(value, dict) else str(value)
        for name, value in raw["inputs"].items()
    }
    return Step(
        id=raw["id"],
        kind=raw["kind"],
        cell=BuildCell(raw["python"], raw["target set"]),
        project=raw["project"],
        after=tuple(raw["after"]),
        behind=tuple(raw["behind"]),
        delivers=bool(raw["delivers"]),
        inputs=inputs,
        command=raw["command"],
        environment=raw["environment"],
        verdict=raw["verdict"],
        why=raw["why"],
    )
