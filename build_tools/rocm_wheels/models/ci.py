"""Say what CI builds and tests when and on which machines, and which images it uses.

Owns ``data/ci.yaml`` and ``data/containers.yaml`` (images that we build and test in, by name and digest).
That names in them lead somewhere is held by tests of the tables, not each time that they are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Literal, get_args

from pydantic import Field

from rocm_wheels.core import records
from rocm_wheels.models import facts, gfx, project_names

UNRESOLVED_DIGEST = "unresolved"
IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PinnedImage(facts.Fact):
    """An image, or what an image of ours starts from: then ``dockerfile`` says how it is made.

    ``platform``: the manylinux tag that wheels get whose code is compiled in it.
    """

    about: str
    image: str
    digest: Annotated[
        str,
        records.require_pattern(
            f"{IMAGE_DIGEST.pattern}|{UNRESOLVED_DIGEST}",
            f"sha256: and 64 hexadecimal digits, or {UNRESOLVED_DIGEST}",
        ),
    ]
    dockerfile: str = ""
    platform: str = ""

    @property
    def is_resolved(self) -> bool:
        """Whether the digest was read from a source."""
        return self.digest != UNRESOLVED_DIGEST


class ContainerTable(facts.FactTable):
    """The whole of ``data/containers.yaml``."""

    images: Mapping[str, PinnedImage]
    jobs: str

    @property
    def job_image(self) -> PinnedImage:
        """The image that workflows build Linux wheels in."""
        return self.images[self.jobs]

    @property
    def wheel_platform(self) -> str:
        """The oldest system that our own wheels are for: ``manylinux_2_28``."""
        return self.job_image.platform


@lru_cache
def load_container_table() -> ContainerTable:
    """Return the table of images."""
    return records.load_record(project_names.get_data_folder() / "containers.yaml", ContainerTable)


CI_PLATFORMS: tuple[project_names.Platform, ...] = get_args(project_names.Platform)
RunnerLabel = Annotated[
    str, records.require_pattern("[A-Za-z0-9_.-]+", "letters, digits, _ . and -")
]  # workflows hold it
CiTest = Literal["sanity", "smoke", "tests"]
ShortTest = Literal["sanity", "smoke"]  # tests of the first job on a GPU; `tests` are the suites of torch
TORCH_TESTS: CiTest = "tests"
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
ChangeScope = Literal["project", "tests", "nothing", "everything"]
MatrixLayout = Literal["per-family", "multi-arch"]  # how cells share builds and sets
ASAN_POOL = "sandbox"  # the machines that test wheels with AddressSanitizer, as TheRock's CI has it
MULTI_ARCH: MatrixLayout = (
    "multi-arch"  # also in the place of a family's name, where wheels are for all of them
)
HOSTED_RUNNER = (
    "ubuntu-24.04"  # the label of GitHub's own machines that do what needs neither cores nor a GPU
)
_NIGHTLY = "nightly"


class MachineCount(facts.Fact):
    """How many machines have a label."""

    count: int = Field(gt=0)


class CiRunner(records.Record):
    """Machines with one label. ``machines``: how many, None where nobody states it.

    ``container_options`` go before those of the platform: what containers on these machines need. ``fact``:
    where the label was read, where that is not the family's place.
    """

    label: RunnerLabel
    fact: facts.Fact | None = None
    machines: MachineCount | None = None
    container_options: tuple[str, ...] | None = None

    @property
    def share(self) -> int:
        """How much of the work they get beside others: as many jobs as there are machines."""
        return self.machines.count if self.machines is not None else 1


class FamilyPlatform(records.Record):
    """A family on one platform. ``targets`` are the GPUs of its runners, () where that is not said.

    ``pools`` are machines for a purpose, by its name (``oem``: with the kernel of a maker of computers;
    ``sandbox``: where tests may take a machine down), which get no other work.
    ``bypass_tests_for_releases`` makes it a named exception: releases may pass untested, and are shown to be.
    """

    runners: tuple[CiRunner, ...] = ()
    several_gpus: tuple[CiRunner, ...] = ()
    pools: Mapping[str, tuple[CiRunner, ...]] = {}
    targets: tuple[str, ...] = ()
    tests_since: str | None = None
    only_sanity: bool = False
    bypass_tests_for_releases: bool = False

    @property
    def runner(self) -> str:
        """The label of the machines that most of the work goes to, "" where there are none."""
        return max(self.runners, key=lambda runner: runner.share).label if self.runners else ""


class CiFamily(records.Record):
    """A family of GPUs as CI has it; ``fact`` says where that was read."""

    fact: facts.Fact
    since: str
    linux: FamilyPlatform | None = None
    windows: FamilyPlatform | None = None

    @property
    def platforms(self) -> dict[project_names.Platform, FamilyPlatform]:
        """What there is on each platform on which the family is built."""
        by_platform: dict[project_names.Platform, FamilyPlatform | None]
        by_platform = {"linux": self.linux, "windows": self.windows}
        return {platform: place for platform, place in by_platform.items() if place is not None}

    def get_platform(self, platform: project_names.Platform) -> FamilyPlatform | None:
        """Return what there is on a platform; None where nothing is built."""
        return self.platforms.get(platform)


class TriggerLines(records.Record):
    """The newest so many lines that AMD has released with, and others by name."""

    newest: int = Field(ge=0)
    also: tuple[str, ...] = ()


class SuiteCadence(records.Record):
    """Of which of its cells, and how often, a trigger runs a suite of torch's own tests.

    ``pythons_a_day`` and ``families_a_day``: so many, others the next day; None: every one. ``pythons``,
    ``lines``: only these. On the day ``every_family_on`` no family waits for its turn.
    """

    pythons: tuple[str, ...] = ()
    pythons_a_day: int | None = Field(default=None, gt=0)
    lines: TriggerLines | None = None
    families_a_day: int | None = Field(default=None, gt=0)
    every_family_on: Weekday | None = None

    def takes_every_family(self, day: date) -> bool:
        """Tell whether all families have the suite on a day."""
        return self.families_a_day is None or day.strftime("%A").lower() == self.every_family_on


class CiTrigger(records.Record):
    """What a run of a kind holds; ``about`` says when there is one.

    ``suites``: torch's own tests. ``layout``: wheels for each family,
    or ``multi-arch``: for all families together. ``packaging``: how the sets are packaged, where that is not
    as they were built.
    """

    about: str
    pythons: tuple[str, ...] = Field(min_length=1)
    lines: TriggerLines
    tests: tuple[ShortTest, ...]
    suites: Mapping[str, SuiteCadence] = {}
    layout: MatrixLayout = "per-family"
    packaging: Literal["split", "fat", "asan"] | None = None


class ContainerNeeds(facts.Fact):
    """Options of a container in which tests run, as its engine takes them, in order."""

    options: tuple[str, ...]


class CiBuilders(records.Record):
    """The machines that build for a platform, and the cores of one; ``hosted``: they are GitHub's.

    ``test_container``: what a container on its machines with GPUs needs; None: nothing is tested in one.
    """

    fact: facts.Fact
    test_container: ContainerNeeds | None = None
    builders: tuple[CiRunner, ...] = Field(min_length=1)
    cores: int = Field(gt=0)
    hosted: bool = False


class ExcludedCells(facts.Fact):
    """Cells that cannot be built. What is not named is meant whole."""

    families: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    platforms: tuple[project_names.Platform, ...] = CI_PLATFORMS
    reason: str

    def covers_cell(self, family: str, python: str, line: str, platform: project_names.Platform) -> bool:
        """Tell whether a cell is among them."""
        restrictions = ((self.families, family), (self.lines, line), (self.pythons, python))
        return platform in self.platforms and all(not names or part in names for names, part in restrictions)


class UntestedCells(ExcludedCells):
    """Cells that cannot have some ``tests``."""

    tests: tuple[CiTest, ...] = Field(min_length=1)


class GithubLimit(facts.Fact):
    """A number that GitHub holds workflows to."""

    value: int = Field(gt=0)


class GithubLimits(records.Record):
    """Jobs of one matrix, kB of outputs of a job, hours of a job on GitHub's machines and on own ones, disk
    of GitHub's, levels of workflows."""

    matrix_jobs: GithubLimit
    output_kb: GithubLimit
    hosted_job_hours: GithubLimit
    own_job_hours: GithubLimit
    hosted_disk_gb: GithubLimit
    levels: GithubLimit


