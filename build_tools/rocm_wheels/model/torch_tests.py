"""Torch's own tests: what a run holds, what is known to fail, hang or crash where, and how long to wait.

Owns ``data/torch_tests.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field, field_validator, model_validator

from rocm_wheels.model.compat.facts import Fact, FactTable
from rocm_wheels.model.gfx import base_target, gfx_targets
from rocm_wheels.model.names import data_folder
from rocm_wheels.model.project import Platform
from rocm_wheels.records import Record, did_you_mean, fault, load

Effect = Literal["fails", "hangs", "crashes"]
_FILE = re.compile(r"[\w./-]+")
_TEST = re.compile(r"([\w./-]+\.py)::(?:(\w+)::)?([^:\s]+)")


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no version specifier") from None
    return text


Specifier = Annotated[str, AfterValidator(_specifier)]


class Group(Record):
    """Files that are run alike: named (``test_nn`` for ``test/test_nn.py``), or listed by its run_test.py.

    ``listed_by`` are the words that it is told; ``environment`` is theirs alone.
    """

    files: tuple[str, ...] = ()
    listed_by: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _one_of_both(self) -> Group:
        if bool(self.files) == bool(self.listed_by):
            raise ValueError("a group either names `files`, or says by what words they are `listed_by`")
        if odd := [one for one in self.files if not _FILE.fullmatch(one) or one.endswith(".py")]:
            raise fault(f"{odd[0]!r} is no file of test/ without .py", "files", self.files.index(odd[0]))
        return self


class LeftOut(Fact):
    """Files that are listed, and not run; ``reason`` says why."""

    files: tuple[str, ...] = Field(min_length=1)
    reason: str = Field(min_length=1)


class Suite(Record):
    """What a run holds. ``gpus``: each alone, or every one of a target at once.

    ``whole``: it stands for torch's own tests; results of another suite are those of a selection.
    """

    about: str
    fact: Fact
    gpus: Literal["one", "every"] = "one"
    whole: bool = False
    groups: tuple[Group, ...] = Field(min_length=1)
    left_out: tuple[LeftOut, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """The files that are named; what it has listed nobody knows beforehand."""
        without = {file for row in self.left_out for file in row.files}
        return tuple(file for group in self.groups for file in group.files if file not in without)

    @model_validator(mode="after")
    def _each_once(self) -> Suite:
        files = [file for group in self.groups for file in group.files]
        if twice := sorted({one for one in files if files.count(one) > 1}):
            raise ValueError(f"{twice[0]} is in two groups")
        return self


class KnownTests(Fact):
    """Tests that are known not to pass, and where; what is not named is meant whole.

    ``tests`` are exact: ``test_nn.py::TestNN::test_print``; without the class, the tests of that very name in
    every class of the file. ``effect``: those that hang or crash are not run, for they would take others with
    them; those that fail are, so that it is seen when they do not any more.
    """

    tests: tuple[str, ...] = Field(min_length=1)
    effect: Effect
    reason: str = Field(min_length=1)
    torch: Specifier = ""
    targets: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    pythons: tuple[str, ...] = ()

    @field_validator("tests")
    @classmethod
    def _are_tests(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not _TEST.fullmatch(one):
                raise fault(f"{one!r} is no test: FILE.py::[Class::]name, no pattern", value.index(one))
        if len(set(value)) != len(value):
            raise ValueError(f"{next(one for one in value if value.count(one) > 1)} is named twice")
        return value

    @field_validator("targets")
    @classmethod
    def _are_targets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if one not in gfx_targets():
                raise fault(f"{one} is no GPU target{did_you_mean(one, gfx_targets())}", value.index(one))
        return value

    def holds(self, torch: Version | None, gfx: str, platform: Platform, python: str) -> bool:
        """Tell whether it is about a torch (``None``: any) on a GPU target; ``python`` is as ``3.12``."""
        return (
            (torch is None or SpecifierSet(self.torch).contains(torch.base_version, prereleases=True))
            and (not self.targets or base_target(gfx) in self.targets)
            and (not self.platforms or platform in self.platforms)
            and (not self.pythons or python in self.pythons)
        )


class Waiting(Fact):
    """Minutes after which a test that says nothing is ended, and after which a whole file is."""

    test_minutes: float = Field(gt=0)
    file_minutes: float = Field(gt=0)


class TorchTests(FactTable):
    """The whole of ``data/torch_tests.yaml``; ``environment`` is of tests on a GPU."""

    suites: Mapping[str, Suite]
    environment: Mapping[str, str] = {}
    waiting: Waiting
    known: tuple[KnownTests, ...] = ()

    @field_validator("suites")
    @classmethod
    def _has_a_default(cls, value: Mapping[str, Suite]) -> Mapping[str, Suite]:
        if "default" not in value:
            raise ValueError("there must be a suite `default`")
        return value


class KnownHere:
    """What is known of tests in one place: by exact name, whatever class, where none was named."""

    def __init__(self, rows: Iterable[KnownTests]) -> None:
        """``rows`` are those that hold here; of two about a test, one that keeps it from being run counts."""
        self._by_name: dict[tuple[str, str, str], KnownTests] = {}
        for row in rows:
            for one in row.tests:
                file, group, name = _parts(one)
                held = self._by_name.get((file, group, name))
                if held is None or held.effect == "fails":
                    self._by_name[file, group, name] = row

    def of(self, test: str) -> KnownTests | None:
        """Return what is known of a test by its node id (``test_nn.py::TestNN::test_print``)."""
        if not _TEST.fullmatch(test):
            return None
        file, group, name = _parts(test)
        return self._by_name.get((file, group, name)) or self._by_name.get((file, "", name))

    def names(self) -> list[str]:
        """Return all tests that something is known of here, as the table has them."""
        return ["::".join(filter(None, key)) for key in self._by_name]

    def not_run(self) -> list[str]:
        """Return the tests, as the table has them, that hang or crash here."""
        return [
            "::".join(part for part in key if part)
            for key, row in self._by_name.items()
            if row.effect != "fails"
        ]


def known_here(
    rows: Sequence[KnownTests], torch: str | None, gfx: str, platform: Platform, python: str
) -> KnownHere:
    """Return what is known of tests of a torch (``None``: of any) on a GPU target."""
    version = Version(torch) if torch is not None else None
    return KnownHere(row for row in rows if row.holds(version, gfx, platform, python))


def _parts(test: str) -> tuple[str, str, str]:
    found = _TEST.fullmatch(test)
    assert found is not None
    return found[1], found[2] or "", found[3]


def torch_tests() -> TorchTests:
    """Return the table."""
    return _table()


@lru_cache
def _table() -> TorchTests:
    return load(data_folder() / "torch_tests.yaml", TorchTests)
