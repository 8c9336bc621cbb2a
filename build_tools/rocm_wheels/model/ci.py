"""What CI builds and tests when, and on which machines.

Owns ``data/ci.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from rocm_wheels.errors import UsageError
from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.compat.releases import index_named
from rocm_wheels.model.gfx import gfx_families, gfx_targets
from rocm_wheels.model.lines import all_lines
from rocm_wheels.model.names import data_folder
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record, did_you_mean, fault, load, spelled

PLATFORMS: tuple[Platform, ...] = get_args(Platform)
RunnerLabel = Annotated[str, spelled("[A-Za-z0-9_.-]+", "letters, digits, _ . and -")]  # workflows hold it
Test = Literal["sanity", "smoke", "tests"]
Touched = Literal["project", "tests", "nothing", "everything"]
Layout = Literal["per-family", "multi-arch"]
MULTI_ARCH: Layout = "multi-arch"  # also in the place of a family's name, where wheels are for all of them
HOSTED = "ubuntu-24.04"  # the label of GitHub's own machines that do what needs neither cores nor a GPU
_UNCOVERED = "nightly"


class Runner(Record):
    """Machines with one label, and how much of the work they get beside others."""

    label: RunnerLabel
    share: int = Field(default=1, gt=0)


class FamilyOn(Record):
    """A family on one platform. ``targets`` are the GPUs of its runners, () where that is not said.

    ``bypass_tests_for_releases`` makes it a named exception: releases may pass untested, and are shown to be.
    """

    runners: tuple[Runner, ...] = ()
    several_gpus: tuple[Runner, ...] = ()
    targets: tuple[str, ...] = ()
    tests_since: str | None = None
    only_sanity: bool = False
    bypass_tests_for_releases: bool = False

    @property
    def runner(self) -> str:
        """The label of the machines that most of the work goes to, "" where there are none."""
        return max(self.runners, key=lambda one: one.share).label if self.runners else ""

    @model_validator(mode="after")
    def _has_machines(self) -> FamilyOn:
        if not self.runners and (self.targets or self.tests_since or self.several_gpus):
            raise ValueError("`targets`, `tests_since` and `several_gpus` are of runners, and there are none")
        return self


class Family(Record):
    """A family of GPUs as CI has it; ``fact`` says where that was read."""

    fact: Fact
    since: str
    linux: FamilyOn | None = None
    windows: FamilyOn | None = None

    def on(self, platform: Platform) -> FamilyOn | None:
        """Return what there is on a platform; None where nothing is built."""
        return self.linux if platform == "linux" else self.windows


class Lines(Record):
    """The newest so many lines that AMD has released with, and others by name."""

    newest: int = Field(ge=0)
    also: tuple[str, ...] = ()


class Trigger(Record):
    """What a run of a kind holds; ``about`` says when there is one.

    ``layout``: wheels for each family, or ``multi-arch``: for all families together.
    """

    about: str
    pythons: tuple[str, ...] = Field(min_length=1)
    lines: Lines
    tests: tuple[Test, ...]
    layout: Layout = "per-family"

    @field_validator("pythons", "tests")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({*value}) < len(value):
            raise ValueError(f"a value is given twice: {next(one for one in value if value.count(one) > 1)}")
        return value


class Builders(Record):
    """The machines that build for a platform, and the cores of one; ``hosted``: they are GitHub's."""

    fact: Fact
    builders: tuple[Runner, ...] = Field(min_length=1)
    cores: int = Field(gt=0)
    hosted: bool = False


class Excluded(Fact):
    """Cells that cannot be built. What is not named is meant whole."""

    families: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = PLATFORMS
    reason: str

    def covers(self, family: str, python: str, line: str, platform: Platform) -> bool:
        """Tell whether a cell is among them."""
        named = ((self.families, family), (self.lines, line), (self.pythons, python))
        return platform in self.platforms and all(not names or one in names for names, one in named)


class Untested(Excluded):
    """Cells that cannot have some ``tests``."""

    tests: tuple[Test, ...] = Field(min_length=1)


class Limit(Fact):
    """A number that GitHub holds workflows to."""

    value: int = Field(gt=0)


class Limits(Record):
    """Jobs of one matrix, hours of a job on GitHub's machines and on own ones, disk of GitHub's, levels of
    workflows."""

    matrix_jobs: Limit
    hosted_job_hours: Limit
    own_job_hours: Limit
    hosted_disk_gb: Limit
    levels: Limit


class Minutes(Fact):
    """What a kind of test takes of a GPU."""

    minutes: float = Field(gt=0)


class CacheShare(Record):
    """The share of compilers' work that a compiler cache saves which has their results."""

    compiles: float = Field(ge=0, lt=1)