class CiTestMinutes(facts.Fact):
    """What a kind of test takes of a GPU, and the ``packages`` that it needs."""

    minutes: float = Field(gt=0)
    packages: tuple[str, ...] = ()


class CiSuite(facts.Fact):
    """What a suite of torch's own tests takes of machines with GPUs, all of it, in hours.

    ``machines``: a family with fewer of them does not run it: it would not be done in time.
    """

    hours: float = Field(gt=0)
    machines: int = Field(default=1, gt=0)


class ChangedFiles(records.Record):
    """Files, as globs on paths in the repository, and what a change of them has to do with.

    ``{project}`` in a glob is the name of a project.
    """

    paths: tuple[str, ...] = Field(min_length=1)
    what: ChangeScope


class CiTable(facts.FactTable):
    """The whole of ``data/ci.yaml``."""

    limits: GithubLimits
    triggers: Mapping[str, CiTrigger] = Field(min_length=1)
    platforms: Mapping[project_names.Platform, CiBuilders]
    staging: tuple[CiRunner, ...] = Field(min_length=1)
    families: Mapping[str, CiFamily]
    excluded: tuple[ExcludedCells, ...] = ()
    untested: tuple[UntestedCells, ...] = ()
    assumed_machines: int = Field(gt=0)
    tests: Mapping[ShortTest, CiTestMinutes]
    suites: Mapping[str, CiSuite]
    shard_hours: float = Field(gt=0)
    rocm_index: str
    touches: tuple[ChangedFiles, ...] = Field(min_length=1)

    @cached_property
    def all_families(self) -> dict[str, CiFamily]:
        """Return every family by name, those of targets that no family of the table holds at the end."""
        members = gfx.get_gfx_families()
        covered = {target for name in self.families for target in members[name]}
        since = _NIGHTLY if _NIGHTLY in self.triggers else list(self.triggers)[-1]
        families = dict(self.families)
        for target in gfx.get_gfx_targets() if self.families else ():
            if target not in covered:
                fact, place = next(iter(self.families.values())).fact, FamilyPlatform()
                families[target] = CiFamily(fact=fact, since=since, linux=place, windows=place)
        return families

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """Return the names of all pools of machines."""
        places = [place for family in self.families.values() for place in family.platforms.values()]
        return tuple(sorted({name for place in places for name in place.pools}))

    def has_begun(self, since: str, trigger: str) -> bool:
        """Tell whether what there is since one trigger is there in another, which may come later."""
        order = list(self.triggers)
        return order.index(since) <= order.index(trigger)

    def count_shards(self, suite: str) -> int:
        """Return how many jobs share a suite, so that none takes much longer than ``shard_hours``."""
        return math.ceil(self.suites[suite].hours / self.shard_hours)

    def count_machines(self, runner: CiRunner) -> int:
        """Return how many machines with GPUs have a label: as stated, else as assumed."""
        return runner.machines.count if runner.machines is not None else self.assumed_machines

    def get_container_options(self, runner: CiRunner, platform: project_names.Platform) -> tuple[str, ...]:
        """Return what a container of tests on a machine needs."""
        if runner.container_options is not None:
            return runner.container_options
        needs = self.platforms[platform].test_container
        return needs.options if needs is not None else ()


@lru_cache
def load_ci_table() -> CiTable:
    """Return the table of CI."""
    return records.load_record(project_names.get_data_folder() / "ci.yaml", CiTable)


def share_jobs(runners: Sequence[CiRunner], number: int) -> list[str]:
    """Return a label for each of ``number`` jobs, so that every prefix is shared out as the shares say."""
    return list(islice(generate_labels(runners), number))


def generate_labels(runners: Sequence[CiRunner]) -> Iterator[str]:
    """Yield a label for each next job, as ``share_jobs``; none where there are no machines."""
    counts = dict.fromkeys((runner.label for runner in runners), 0)
    while runners:
        chosen = min(runners, key=lambda runner: ((counts[runner.label] + 1) / runner.share, runner.label))
        counts[chosen.label] += 1
        yield chosen.label
