"""Describe torch's own tests: what a run holds, what is known to fail, hang or crash where, how long to
wait.

Owns ``data/torch_tests.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field, field_validator, model_validator

from rocm_wheels.core import Record, load_record, make_record_error, suggest_name
from rocm_wheels.models.facts import Fact, FactTable
from rocm_wheels.models.gfx import get_gfx_targets, strip_features
from rocm_wheels.models.project_names import Platform, get_data_folder

SuiteName = Literal["default", "full", "distributed", "inductor"]
SUITE_NAMES: tuple[SuiteName, ...] = get_args(SuiteName)
FailureEffect = Literal["fails", "hangs", "crashes"]
_FILE_NAME = re.compile(r"[\w./-]+")
_TEST_NAME = re.compile(r"([\w./-]+\.py)::(?:(\w+)::)?([^:\s]+)")


def _check_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no version specifier") from None
    return text


VersionSpecifier = Annotated[str, AfterValidator(_check_specifier)]


class TorchTestGroup(Record):
    """Files that are run alike: named (``test_nn`` for ``test/test_nn.py``), or listed by its run_test.py.

    ``listed_by`` are the words that it is told; ``environment`` is theirs alone.
    """

    files: tuple[str, ...] = ()
    listed_by: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _one_of_both(self) -> TorchTestGroup:
        if bool(self.files) == bool(self.listed_by):
            raise ValueError("a group either names `files`, or says by what words they are `listed_by`")
        if odd := [file for file in self.files if not _FILE_NAME.fullmatch(file) or file.endswith(".py")]:
            raise make_record_error(
                f"{odd[0]!r} is no file of test/ without .py", "files", self.files.index(odd[0])
            )
        return self


class LeftOutFiles(Fact):
    """Files that are listed, and not run; ``reason`` says why."""

    files: tuple[str, ...] = Field(min_length=1)
    reason: str = Field(min_length=1)


class TorchTestSuite(Record):
    """What a run holds. ``gpus``: each alone, or every one of a target at once."""

    about: str
    fact: Fact
    gpus: Literal["one", "every"] = "one"
    groups: tuple[TorchTestGroup, ...] = Field(min_length=1)
    left_out: tuple[LeftOutFiles, ...] = ()

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files that are named; what it has listed nobody knows beforehand."""
        without = {file for row in self.left_out for file in row.files}
        return tuple(file for group in self.groups for file in group.files if file not in without)

    @model_validator(mode="after")
    def _each_once(self) -> TorchTestSuite:
        files = [file for group in self.groups for file in group.files]
        if duplicates := sorted({name for name in files if files.count(name) > 1}):
            raise ValueError(f"{duplicates[0]} is in two groups")
        return self


