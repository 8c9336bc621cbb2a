"""Plan a run: check the request, settle every step, print what will be done, keep it as a file.

A plan is of one Python and one set of targets, a cell of what was asked for. Planning is pure: the same
facts, the same answer. The file says what was asked for, the trees it is of, and its steps. No secret is in
it: of a package index that has a password, the step that installs from it is told the address again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rocm_wheels import __version__
from rocm_wheels.core import errors, files, log, records, shell, tables
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import versions
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.models.project_names import use_planned_recipes
from rocm_wheels.pipeline import (
    estimates,
    provided_wheel_checks,
    provided_wheels,
    source_checks,
    step_kinds,
    tools,
)
from rocm_wheels.pipeline.facts import Facts, TreeFacts, gather_facts, make_python_tag
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest, select_projects, split_request
from rocm_wheels.pipeline.status import shorten_digests
from rocm_wheels.pipeline.step import (
    COMPILING_KINDS,
    BuiltAgainst,
    NotYet,
    Plan,
    Step,
    make_steps,
)
from rocm_wheels.sdk import build_environment, rocm_prefix
from rocm_wheels.sources import git
from rocm_wheels.sources.trees import TreeIdentity


def settle_step(planner: Planner, name: str) -> Step:
    """Return a step with all that is known of it now. Raises UsageError for targets that cannot be built."""
    # of the step of a plan it may be known by now what it waited for
    step, inputs, facts = replace(planner.steps[name], waits_for=None), dict[str, str](), planner.facts
    if step.kind == "build":
        project = load_project(str(step.project))
        count = len(planner.known_targets()) if project.has_device_code else 1
        estimate = estimates.estimate_step(project.name, max(count, 1), facts.machine, facts.history)
        step = replace(step, estimate=estimate)
    try:
        return step_kinds.STEP_KINDS[step.kind].settle(planner, step, inputs)
    except NotYet as unknown:
        return decide_verdict(planner, replace(step, waits_for=unknown.step), inputs)


def settle_all_steps(steps: Mapping[str, Step], facts: Facts) -> dict[str, Step]:
    """Settle all steps, in their order."""
    settled: dict[str, Step] = {}
    for name in steps:
        settled[name] = settle_step(Planner(steps, facts, settled), name)
    return settled


_VERDICT_WORDS = {"run": "runs", "skip": "done", "known later": "later"}


def format_plan(plan: Plan, *, details: bool, of_done: bool = True) -> str:
    """Write a plan: each step with whether and why it runs, then what all of it is expected to take.

    ``details``: all that is known of each step; with ``of_done`` of those too that do not run.
    """
    steps = list(plan)
    rows = []
    for step in steps:
        why = "" if step.verdict == "skip" else shorten_digests(step.why)
        cost = f"  ({_format_cost(step.estimate)})" if step.estimate is not None and step.may_run else ""
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
    yield f"fingerprint  {step.fingerprint or f'known after {step.waits_for}'}"
    if step.after:
        yield f"after        {', '.join(step.after)}"
    if step.command:
        yield f"command      {step.command}"
    for name, value in step.environment.items():
        yield f"environment  {name}" + (" is removed" if value is None else f"={value}")
    for name, input_value in step.inputs.items():
        if step.environment.get(name) != input_value:  # a variable that reaches a compiler is shown already
            yield f"input        {name}: {shell.hide_variable_value(name, input_value)}"
    if step.waits_for is not None:
        yield f"input        everything else: known after {step.waits_for}"
    if step.estimate is not None:
        yield f"expected     {_format_cost(step.estimate)}; {step.estimate.source}; disk as stated"


def _format_cost(estimate: estimates.Estimate) -> str:
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
    expected = [step.estimate for step in runs if step.estimate is not None]
    if expected:
        memory = max(estimate.memory for estimate in expected)
        yield (
            "expected, one after another: "
            f"{tables.format_duration(sum(estimate.seconds for estimate in expected))}, "
            f"{tables.format_size(sum(estimate.disk for estimate in expected))} disk, "
            f"{tables.format_size(memory)} memory at most"
        )
        sources = set()
        for estimate in expected:  # of a recorded run its name; details have the rest
            run, scaled, _ = estimate.source.partition(" (")
            of_run = scaled and run.startswith("run ")
            sources.add(f"as in {run}; disk as stated" if of_run else estimate.source)
        yield from (f"  {source}" for source in sorted(sources))


def explain_step(step: Step, *, never: bool, changes: Iterable[str]) -> str:
    """Say of one step whether it runs, and all that changed since it was done last, if it ``never`` was."""
    lines = [f"{step.id}: {step.why if step.verdict != 'skip' else 'up to date'}"]
    lines += [f"  {line}" for line in changes if line not in step.why]
    if never:
        lines.append("  it has not run in this work directory")
    if step.waits_for is not None:
        lines.append(f"  everything else: known after {step.waits_for}")
    return "\n".join(lines)


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was looked over, before anything is known of the disk but source trees and lock.

    ``cells``: the requests of its Pythons and target sets, in the order in which they are built.
    """

    request: WheelsRequest
    projects: tuple[Project, ...]
    env: Mapping[str, str]
    locked: source_checks.LockedBuild | None
    cells: tuple[WheelsRequest, ...]


