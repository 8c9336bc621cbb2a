"""What a run asks of machines and of GitHub, and whether it is done in time.

Of each label: how many machines have it, and the hours of the jobs on them, each build from nothing (a cache
that was lost must cost nobody a night). Machines with GPUs begin when the first wheels are there. The longest
chain of jobs is counted with nobody waiting. Not counted are GitHub's own machines, of which it starts as
many as there are jobs, and staging, of which nobody states how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rocm_wheels.ci.matrix import (
    BuiltCell,
    collect_targets,
    combine_builds,
    group_cells,
    line_key,
    python_key,
    set_key,
)
from rocm_wheels.ci.matrix_costs import (
    CHECKOUT_STEP,
    INSTALL_ROCM_STEP,
    INSTALL_TOOLS_STEP,
    Prices,
    choose_first_builds,
    is_shared_wheel,
    list_companions,
    list_line_projects,
    list_shared_before_torch,
    list_short_tests,
)
from rocm_wheels.core import ReleaseError, format_count, format_table
from rocm_wheels.models import CiRunner, get_step_costs, load_estimate_table

_GIB = 1 << 30
_GB = 10**9
_LABEL_HEADER = ("machines", "how many", "jobs", "hours", "from hour", "they have", "needed")


@dataclass(frozen=True)
class MachineJob:
    """A job on machines of a label: what it does, its hours, and the hour of the run when it can begin."""

    label: str
    what: str
    hours: float
    begins: float = 0.0


@dataclass(frozen=True)
class LabelLoad:
    """The jobs on the machines of a label. ``is_assumed``: nobody states how many there are."""

    label: str
    machines: int
    is_assumed: bool
    jobs: int
    hours: float
    begins: float
    available: float

    @property
    def excess(self) -> float:
        """The hours that are too many, 0 when they are done in time."""
        return max(self.hours - self.available, 0.0)

    @property
    def needed(self) -> int:
        """How many machines would do."""
        return math.ceil(self.hours / (self.available / self.machines)) if self.available > 0 else 0


@dataclass(frozen=True)
class ChainLink:
    """A job of the longest chain."""

    what: str
    hours: float


@dataclass(frozen=True)
class ArtifactLoad:
    """Artifacts of a kind: how many a run makes, what they weigh, and for how many days they are kept."""

    kind: str
    count: int
    gib: float
    days: int

    @property
    def kept_gib(self) -> float:
        """What lies there where there is such a run a day."""
        return self.gib * self.days


@dataclass(frozen=True)
class MatrixLoad:
    """All that a run asks for. ``faults``: what cannot be, with a tip each."""

    within_hours: int
    labels: tuple[LabelLoad, ...]
    chain: tuple[ChainLink, ...]
    artifacts: tuple[ArtifactLoad, ...]
    caches: int
    cache_gib: float
    faults: tuple[tuple[str, str], ...] = field(default=())

    @property
    def chain_hours(self) -> float:
        """The hours of the longest chain."""
        return sum(link.hours for link in self.chain)

    @property
    def artifact_gib(self) -> float:
        """What the artifacts of a run weigh."""
        return sum(artifact.gib for artifact in self.artifacts)

    @property
    def kept_gib(self) -> float:
        """What artifacts weigh that lie there at one time."""
        return sum(artifact.kept_gib for artifact in self.artifacts)


def weigh_matrix(cells: Sequence[BuiltCell], prices: Prices, trigger: str) -> MatrixLoad:
    """Return what a run of a trigger asks for with these cells, and what of it cannot be."""
    within = prices.table.triggers[trigger].within_hours
    jobs, chains = list[MachineJob](), list[list[ChainLink]]()
    for group in group_cells(cells, line_key).values():
        line_jobs, chain = _list_line_jobs(group, prices)
        jobs += line_jobs
        chains.append(chain)
    labels = _sum_labels(jobs, prices, within)
    longest = max(chains, key=lambda chain: sum(link.hours for link in chain), default=[])
    artifacts = tuple(_list_artifacts(cells, prices))
    caches = len(group_cells(cells, line_key))
    cache_gib = caches * load_estimate_table().compiler_cache.gib
    load = MatrixLoad(within, tuple(labels), tuple(longest), artifacts, caches, cache_gib)
    return replace(load, faults=tuple(_find_faults(load, prices, trigger)))


def require_load(load: MatrixLoad) -> None:
    """Raise ReleaseError for a run that cannot be done: which limit, and by how much."""
    if load.faults:
        message, tip = load.faults[0]
        more = f", and {format_count(len(load.faults) - 1, 'other limit')}" if len(load.faults) > 1 else ""
        raise ReleaseError(f"the run does not fit: {message}{more}", tip=tip)


def _list_line_jobs(group: Sequence[BuiltCell], prices: Prices) -> tuple[list[MachineJob], list[ChainLink]]:
    """Return the jobs of a torch line and platform, and the longest chain among them."""
    (line, platform), (first,) = line_key(group[0]), choose_first_builds(group, prices)
    where = f"{line} on {platform}"
    checkout = MachineJob(
        first.builder, f"checkout of {where}", prices.price_step(CHECKOUT_STEP, 0, platform).hours
    )
    shared = _list_shared_jobs(group, prices, list_shared_before_torch(platform, line), f"shared of {where}")
    builds = [
        MachineJob(build.builder, f"build of {build.cell}", _price_build(build, prices))
        for build in combine_builds(group)
    ]
    first_build = next(job for job in builds if job.what == f"build of {first.cell}")
    others = [job for job in builds if job is not first_build]
    companions = _list_shared_jobs(group, prices, list_companions(platform, line), f"companions of {where}")
    chain = [checkout]
    for stage in (shared, [first_build], others, companions):
        if stage:
            chain.append(max(stage, key=lambda job: job.hours))
    built = sum(job.hours for job in chain)
    setup = prices.table.test_setup.minutes / 60
    tests = list[MachineJob]()
    longest: list[MachineJob] = []
    for cell in group:
        if not cell.tester:
            continue
        minutes = sum(prices.table.tests[test].minutes for test in list_short_tests(cell))
        short = MachineJob(cell.tester, f"short tests of {cell.cell}", setup + minutes / 60, built)
        suites = [
            MachineJob(
                label,
                f"{suite.name} of {cell.cell}",
                setup + prices.table.suites[suite.name].hours / suite.shards,
                built + short.hours,
            )
            for suite in cell.suites
            for label in suite.testers
        ]
        tests += [short, *suites]
        tail = [short, *([max(suites, key=lambda job: job.hours)] if suites else [])]
        longest = max(longest, tail, key=lambda jobs: sum(job.hours for job in jobs))
    jobs = [checkout, *shared, *builds, *companions, *tests]
    return jobs, [ChainLink(job.what, job.hours) for job in [*chain, *longest]]


def _list_shared_jobs(
    group: Sequence[BuiltCell], prices: Prices, projects: Sequence[Any], title: str
) -> list[MachineJob]:
    if not projects:
        return []
    names = [INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP, *(project.name for project in projects)]
    jobs = []
    for (_, platform, python), cells in group_cells(group, python_key).items():
        targets = len(collect_targets(cells))
        hours = sum(prices.price_step(name, targets, platform).hours for name in names)
        jobs.append(MachineJob(cells[0].builder, f"{title} for Python {python}", hours))
    return jobs


def _price_build(build: BuiltCell, prices: Prices) -> float:
    """Return the hours of a build with nothing in a cache, without what is shared."""
    platform = build.cell.platform
    projects = [
        project.name
        for project in list_line_projects(platform, build.cell.line)
        if not is_shared_wheel(project, platform)
    ]
    names = [INSTALL_ROCM_STEP, INSTALL_TOOLS_STEP, *projects]
    return sum(prices.price_step(name, len(build.targets), platform).hours for name in names)


def _sum_labels(jobs: Sequence[MachineJob], prices: Prices, within: int) -> Iterator[LabelLoad]:
    counts = _count_machines(prices)
    by_label: dict[str, list[MachineJob]] = {}
    for job in jobs:
        by_label.setdefault(job.label, []).append(job)
    for label, label_jobs in by_label.items():
        machines, is_assumed = counts[label]
        begins = min(job.begins for job in label_jobs)
        available = machines * max(within - begins, 0.0)
        hours = sum(job.hours for job in label_jobs)
        yield LabelLoad(label, machines, is_assumed, len(label_jobs), hours, begins, available)


def _count_machines(prices: Prices) -> dict[str, tuple[int, bool]]:
    """Return how many machines have each label, and whether that is assumed."""
    table = prices.table
    counts = {}
    for builders in table.platforms.values():
        for runner in builders.builders:
            counts[runner.label] = _count_label(prices, runner, builds=True)
    for family in table.all_families.values():
        for on in (family.linux, family.windows):
            for runner in (*on.runners, *on.several_gpus) if on is not None else ():
                counts[runner.label] = _count_label(prices, runner, builds=False)
    return counts


def _count_label(prices: Prices, runner: CiRunner, *, builds: bool) -> tuple[int, bool]:
    return prices.table.count_machines(runner, builds=builds), runner.machines is None


def _list_artifacts(cells: Sequence[BuiltCell], prices: Prices) -> Iterator[ArtifactLoad]:
    """Yield what a run hands from job to job, by the kinds of the table."""
    lines = group_cells(cells, line_key)
    builds = combine_builds(cells)
    sources = sum(prices.price_step(CHECKOUT_STEP, 0, platform).disk for _, platform in lines)
    weights: dict[str, tuple[int, float | None]] = {
        "lock": (len(lines), None),
        "sources": (len(lines), sources),
        "wheels": (len(builds), sum(_weigh_wheels(build, "own") for build in builds)),
        "shared": _weigh_shared(cells, "shared"),
        "companions": _weigh_shared(cells, "companions"),
        "packaged": _weigh_packaged(cells, prices),
        "smoke": (sum(bool(cell.tester) for cell in cells), None),
        "tests": (sum(suite.shards for cell in cells for suite in cell.suites), None),
    }
    for kind, (count, gib) in weights.items():
        artifact = prices.table.artifacts.kinds[kind]
        if count:
            yield ArtifactLoad(
                kind, count, count * artifact.gib if gib is None else gib, artifact.retention_days
            )


def _weigh_wheels(build: BuiltCell, which: Literal["own", "shared", "companions"]) -> float:
    """Return the GiB of wheels of a build: its own, or what all families of its Python share."""
    platform, line = build.cell.platform, build.cell.line
    projects = {
        "own": [each for each in list_line_projects(platform, line) if not is_shared_wheel(each, platform)],
        "shared": list_shared_before_torch(platform, line),
        "companions": list_companions(platform, line),
    }[which]
    sizes = [get_step_costs(project.name).wheel for project in projects]
    return sum(size.get_bytes(len(build.targets)) for size in sizes if size is not None) / _GIB


def _weigh_shared(cells: Sequence[BuiltCell], which: Literal["shared", "companions"]) -> tuple[int, float]:
    groups = [group[0] for group in group_cells(cells, python_key).values()]
    sizes = [size for build in groups if (size := _weigh_wheels(build, which))]
    return len(sizes), sum(sizes)


def _weigh_packaged(cells: Sequence[BuiltCell], prices: Prices) -> tuple[int, float]:
    """Return how many sets are packaged otherwise than they were built, and their GiB."""
    packaged = [cell for cell in cells if cell.packaging != cell.layout]
    sets = group_cells(packaged, set_key)
    size = sum(prices.stated_size(build) for build in combine_builds(packaged))
    return len(sets), size / _GIB


def _find_faults(load: MatrixLoad, prices: Prices, trigger: str) -> Iterator[tuple[str, str]]:
    for label in load.labels:
        if label.excess > 0:
            assumed = " (assumed: nobody states how many there are)" if label.is_assumed else ""
            machines = format_count(label.machines, "machine")
            yield (
                f"{label.label}: {label.hours:.1f} hours of jobs, and {machines}{assumed} can do"
                f" {label.available:.1f} from hour {label.begins:.1f} to hour {load.within_hours}:"
                f" {label.excess:.1f} too many",
                f"{label.needed} machines would do: `machines` of that runner in data/ci.yaml says how many"
                f" there are, `suites` of {trigger} what is tested; or fewer --python, --line, --family;"
                " --allow-overload goes on",
            )
    if load.chain_hours > load.within_hours:
        link = max(load.chain, key=lambda link: link.hours)
        yield (
            f"the longest chain of jobs takes {load.chain_hours:.1f} hours of {load.within_hours}:"
            f" {load.chain_hours - load.within_hours:.1f} too many, {link.what} alone {link.hours:.1f}",
            "more cores for builds, or a smaller `shard_hours` in data/ci.yaml; --allow-overload goes on",
        )
    most = prices.table.artifacts.most_kept_gib
    if load.kept_gib > most:
        heaviest = max(load.artifacts, key=lambda artifact: artifact.kept_gib)
        yield (
            f"artifacts: {load.kept_gib:.0f} GiB are kept, and `most_kept_gib` is {most}:"
            f" {load.kept_gib - most:.0f} too many; {heaviest.kind} alone"
            f" {heaviest.gib:.0f} GiB for {format_count(heaviest.days, 'day')}",
            "fewer `retention_days` in data/ci.yaml, or fewer --python, --line, --family;"
            " --allow-overload goes on",
        )


def format_load(load: MatrixLoad, prices: Prices, *, width: int | None = None) -> str:
    """Return a line for each label, the longest chain, and what artifacts and caches weigh."""
    rows = []
    for label in load.labels:
        assumed = " (assumed)" if label.is_assumed else ""
        excess = f", {label.excess:.1f} too few" if label.excess else ""
        rows.append(
            [
                label.label,
                f"{label.machines}{assumed}",
                str(label.jobs),
                f"{label.hours:.1f}",
                f"{label.begins:.1f}",
                f"{label.available:.1f}{excess}",
                str(label.needed),
            ]
        )
    lines = [format_table(_LABEL_HEADER, rows, width=width)] if rows else ["no machine has anything to do"]
    lines.append(f"longest chain: {load.chain_hours:.1f} hours of {load.within_hours}, with nobody waiting")
    lines += [f"  {link.hours:5.1f} h  {link.what}" for link in load.chain]
    lines.append(
        f"artifacts: {load.artifact_gib:.0f} GiB a run; kept where there is one a day:"
        f" {load.kept_gib:.0f} GiB of {prices.table.artifacts.most_kept_gib}"
    )
    lines += [
        f"  {artifact.kind}: {artifact.count}, {artifact.gib:.1f} GiB for"
        f" {format_count(artifact.days, 'day')}"
        for artifact in load.artifacts
    ]
    lines.append(f"compiler caches: {load.caches}, {load.cache_gib:.0f} GiB")
    limit = prices.table.limits.cache_gb
    if load.cache_gib * _GIB > limit.value * _GB:
        lines.append(
            f"  GitHub keeps {limit.value} GB of a repository and evicts the rest: a bucket keeps them all"
        )
    lines.append("this fits" if not load.faults else f"this does not fit: {load.faults[0][0]}")
    return "\n".join(lines)


def load_as_json(load: MatrixLoad) -> dict[str, Any]:
    """Return a load: keys are added later, never renamed."""
    return {
        "within_hours": load.within_hours,
        "fits": not load.faults,
        "faults": [{"what": message, "tip": tip} for message, tip in load.faults],
        "labels": [
            {**asdict(label), "needed": label.needed, "excess": round(label.excess, 3)}
            for label in load.labels
        ],
        "chain_hours": round(load.chain_hours, 3),
        "chain": [asdict(link) for link in load.chain],
        "artifact_gib": round(load.artifact_gib, 1),
        "kept_gib": round(load.kept_gib, 1),
        "artifacts": [
            {**asdict(artifact), "kept_gib": round(artifact.kept_gib, 1)} for artifact in load.artifacts
        ],
        "caches": load.caches,
        "cache_gib": load.cache_gib,
    }