class KnownTestRow(Fact):
    """Tests that are known not to pass, and where; what is not named is meant whole.

    ``tests`` are exact: ``test_nn.py::TestNN::test_print``; without the class, the tests of that very name in
    every class of the file. ``effect``: those that hang or crash are not run, for they would take others with
    them; those that fail are, so that it is seen when they do not any more.
    """

    tests: tuple[str, ...] = Field(min_length=1)
    effect: FailureEffect
    reason: str = Field(min_length=1)
    torch: VersionSpecifier = ""
    targets: tuple[str, ...] = ()
    platforms: tuple[Platform, ...] = ()
    pythons: tuple[str, ...] = ()

    @field_validator("tests")
    @classmethod
    def _are_tests(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for test in value:
            if not _TEST_NAME.fullmatch(test):
                raise make_record_error(
                    f"{test!r} is no test: FILE.py::[Class::]name, no pattern", value.index(test)
                )
        if len(set(value)) != len(value):
            raise ValueError(f"{next(test for test in value if value.count(test) > 1)} is named twice")
        return value

    @field_validator("targets")
    @classmethod
    def _are_targets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for target in value:
            if target not in get_gfx_targets():
                raise make_record_error(
                    f"{target} is no GPU target{suggest_name(target, get_gfx_targets())}", value.index(target)
                )
        return value

    def applies_to(self, torch: Version | None, gfx: str, platform: Platform, python: str) -> bool:
        """Tell whether it is about a torch (``None``: any) on a GPU target; ``python`` is as ``3.12``."""
        return (
            (torch is None or SpecifierSet(self.torch).contains(torch.base_version, prereleases=True))
            and (not self.targets or strip_features(gfx) in self.targets)
            and (not self.platforms or platform in self.platforms)
            and (not self.pythons or python in self.pythons)
        )


class TorchTestTimeouts(Fact):
    """Minutes after which a test that says nothing is ended, and after which a whole file is."""

    test_minutes: float = Field(gt=0)
    file_minutes: float = Field(gt=0)


class TorchTestLimits(Record):
    """Our own decisions: ``unrecorded_seconds`` stand for a file whose duration no results record,
    ``tests_alone`` are tried again of a file: where more failed, it is no matter of chance.
    """

    unrecorded_seconds: float = Field(default=300, gt=0)
    tests_alone: int = Field(default=20, ge=0)


class TorchTestTable(FactTable):
    """The whole of ``data/torch_tests.yaml``; ``environment`` is of tests on a GPU."""

    suites: Mapping[str, TorchTestSuite]
    environment: Mapping[str, str] = {}
    waiting: TorchTestTimeouts
    limits: TorchTestLimits = TorchTestLimits()
    known: tuple[KnownTestRow, ...] = ()

    @field_validator("suites")
    @classmethod
    def _has_a_default(cls, value: Mapping[str, TorchTestSuite]) -> Mapping[str, TorchTestSuite]:
        if "default" not in value:
            raise ValueError("there must be a suite `default`")
        return value


class KnownTests:
    """What is known of tests in one place: by exact name, whatever class, where none was named."""

    def __init__(self, rows: Iterable[KnownTestRow]) -> None:
        """``rows`` are those that hold here; of two about a test, one that keeps it from being run counts."""
        self._by_name: dict[tuple[str, str, str], KnownTestRow] = {}
        for row in rows:
            for test in row.tests:
                file, group, name = _split_test(test)
                earlier = self._by_name.get((file, group, name))
                if earlier is None or earlier.effect == "fails":
                    self._by_name[file, group, name] = row

    def find_test(self, test: str) -> KnownTestRow | None:
        """Return what is known of a test by its node id (``test_nn.py::TestNN::test_print``)."""
        if not _TEST_NAME.fullmatch(test):
            return None
        file, group, name = _split_test(test)
        return self._by_name.get((file, group, name)) or self._by_name.get((file, "", name))

    def list_names(self) -> list[str]:
        """Return all tests that something is known of here, as the table has them."""
        return ["::".join(filter(None, key)) for key in self._by_name]

    def list_skipped(self) -> list[str]:
        """Return the tests, as the table has them, that hang or crash here."""
        return [
            "::".join(part for part in key if part)
            for key, row in self._by_name.items()
            if row.effect != "fails"
        ]


def select_known_tests(
    rows: Sequence[KnownTestRow], torch: str | None, gfx: str, platform: Platform, python: str
) -> KnownTests:
    """Return what is known of tests of a torch (``None``: of any) on a GPU target."""
    version = Version(torch) if torch is not None else None
    return KnownTests(row for row in rows if row.applies_to(version, gfx, platform, python))


def _split_test(test: str) -> tuple[str, str, str]:
    match = _TEST_NAME.fullmatch(test)
    assert match is not None
    return match[1], match[2] or "", match[3]


def load_torch_tests() -> TorchTestTable:
    """Return the table."""
    return _read_torch_tests()


@lru_cache
def _read_torch_tests() -> TorchTestTable:
    return load_record(get_data_folder() / "torch_tests.yaml", TorchTestTable)