@dataclass(frozen=True)
class PlannedRun:
    """The plan of a cell with what it was made of: facts, and its bare steps."""

    facts: Facts
    steps: Mapping[str, Step]
    plan: Plan

    @property
    def plan_file(self) -> PlanFile:
        """What of it goes into a file."""
        trees = {name: tree.identity for name, tree in self.facts.trees.items()}
        return PlanFile.from_plan(self.facts.request, self.plan, trees, self.facts.locked)


def check_request(request: WheelsRequest, env: Mapping[str, str]) -> CheckedRequest:
    """Refuse what cannot be right, and compare the trees with the lock where there is one."""
    in_lock: Iterable[str] = ()
    if request.lock is not None:
        from rocm_wheels.sources.lock import open_lock  # slow to import

        in_lock = open_lock(request.lock, request.platform).lock.projects
    projects = select_projects(request, in_lock)
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
    cells = split_request(request)
    _check_pythons(request, env)
    if (
        not request.install_rocm
        and request.packaging != "fat"
        and (unused := _list_unused_options(request.sdk))
    ):
        log.log_note(f"{', '.join(unused)}: of no effect on ROCm packages, which are taken as installed")
    return CheckedRequest(request, tuple(projects), env, locked, cells)


def _check_pythons(request: WheelsRequest, env: Mapping[str, str]) -> None:
    """Refuse two interpreters of one kind, and given wheels that are for none of them."""
    pythons: dict[str, Path] = {}
    for python in request.interpreters:
        tag = make_python_tag(build_environment.query_python_version(python, env))
        if tag in pythons:
            raise errors.UsageError(f"{pythons[tag]} and {python} are both {tag}")
        pythons[tag] = python
    provided_wheels.refuse_unused_wheels(request.given_wheels, list(pythons))


