"""The matrix of CI: which cells a run builds, why not the others, and which of them are built as one.

A cell is a GPU family, a Python, a torch line and a platform. In the layout ``per-family`` each cell is a
build, with a set for each family of a line; in ``multi-arch`` the cells of a Python are one build for the
targets of all of them, and a line has one set. Tests are of cells. Pure: all follows from the tables and
the selection, its day among it (what takes turns), in the order of the tables.

Cells share a lock and a checkout for each line and platform, wheels that serve every family (triton,
torchaudio) for each Python, and a compiler cache that one build of a line and platform fills for the others.
Hours of jobs are what ``data/estimates.yaml`` and recipes state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, lru_cache
from itertools import islice, product
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar, get_args

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, tables
from rocm_wheels.models import ci, facts, gfx, project_names, release_lines, torch_tests
from rocm_wheels.models.project import Project, get_step_costs, list_usual_projects

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_TIME_MARGIN = 2.0  # a job may take so many times what is expected of it


class MatrixCell(NamedTuple):
    """A family of GPUs, a Python (``3.12``, ``3.14t``), a torch line and a platform."""

    family: str
    python: str
    line: str
    platform: project_names.Platform

    def __str__(self) -> str:
        """Return it as people name it: ``gfx94X-dcgpu/3.12/2.13/linux``."""
        return f"{self.family}/{self.python}/{self.line}/{self.platform}"


@dataclass(frozen=True)
class MatrixSelection:
    """What a run is asked for. Empty: what the trigger has. ``rocm``: another than the newest of AMD.

    ``suites`` of torch's own tests that are named run of every cell; ``day`` (UTC, as workflows are
    scheduled) is what takes turns by: who asks says it, so that a plan made after midnight is the same.
    ``pool``: tests run on machines of this purpose alone.
    """

    trigger: str = "nightly"
    families: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    platforms: tuple[project_names.Platform, ...] = ()
    rocm: str | None = None
    layout: ci.MatrixLayout | None = None
    packaging: project_names.MatrixPackaging | None = None
    suites: tuple[str, ...] = ()
    pool: str = ""
    day: date = field(kw_only=True)


@dataclass(frozen=True)
class PlannedSuite:
    """A suite of torch's own tests of a cell, cut into ``shards``.

    ``gpus``: ``every`` for machines with several GPUs, else ``one``. ``testers`` are the labels of the
    machines of its shards, in order.
    """

    name: str
    shards: int
    gpus: Literal["one", "every"]
    testers: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuiltCell:
    """A cell that is built. ``tests`` are those that run on a ``tester``; ``untested`` says why none do.

    ``suites`` are torch's own tests, ``absent_suites`` those of its trigger that it has not, each with why.
    ``on`` are the machines with its GPUs. ``staged_as`` is the family of its wheels: its own, or
    ``multi-arch`` where they are for others, too. ``rocm`` is the version that it is built against,
    ``builder`` and ``tester`` are labels of machines.
    """

    cell: MatrixCell
    targets: tuple[str, ...]
    on: ci.FamilyPlatform
    staged_as: str
    rocm: str
    packaging: project_names.MatrixPackaging
    tests: tuple[ci.CiTest, ...] = ()
    untested: str = ""
    builder: str = ""
    tester: str = ""
    suites: tuple[PlannedSuite, ...] = ()
    absent_suites: tuple[tuple[str, str], ...] = ()

    @property
    def build(self) -> MatrixCell:
        """What it is built as: itself, or all families of its Python together."""
        return self.cell._replace(family=self.staged_as)

    @property
    def layout(self) -> ci.MatrixLayout:
        """Whether its wheels are for its family, or for others, too."""
        return ci.MULTI_ARCH if self.staged_as == ci.MULTI_ARCH else "per-family"


Cells = Sequence[BuiltCell]


@dataclass(frozen=True)
class ExcludedCell:
    """A cell that is left out, and why; ``source`` is where that is stated, "" for our own policy."""

    cell: MatrixCell
    reason: str
    source: str = ""


@dataclass(frozen=True)
class Matrix:
    """All cells of a selection, which says layout and packaging: those that are built, and those left out."""

    selection: MatrixSelection
    built: tuple[BuiltCell, ...]
    excluded: tuple[ExcludedCell, ...] = ()


# ---- names


def parse_cell(table: ci.CiTable, text: str) -> MatrixCell:
    """Read a cell as it is printed. Raises UsageError for another form, or a name that there is not."""
    family, python, line, platform = parts if len(parts := text.split("/")) == 4 else ("", "", "", "")
    if platform not in ci.CI_PLATFORMS:
        tip = "for example gfx94X-dcgpu/3.12/2.13/linux: family, Python, torch line, linux or windows"
        raise errors.UsageError(f"{text!r} is no cell", tip=tip)
    try:
        named = MatrixSelection(next(iter(table.triggers)), (family,), (python,), (line,), day=date.min)
        check_selection(table, named)  # of names, which no day changes
    except errors.UsageError as wrong:
        message = f"{text!r} is no cell: {wrong.message.partition(': ')[2]}"
        raise errors.UsageError(message, tip=wrong.tip) from None
    return MatrixCell(family, python, line, "linux" if platform == "linux" else "windows")


def check_selection(table: ci.CiTable, selection: MatrixSelection) -> MatrixSelection:
    """Return a selection that says its layout, its packaging and the pool of its machines.

    Raises UsageError for unknown names, and for a packaging that is the other layout. What ``--gfx`` reads
    (a target, another family, a card) is no family here: the error names those that it is built with.
    """
    members, lines = gfx.get_gfx_families(), release_lines.get_release_lines()
    for name in selection.families:
        if name == ci.MULTI_ARCH:
            message = f"--family: {name} is no family, but all of a run together: --layout {name}"
            raise errors.UsageError(message)
        if name not in table.all_families:
            try:
                targets = gfx.parse_targets(name, input_name="--family")
            except errors.UsageError:
                continue  # nothing is called so
            bases = {*map(gfx.strip_features, targets)}
            within = [family for family in table.all_families if bases & {*members[family]}]
            message = f"--family: {name} is built with {join_names(within)}"
            raise errors.UsageError(message, tip=f"--family {','.join(within)}")
    pythons = {name for line in lines for name in (*line.pythons.values, *line.free_threaded.values)}
    ordered = sorted(pythons, key=facts.get_python_key)
    for option, noun, values, choices in (
        ("--trigger", "trigger", (selection.trigger,), [*table.triggers]),
        ("--family", "family", selection.families, [*table.all_families]),
        ("--line", "release line", selection.lines, [line.name for line in lines]),
        ("--python", "Python that torch is built for", selection.pythons, ordered),
        ("ROCM_WHEELS_SUITES", "suite", selection.suites, [*table.suites]),
        ("ROCM_WHEELS_RUNNERS", "pool of machines", filter(None, [selection.pool]), table.pools),
    ):
        for value in values:
            if value not in choices:
                message = f"{option}: there is no {noun} {value!r}{tables.suggest_name(value, choices)}"
                raise errors.UsageError(message, tip=f"there are {join_names(choices)}")
    try:
        Version(selection.rocm or "0")
    except InvalidVersion:
        message = f"--rocm: {selection.rocm!r} is not a version (PEP 440)"
        raise errors.UsageError(message, tip="such as 10.1 or 7.14.0rc1") from None
    trigger = table.triggers[selection.trigger]
    layout = selection.layout or trigger.layout
    packaging = selection.packaging or trigger.packaging or layout
    if packaging in get_args(ci.MatrixLayout) and packaging != layout:
        message = f"--packaging {packaging}: the layout is {layout}"
        raise errors.UsageError(message, tip=f"--layout {packaging}")
    pool = selection.pool or (ci.ASAN_POOL if packaging == "asan" else "")
    return replace(selection, layout=layout, packaging=packaging, pool=pool)


def join_names(names: Iterable[str]) -> str:
    """Return names with commas between, as messages have them."""
    return ", ".join(names) or "none"


# ---- cells


def plan_matrix(table: ci.CiTable, selection: MatrixSelection) -> Matrix:
    """Return the cells of a selection. Raises UsageError for names that there are not.

    Workflows plan each line by itself: its cells take the turns, and have the machines, that they have in
    the whole run, which is planned for that, too. Machines share the work as the table says.
    """
    chosen = check_selection(table, selection)
    whole = MatrixSelection(
        chosen.trigger,
        layout=chosen.layout,
        packaging=chosen.packaging,
        pool=chosen.pool,
        day=chosen.day,
    )
    own, every = _sort_cells(table, chosen), _sort_cells(table, whole)
    own_cells = {built_cell.cell for built_cell in own.built}
    in_turn = group_cells(own.built, turn_key) | group_cells(every.built, turn_key)
    free = {platform: ci.generate_labels(machines.builders) for platform, machines in table.platforms.items()}
    builders: dict[MatrixCell, str] = {}
    testers = cache(ci.generate_labels)  # machines go on where they were, whatever they are asked for
    planned = {}
    for cell, built_cell in {entry.cell: entry for entry in (*every.built, *own.built)}.items():
        if built_cell.build not in builders:
            builders[built_cell.build] = next(free[cell.platform])
        suites, absent = [], []
        tester = next(testers(built_cell.on.runners)) if built_cell.tests else ""
        cadences = table.triggers[chosen.trigger].suites
        if cell in own_cells and chosen.suites:
            cadences = dict.fromkeys(chosen.suites, ci.SuiteCadence())
        for name, cadence in cadences.items():
            together = in_turn[turn_key(built_cell)]
            if reason := _find_suite_absence(table, chosen, name, cadence, built_cell, together=together):
                absent.append((name, reason))
            else:
                shards, gpus = table.count_shards(name), torch_tests.load_torch_tests().suites[name].gpus
                labels = islice(testers(_list_suite_runners(name, built_cell.on)), shards)
                suites.append(PlannedSuite(name, shards, gpus, tuple(labels)))
        planned[cell] = replace(
            built_cell,
            builder=builders[built_cell.build],
            tester=tester,
            tests=(*built_cell.tests, ci.TORCH_TESTS) if suites else built_cell.tests,
            suites=tuple(suites),
            absent_suites=tuple(absent),
        )
    return replace(own, built=tuple(planned[built_cell.cell] for built_cell in own.built))


def _sort_cells(table: ci.CiTable, selection: MatrixSelection) -> Matrix:
    """Return the cells of a checked selection that are built, without machines and suites, and the others."""
    built, excluded = [], []
    trigger = table.triggers[selection.trigger]
    for platform, line, python, family in product(
        selection.platforms or ci.CI_PLATFORMS,
        selection.lines or choose_lines(trigger.lines),
        selection.pythons or trigger.pythons,
        selection.families or table.all_families,
    ):
        cell = MatrixCell(family, python, line, platform)
        if exclusion := next(list_exclusions(table, selection, cell), None):
            excluded.append(exclusion)
        else:
            built.append(_make_built_cell(table, selection, cell))
    return Matrix(selection, tuple(built), tuple(excluded))


def list_exclusions(table: ci.CiTable, chosen: MatrixSelection, cell: MatrixCell) -> Iterator[ExcludedCell]:
    """Yield every reason against a cell: what cannot be first, then what policy leaves out."""
    line, family = find_line(cell.line), table.all_families[cell.family]
    if family.get_platform(cell.platform) is None:
        place = table.sources[family.fact.source].url
        yield ExcludedCell(cell, f"the family is not built on {cell.platform}", place)
    if cell.platform not in line.platforms.values:
        yield ExcludedCell(cell, f"torch {line.name} is not made for {cell.platform}", line.platforms.source)
    free = cell.python.endswith("t")
    pythons = line.free_threaded if free else line.pythons
    if cell.python not in pythons.values:
        which = f"{'without a GIL ' if free else ''}{join_names(pythons.values)}"
        reason = f"torch {line.name} is not released for Python {cell.python} ({which})"
        yield ExcludedCell(cell, reason, pythons.source)
    if chosen.rocm is None and not line.rocm.amd.values:
        reason = f"AMD has released no ROCm with torch {line.name}: --rocm says which to build it with"
        yield ExcludedCell(cell, reason, line.rocm.amd.source)
    if chosen.packaging == "asan" and cell.platform != "linux":
        yield ExcludedCell(cell, "wheels with AddressSanitizer are for Linux")
    for rule in table.excluded:
        if rule.covers_cell(*cell):
            yield ExcludedCell(cell, rule.reason, table.sources[rule.source].url)
    name, trigger = chosen.trigger, table.triggers[chosen.trigger]
    if not chosen.families and not table.has_begun(family.since, name):
        yield ExcludedCell(cell, f"the family is built since {family.since}, not in {name}")
    for option, part, noun, named, usual in (
        ("--family", cell.family, "", chosen.families, (cell.family,)),
        ("--python", cell.python, "Python ", chosen.pythons, trigger.pythons),
        ("--line", cell.line, "torch ", chosen.lines, choose_lines(trigger.lines)),
        ("--platform", cell.platform, "", chosen.platforms, ci.CI_PLATFORMS),
    ):
        if named and part not in named:
            yield ExcludedCell(cell, f"{option} does not name {part}")
        elif not named and part not in usual:
            yield ExcludedCell(cell, f"{noun}{part}: {name} builds {join_names(usual)}")


@cache
def choose_lines(rule: ci.TriggerLines) -> tuple[str, ...]:
    """Return the lines of a rule: the newest released by AMD, oldest first, and others by name."""
    lines = release_lines.get_release_lines()
    released = sorted((line.name for line in lines if line.torch and line.rocm.amd.values), key=Version)
    return tuple(dict.fromkeys((*released[len(released) - rule.newest :], *rule.also)))


@cache
def find_line(name: str) -> release_lines.TorchLine:
    """Return a release line that there is."""
    return next(line for line in release_lines.get_release_lines() if line.name == name)


def _make_built_cell(table: ci.CiTable, selection: MatrixSelection, cell: MatrixCell) -> BuiltCell:
    """Return a cell with what the first job on a GPU tests, and why not where nothing is."""
    on, trigger = table.all_families[cell.family].get_platform(cell.platform), selection.trigger
    # a cell without machines is left out, and a checked selection says how wheels are packaged
    assert on is not None and selection.packaging is not None
    if selection.pool:
        on = on.model_copy(update={"runners": on.pools.get(selection.pool, ()), "several_gpus": ()})
    tests: tuple[ci.CiTest, ...] = ()
    if not on.runners:
        untested = f"no runner of the pool {selection.pool}" if selection.pool else "no runner has such a GPU"
    elif on.tests_since is not None and not table.has_begun(on.tests_since, trigger):
        untested = f"its runners test since {on.tests_since}, not in {trigger}"
    else:
        usual: tuple[ci.CiTest, ...] = ("sanity",) if on.only_sanity else table.triggers[trigger].tests
        exceptions = find_untested(table, cell)
        tests = tuple(test for test in usual if all(test not in row.tests for row in exceptions))
        why = "; ".join(row.reason for row in exceptions) or f"{trigger} tests nothing"
        untested = "" if tests else why
    targets, rocm = gfx.get_gfx_families()[cell.family], find_line(cell.line).rocm
    staged_as = ci.MULTI_ARCH if selection.layout == ci.MULTI_ARCH else cell.family
    version = selection.rocm or rocm.amd.values[-1]
    return BuiltCell(cell, targets, on, staged_as, version, selection.packaging, tests, untested)


def find_untested(table: ci.CiTable, cell: MatrixCell) -> list[ci.UntestedCells]:
    """Return the tests that a cell cannot have, and why."""
    return [row for row in table.untested if row.covers_cell(*cell)]


# ---- suites of torch's own tests


def _list_suite_runners(name: str, on: ci.FamilyPlatform) -> tuple[ci.CiRunner, ...]:
    """Return the machines of a family that can run a suite: those with several GPUs where it needs them."""
    return on.several_gpus if torch_tests.load_torch_tests().suites[name].gpus == "every" else on.runners


def _find_suite_obstacle(table: ci.CiTable, name: str, built_cell: BuiltCell) -> str:
    """Return why a cell cannot have a suite on any day, "" when it can."""
    if not built_cell.tests:  # tests of torch follow the short ones
        return built_cell.untested
    if built_cell.on.only_sanity:
        return "its runners only test whether torch starts"
    exceptions = find_untested(table, built_cell.cell)
    if reasons := [row.reason for row in exceptions if ci.TORCH_TESTS in row.tests]:
        return "; ".join(reasons)
    runners, suite = _list_suite_runners(name, built_cell.on), table.suites[name]
    if not runners:
        return "none of its machines has several GPUs"
    machines = sum(map(table.count_machines, runners))
    if machines >= suite.machines:
        return ""
    assumed = " (assumed)" if any(runner.machines is None for runner in runners) else ""
    labels = join_names(runner.label for runner in runners)
    hours = "an hour" if suite.hours == 1 else f"{suite.hours:g} hours"
    needed = f"it takes {hours} and needs {suite.machines} machines"
    return f"{needed}, {labels} has {machines}{assumed}"


def _find_suite_absence(
    table: ci.CiTable,
    selection: MatrixSelection,
    name: str,
    cadence: ci.SuiteCadence,
    built_cell: BuiltCell,
    *,
    together: Cells,
) -> str:
    """Return why a cell does not have a suite on the day of a selection, "" when it does.

    Pythons take turns among the cells of its family, line and platform that are built ``together``, families
    among those of the trigger that have the machines: the same on each day for everybody.
    """
    if obstacle := _find_suite_obstacle(table, name, built_cell):
        return obstacle
    if cadence.lines is not None and built_cell.cell.line not in (lines := choose_lines(cadence.lines)):
        return f"of torch {join_names(lines)}"
    cell, turn = built_cell.cell, selection.day.toordinal()
    pythons = [each.cell.python for each in together if not _find_suite_obstacle(table, name, each)]
    choices = [python for python in pythons if not cadence.pythons or python in cadence.pythons]
    offset = list(table.all_families).index(cell.family)  # families take different Pythons on a day
    on_turn = take_turns(choices, cadence.pythons_a_day, turn + offset)
    outside = bool(cadence.pythons) and cell.python not in cadence.pythons
    if outside or (cell.python in pythons and cell.python not in on_turn):
        return f"of Python {join_names(on_turn or cadence.pythons)} on {selection.day}"
    if cadence.takes_every_family(selection.day):
        return ""
    families = []
    for family_name, family in table.all_families.items():
        on = family.get_platform(cell.platform)
        if on is not None and not on.only_sanity and table.has_begun(family.since, selection.trigger):
            machines = sum(map(table.count_machines, _list_suite_runners(name, on)))
            families += [family_name] if machines >= table.suites[name].machines else []
    families_on_turn = take_turns(families, cadence.families_a_day, turn)
    if cell.family in families and cell.family not in families_on_turn:
        return f"of {join_names(families_on_turn)} on {selection.day}"
    return ""


def take_turns(choices: Sequence[K], number: int | None, turn: int) -> list[K]:
    """Return the next ``number`` of the choices each turn, in a circle; None: all of them, each time."""
    if number is None or number >= len(choices):
        return list(choices)
    return [choices[(turn * number + position) % len(choices)] for position in range(number)]


# ---- what is built as one, and what cells share


# what a lock and a checkout are for; what wheels for every family are for; what a set of wheels is for, which
# is a family or ``multi-arch``; what Pythons take turns of
line_key = attrgetter("cell.line", "cell.platform")
python_key = attrgetter("cell.line", "cell.platform", "cell.python")
set_key = attrgetter("cell.line", "cell.platform", "staged_as")
turn_key = attrgetter("cell.line", "cell.platform", "cell.family")


def group_cells(cells: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return cells by what they share."""
    groups: dict[K, list[T]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups


def combine_builds(cells: Cells) -> list[BuiltCell]:
    """Return what is built as one, in the order of the cells.

    Where that is all families of a Python, ``multi-arch`` stands in the place of the family, and the build
    has no tests: each of its cells has its own.
    """
    builds = []
    for build, group in group_cells(cells, lambda built_cell: built_cell.build).items():
        first = group[0]
        if build != first.cell:
            untested = "each family is tested by itself"
            first = replace(first, cell=build, targets=collect_targets(group), tests=(), tester="")
            first = replace(first, untested=untested, suites=(), absent_suites=())
        builds.append(first)
    return builds


def collect_targets(cells: Cells) -> tuple[str, ...]:
    """Return the targets of all cells."""
    return tuple(dict.fromkeys(target for built_cell in cells for target in built_cell.targets))


@lru_cache
def list_line_projects(platform: project_names.Platform, line: str) -> Sequence[Project]:
    """Return the recipes that are built of a torch line on a platform, in the order of their builds."""
    row = find_line(line)
    return [project for project in _list_buildable(platform) if not row.leaves_out(project, platform)]


@lru_cache
def _list_buildable(platform: project_names.Platform) -> Sequence[Project]:
    return [project for project in list_usual_projects() if platform in project.build.platforms]


def is_shared_wheel(project: Project, platform: project_names.Platform) -> bool:
    """Tell whether a wheel is built once for every family: one serves all, and no family's own needs it.

    triton has no device code, torchaudio that of all families (``build.across_families``).
    """
    users = [other for other in _list_buildable(platform) if project.name in other.build.needs]
    return project.serves_every_family(platform) and all(is_shared_wheel(other, platform) for other in users)


def split_projects(platform: project_names.Platform, line: str) -> tuple[list[Project], ...]:
    """Return what is built once for all families before any torch, of each family, and against one torch."""
    parts: tuple[list[Project], ...] = ([], [], [])
    before, own, companions = parts
    for project in list_line_projects(platform, line):  # in the order of their builds
        if not is_shared_wheel(project, platform):
            own.append(project)
        elif {*project.build.needs} <= {earlier.name for earlier in before}:
            before.append(project)
        else:
            companions.append(project)
    return parts


# ---- hours and minutes, and what will not do


def estimate_hours(
    table: ci.CiTable, names: Iterable[str], targets: int, platform: project_names.Platform
) -> float:
    """Return the hours of steps for so many targets on a builder, as stated, with nothing from a cache."""
    times = [get_step_costs(name).time for name in names]
    seconds = sum(time.get_serial_seconds() for time in times)
    cores = table.platforms[platform].cores
    return (seconds + sum(time.get_core_seconds(targets) for time in times) / cores) / 3600


def rank_cost(build: BuiltCell, table: ci.CiTable) -> tuple[float, str]:
    """Return the hours of a build that does all by itself, and its name: the order of builds is fixed."""
    projects = [project.name for project in list_line_projects(build.cell.platform, build.cell.line)]
    names = ["checkout", "install-rocm", "install-tools", *projects]
    return estimate_hours(table, names, len(build.targets), build.cell.platform), str(build.cell)


def choose_cheapest(cells: Cells, table: ci.CiTable, *, tested: bool = False) -> list[BuiltCell]:
    """Return the cheapest cell of each line and platform; of those that are ``tested``, where any is."""
    chosen = []
    for group in group_cells(cells, line_key).values():
        preferred = [built_cell for built_cell in group if built_cell.tests] if tested else group
        chosen.append(min(preferred or group, key=lambda built_cell: rank_cost(built_cell, table)))
    return chosen


def limit_minutes(table: ci.CiTable, hours: float, *, hosted: bool) -> int:
    """Return how long a job may take: twice what is expected, and no longer than GitHub lets it."""
    most = (table.limits.hosted_job_hours if hosted else table.limits.own_job_hours).value
    return min(int(hours * 60 * _TIME_MARGIN) + 30, most * 60)


def list_warnings(cells: Cells, table: ci.CiTable) -> list[str]:
    """Return what will not do: builds that take too long, projects without a place, uneven sets."""
    messages = []
    for (_, platform), group in group_cells(combine_builds(cells), line_key).items():
        hours, name = max(rank_cost(build, table) for build in group)
        machines, limits = table.platforms[platform], table.limits
        most = (limits.hosted_job_hours if machines.hosted else limits.own_job_hours).value
        if hours > most:
            messages.append(
                f"{name} takes {hours:.1f} h on {machines.cores} cores, and a job ends after {most} h:"
                " more cores, fewer targets, or a job for each step of its plan (`rocm-wheels run-step`)"
            )
    messages += describe_projects(built_cell.cell for built_cell in cells)[1]
    # a set wants each Python for all of its targets: without some its gate holds it
    shared = [built_cell for built_cell in cells if built_cell.layout == ci.MULTI_ARCH]
    for (line, platform, family), group in group_cells(shared, set_key).items():
        for build in combine_builds(group):
            if lacking := [target for target in collect_targets(group) if target not in build.targets]:
                messages.append(
                    f"{family} of torch {line} on {platform}: Python {build.cell.python} without"
                    f" {', '.join(lacking)}, which other Pythons have: its gate blocks it; exclude the family"
                    " for every Python"
                )
    return messages


def describe_projects(cells: Iterable[MatrixCell]) -> tuple[list[str], list[str]]:
    """Return what to say of torch lines that have projects on other platforms only: nobody builds them there.

    And, second, of those that lack the place of a project.
    """
    lines_without: dict[tuple[str, project_names.Platform], list[str]] = {}
    unplaced = []
    for name, platform in dict.fromkeys((cell.line, cell.platform) for cell in cells):
        line, projects = find_line(name), list_line_projects(platform, name)
        if lacking := [each.name for each in projects if line.get_checkout(each, platform) is None]:
            unplaced.append(
                f"torch {name} on {platform} has no place to check out {', '.join(lacking)} from:"
                " there is no lock unless the torch tree pins it, or `rocm-wheels lock` is told"
            )
        for project in _list_buildable(platform):
            if line.leaves_out(project, platform):
                lines_without.setdefault((project.name, platform), []).append(name)
    absent = [
        f"{platform}: torch {', '.join(names)} without {project}, which release_lines.yaml has elsewhere only"
        for (project, platform), names in lines_without.items()
    ]
    return absent, unplaced