class Touch(Record):
    """Files, as globs on paths in the repository, and what a change of them has to do with.

    ``{project}`` in a glob is the name of a project.
    """

    paths: tuple[str, ...] = Field(min_length=1)
    what: Touched


class CiTable(FactTable):
    """The whole of ``data/ci.yaml``."""

    limits: Limits
    triggers: Mapping[str, Trigger] = Field(min_length=1)
    platforms: Mapping[Platform, Builders]
    staging: tuple[Runner, ...] = Field(min_length=1)
    families: Mapping[str, Family]
    excluded: tuple[Excluded, ...] = ()
    untested: tuple[Untested, ...] = ()
    tests: Mapping[Test, Minutes]
    cache: CacheShare
    rocm_index: str
    touches: tuple[Touch, ...] = Field(min_length=1)

    @field_validator("families")
    @classmethod
    def _are_families(cls, value: Mapping[str, Family]) -> Mapping[str, Family]:
        known = gfx_families()
        seen: dict[str, str] = {}
        for name, family in value.items():
            if name not in known:
                raise fault(f"{name} is no family{did_you_mean(name, known)}", name)
            for target in known[name]:
                if other := seen.get(target):
                    raise fault(f"{target} is in {other} and in {name}: it would be built twice", name)
                seen[target] = name
            named = {one for platform in PLATFORMS if (on := family.on(platform)) for one in on.targets}
            if strange := sorted(named - set(known[name])):
                raise fault(f"{name} has no {', '.join(strange)}", name)
        return value

    @field_validator("rocm_index")
    @classmethod
    def _is_an_index(cls, value: str) -> str:
        try:
            return index_named(value).name
        except UsageError as cause:
            raise ValueError(str(cause)) from cause

    @model_validator(mode="after")
    def _names(self) -> CiTable:
        for name, family in self.families.items():
            said = [family.since, *(on.tests_since for p in PLATFORMS if (on := family.on(p)))]
            for since in said:
                if since is not None and since not in self.triggers:
                    hint = did_you_mean(since, self.triggers)
                    raise fault(f"there is no trigger {since}{hint}", "families", name)
        lines = [line.name for line in all_lines()]
        told = [line for trigger in self.triggers.values() for line in trigger.lines.also]
        exceptions = (*self.excluded, *self.untested)
        for line in (*told, *(line for one in exceptions for line in one.lines)):
            if line not in lines:
                raise ValueError(f"there is no release line {line}{did_you_mean(line, lines)}")
        pythons = {
            python for line in all_lines() for python in (*line.pythons.values, *line.free_threaded.values)
        }
        said_of = (*(one.pythons for one in self.triggers.values()), *(one.pythons for one in exceptions))
        for python in (python for some in said_of for python in some):
            if python not in pythons:
                raise ValueError(f"no release line has Python {python}{did_you_mean(python, pythons)}")
        for named in (named for one in exceptions for named in one.families):
            if named not in self.every_family:
                raise ValueError(f"`excluded` or `untested` names {named}, which is not built")
        if lacking := sorted(set(get_args(Test)) - set(self.tests)):
            raise fault(f"`tests` does not say what these take: {', '.join(lacking)}", "tests")
        if self.touches[-1].paths != ("**",):
            raise fault('the last of `touches` must be about every other file: paths: ["**"]', "touches")
        return self

    @cached_property
    def every_family(self) -> dict[str, Family]:
        """Return every family by name, those of targets that no family of the table holds at the end."""
        members = gfx_families()
        held = {target for name in self.families for target in members[name]}
        fact = next(iter(self.families.values())).fact if self.families else None
        alone = [target for target in gfx_targets() if target not in held]
        added = {
            target: Family(fact=fact, since=self._fallback(), linux=FamilyOn(), windows=FamilyOn())
            for target in alone
            if fact is not None
        }
        return {**self.families, **added}

    def _fallback(self) -> str:
        return _UNCOVERED if _UNCOVERED in self.triggers else list(self.triggers)[-1]

    def begun(self, since: str, trigger: str) -> bool:
        """Tell whether what there is since one trigger is there in another, which may come later."""
        order = list(self.triggers)
        return order.index(since) <= order.index(trigger)


def ci_table() -> CiTable:
    """Return the table."""
    return _table()


@lru_cache
def _table() -> CiTable:
    return load(data_folder() / "ci.yaml", CiTable)


def shared_out(runners: Sequence[Runner], number: int) -> list[str]:
    """Return a label for each of ``number`` jobs, so that every prefix is shared out as the shares say."""
    given = dict.fromkeys((one.label for one in runners), 0)
    labels = []
    for _ in range(number if runners else 0):
        chosen = min(runners, key=lambda one: ((given[one.label] + 1) / one.share, one.label))
        given[chosen.label] += 1
        labels.append(chosen.label)
    return labels