def choose_rocm(request: WheelsRequest, env: Mapping[str, str]) -> WheelsRequest:
    """Return the request on the installed ROCm that ``ROCM_PATH`` names, where nothing else says which.

    Packages that are asked for, and those that the work directory has, go before it.
    """
    path, sdk = env.get(_ROCM_VARIABLE, ""), request.sdk
    if not path or request.install_rocm or sdk.rocm_path is not None or sdk.current_env:
        return request
    workspace = Workspace(request.work)
    environments = [
        build_environment.check_environment(replace(sdk, python=python), workspace, env)
        for python in request.interpreters
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


def plan_run(
    checked: CheckedRequest,
    cell: WheelsRequest | None = None,
    trees: Mapping[str, TreeFacts] | None = None,
    looks: Mapping[str, source_checks.SourceLook] | None = None,
) -> PlannedRun:
    """Look everything up and plan a cell, the first one as a rule. Raises what the looks raise.

    ``trees``: what another cell has found in the source trees, which are the same for all; ``looks`` at them
    since ``checked`` was made.
    """
    if looks is None:
        looks = checked.locked.looks if checked.locked is not None else {}
    facts = gather_facts(
        cell or checked.cells[0], checked.projects, checked.env, checked.locked, trees=trees, looks=looks
    )
    tools.check_locked_tools(facts)
    if checked.locked is not None and facts.python.ready is not None:
        checked.locked.check_rocm(facts.python.ready.sdk.version)
    steps = make_steps(facts)
    planner = Planner(steps, facts, {})
    if any(step.kind in COMPILING_KINDS for step in steps.values()):
        # all wheels at once that cannot be built against, as far as that is known
        asking = [p for p in facts.projects if not all(map(facts.builds_project, p.build.after))]
        provided_wheel_checks.refuse_misfits(
            facts, [(project, planner.known_targets()) for project in asking]
        )
        provided_wheel_checks.warn_of_unread_code(facts, asking)
    settled = settle_all_steps(steps, facts)
    targets = Planner(steps, facts, settled).known_targets()
    against = provided_wheel_checks.list_built_against(facts)
    return PlannedRun(facts, steps, Plan(settled, targets, against, facts.python.tag))


def plan_cells(checked: CheckedRequest, *, hipify: bool = False) -> tuple[PlannedRun, ...]:
    """Plan every cell: what is wrong with one is said before another begins.

    Sources that changed since they were hipified are hipified first, or else told of.
    """
    projects, sources, env = checked.projects, checked.request.sources, checked.env
    looks = dict(checked.locked.looks if checked.locked is not None else {})
    looks = looks or source_checks.look_at_sources(projects, sources, env)
    if hipify:
        looks = source_checks.hipify_stale_sources(projects, sources, env, looks)
    else:
        for project in source_checks.find_stale_sources(projects, sources, env, looks):
            tree = sources[project.name]
            log.log_note(f"{tree} has changes that are not hipified yet; `build` hipifies them first")
    plans: list[PlannedRun] = []
    for cell in checked.cells:
        plans.append(plan_run(checked, cell, plans[0].facts.trees if plans else None, looks))
    return tuple(plans)


def log_rocm_and_targets(planned: PlannedRun) -> None:
    """Tell which ROCm and which targets it will be, as far as that is known."""
    facts = planned.facts
    if (sdk := facts.sdk) is None:
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
    if request.packaging == "asan" and request.platform != "linux":
        raise errors.UsageError(f"--packaging asan is for Linux, and this is for {request.platform}")
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
            tip="check them out, or name the folder that holds them: --source-dir",
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
PLAN_FORMAT = 4
_STEP_ID = re.compile(r"\w[\w.-]*")
_ADDRESS_OPTIONS = {"index_url": "--rocm-index", "find_links": "--find-links"}


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


@dataclass(frozen=True)
class _WrittenPlan:
    """A plan as it is in its file."""

    format: int
    version: str
    request: WheelsRequest
    lock: tuple[Path, str] | None
    python: str
    targets: tuple[str, ...]
    against: tuple[BuiltAgainst, ...]
    trees: Mapping[str, TreeIdentity]
    steps: tuple[Step, ...]


_ADAPTER = TypeAdapter(_WrittenPlan)


def write_plan(path: Path, file: PlanFile) -> None:
    """Write a plan, whole or not at all."""
    files.write_json_file(path, make_plan_json(file))


def make_plan_json(file: PlanFile) -> dict[str, Any]:
    """Return a plan as plain JSON values, each step with its Python, and its fingerprint where known."""
    sdk, plan = file.request.sdk, file.plan
    urls: dict[str, Any] = {name: getattr(sdk, name) for name in _ADDRESS_OPTIONS}
    hidden = {name: shell.hide_credentials(url) for name, url in urls.items() if url}
    public_request = replace(
        file.request, sdk=replace(sdk, **{**urls, **hidden}), lock=file.lock and file.lock[0]
    )
    steps = tuple(plan)
    written = _WrittenPlan(
        PLAN_FORMAT, __version__, public_request, file.lock, plan.python, plan.targets, plan.against,
        file.identities, steps,
    )  # fmt: skip
    document: dict[str, Any] = _ADAPTER.dump_python(written, mode="json")
    for step, fields in zip(steps, document["steps"], strict=True):
        fields |= {"python": plan.python, "fingerprint": step.fingerprint}
    return document


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
        written = _ADAPTER.validate_python(raw)
        _refuse_unsound_steps(written.steps)
    except ValidationError as cause:
        faults = records.summarize_faults(cause, _WrittenPlan)
        raise errors.DataError(
            f"{path} is a damaged plan: {faults}", tip="make it again with `plan`"
        ) from None
    except ValueError as wrong:
        raise errors.DataError(
            f"{path} is a damaged plan: {wrong}", tip="make it again with `plan`"
        ) from None
    use_planned_recipes(written.request.recipes)
    plan = Plan({step.id: step for step in written.steps}, written.targets, written.against, written.python)
    return PlanFile(written.request, plan, written.trees, written.lock)


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
                tip=f"set ROCM_WHEELS_{name.upper()}",
            )
    replacements: dict[str, Any] = {name: addresses[name] for name in _ADDRESS_OPTIONS if addresses.get(name)}
    return replace(file, request=replace(file.request, sdk=replace(sdk, **replacements)))


def _refuse_unsound_steps(steps: Sequence[Step]) -> None:
    """Raise ValueError for ids that are no names (files are called by them), and for what is not there."""
    step_ids = {step.id for step in steps}
    for step in steps:
        if not _STEP_ID.fullmatch(step.id):
            raise ValueError(f"{step.id} is no name of a step")
        if missing := set(step.after) - step_ids:
            raise ValueError(f"{step.id} waits for {', '.join(sorted(missing))}, which the plan has not")
