"""Describe torch's own tests: what a run holds, what is known to fail, hang or crash where, how long to
wait.

Owns ``data/torch_tests.yaml``, and ``data/therock_known_tests.yaml``, which goes on with what is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Literal, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field, field_validator, model_validator

from rocm_wheels.core import records, tables
from rocm_wheels.models import facts, project_names
from rocm_wheels.models.gfx import get_gfx_targets, strip_features

SuiteName = Literal["default", "full", "distributed", "inductor"]
SUITE_NAMES: tuple[SuiteName, ...] = get_args(SuiteName)
TestRunner = Literal["pytest", "run_test"]
FailureEffect = Literal["fails", "hangs", "crashes"]
_FILE_NAME = re.compile(r"[\w./-]+")
_SHARE_NAME = re.compile(r"(.+) ([0-9]{1,4})/([0-9]{1,4})")
_TEST_NAME = re.compile(r"([\w./-]+(?:/\*)?\.py)::(?:(\w+)::)?([^:\s]+)")


def _check_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is no version specifier") from None
    return text


VersionSpecifier = Annotated[str, AfterValidator(_check_specifier)]


IssueUrl = Annotated[
    str, records.require_pattern(r"https://\S+", "the address of where it is tracked: https://…")
]


class TorchTestGroup(records.Record):
    """Files that are run alike: named (``test_nn`` for ``test/test_nn.py``), or listed by its run_test.py.

    ``listed_by`` are the words that it is told; ``environment`` is theirs alone. ``run_by``: pytest runs a
    file, or run_test.py, whose handlers give it backends, ranks and folders, and which is told ``words``.
    """

    files: tuple[str, ...] = ()
    listed_by: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    run_by: TestRunner = "pytest"
    words: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> TorchTestGroup:
        if bool(self.files) == bool(self.listed_by):
            raise ValueError("a group either names `files`, or says by what words they are `listed_by`")
        if self.words and self.run_by != "run_test":
            raise ValueError("`words` are for run_test.py: the group is to be `run_by: run_test`")
        if odd := [file for file in self.files if not _FILE_NAME.fullmatch(file) or file.endswith(".py")]:
            raise records.make_record_error(
                f"{odd[0]!r} is no file of test/ without .py", "files", self.files.index(odd[0])
            )
        return self


class LeftOutFiles(facts.Fact):
    """Files that are listed, and not run; ``reason`` says why."""

    files: tuple[str, ...] = Field(min_length=1)
    reason: str = Field(min_length=1)


class TorchTestSuite(records.Record):
    """What a run holds. ``gpus``: each alone, or every one of a target at once."""

    about: str
    fact: facts.Fact
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


class KnownTestEntry(records.Record):
    """Tests that are known not to pass, why, and on which ``targets`` and ``pythons``; none: on all.

    ``tests`` are exact: ``test_nn.py::TestNN::test_print``; without the class, the tests of that very name in
    every class of the file; ``inductor/*.py``, in every file of a folder. ``effect``: those that hang or
    crash are not run, for they would take others with them; those that fail are, so that it is seen when
    they do not any more. ``issue`` is where it is tracked, else it is the ``line`` of a source.
    """

    tests: tuple[str, ...] = Field(min_length=1)
    effect: FailureEffect = "fails"
    reason: str = Field(default="TheRock says nothing of it", min_length=1)
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    issue: IssueUrl | None = None
    line: int | None = Field(default=None, ge=1)

    @field_validator("tests")
    @classmethod
    def _are_tests(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for test in value:
            if not _TEST_NAME.fullmatch(test):
                raise records.make_record_error(
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
                raise records.make_record_error(
                    f"{target} is no GPU target{tables.suggest_name(target, get_gfx_targets())}",
                    value.index(target),
                )
        return value


class KnownTestRow(KnownTestEntry, facts.Fact):
    """What is known of tests, by whom, and where; what is not named is meant whole.

    From the day after ``expires`` the row does not count: what fails is a new failure.
    """

    effect: FailureEffect
    reason: str = Field(min_length=1)
    owner: str = Field(min_length=1)
    issue: IssueUrl
    expires: date
    torch: VersionSpecifier = ""
    platforms: tuple[project_names.Platform, ...] = ()

    def applies_to(
        self, torch: Version | None, gfx: str, platform: project_names.Platform, python: str
    ) -> bool:
        """Tell whether it is about a torch (``None``: any) on a GPU target; ``python`` is as ``3.12``."""
        return (
            (torch is None or SpecifierSet(self.torch).contains(torch.base_version, prereleases=True))
            and (not self.targets or strip_features(gfx) in self.targets)
            and (not self.platforms or platform in self.platforms)
            and (not self.pythons or python in self.pythons)
        )


class TorchTestTimeouts(facts.Fact):
    """Minutes after which a test that says nothing is ended, and after which a whole file is."""

    test_minutes: float = Field(gt=0)
    file_minutes: float = Field(gt=0)


class TorchTestLimits(records.Record):
    """Our own decisions: ``unrecorded_seconds`` stand for a file whose duration no results record, one that
    took longer than ``share_seconds`` is cut, ``tests_alone`` are tried again of a file: where more failed,
    it is no matter of chance.
    """

    unrecorded_seconds: float = Field(default=300, gt=0)
    share_seconds: float = Field(default=1800, gt=0)
    tests_alone: int = Field(default=20, ge=0)


class LeftOutRequirements(facts.Fact):
    """Packages that torch's list for its CI names, and that cannot be installed: with ``pythons``, or any."""

    names: tuple[str, ...] = Field(min_length=1)
    pythons: tuple[facts.PythonField, ...] = ()
    reason: str = Field(min_length=1)


class TorchTestTable(facts.FactTable):
    """The whole of ``data/torch_tests.yaml``; ``environment`` is of tests on a GPU."""

    suites: Mapping[str, TorchTestSuite]
    environment: Mapping[str, str] = {}
    waiting: TorchTestTimeouts
    limits: TorchTestLimits = TorchTestLimits()
    left_out_requirements: tuple[LeftOutRequirements, ...] = ()
    known: tuple[KnownTestRow, ...] = ()

    @field_validator("suites")
    @classmethod
    def _has_a_default(cls, value: Mapping[str, TorchTestSuite]) -> Mapping[str, TorchTestSuite]:
        if "default" not in value:
            raise ValueError("there must be a suite `default`")
        return value


class KnownTests:
    """What is known of tests in one place: by exact name, whatever class, where none was named."""

    def __init__(self, rows: Iterable[KnownTestRow], today: date) -> None:
        """``rows`` are those that hold here; of two about a test, one that keeps it from being run counts."""
        self._by_name: dict[_TestKey, KnownTestRow] = {}
        self._expired: dict[_TestKey, KnownTestRow] = {}
        for row in rows:
            by_name = self._expired if row.expires < today else self._by_name
            for test in row.tests:
                earlier = by_name.get(key := _split_test(test))
                if earlier is None or (earlier.effect == "fails" and row.effect != "fails"):
                    by_name[key] = row

    def find_test(self, test: str) -> KnownTestRow | None:
        """Return what is known of a test by its node id (``test_nn.py::TestNN::test_print``)."""
        return _find_row(self._by_name, test)

    def find_expired(self, test: str) -> KnownTestRow | None:
        """Return what was known of a test, and nobody has looked at again in time."""
        return _find_row(self._expired, test)

    def list_names(self, file: str) -> list[str]:
        """Return all tests of a file (``test_nn.py``) that something is known of here."""
        return [_name_in(file, key) for key in self._by_name if _is_of_file(key, file)]

    def list_skipped(self, file: str = "") -> list[str]:
        """Return the tests of a file that hang or crash here; without one, all, as the table has them."""
        skipped = [key for key, row in self._by_name.items() if row.effect != "fails"]
        if not file:
            return [_name_in(key[0], key) for key in skipped]
        return [_name_in(file, key) for key in skipped if _is_of_file(key, file)]


_TestKey = tuple[str, str, str]  # file or folder, class, name


def _find_row(by_name: Mapping[_TestKey, KnownTestRow], test: str) -> KnownTestRow | None:
    if not _TEST_NAME.fullmatch(test):
        return None
    file, group, name = _split_test(test)
    folders = [f"{folder}/*.py" for folder in PurePosixPath(file).parents if folder.name]
    for place in (file, *folders):
        if row := by_name.get((place, group, name)) or by_name.get((place, "", name)):
            return row
    return None


def _is_of_file(key: _TestKey, file: str) -> bool:
    return key[0] == file or (key[0].endswith("/*.py") and file.startswith(key[0].removesuffix("*.py")))


def _name_in(file: str, key: _TestKey) -> str:
    return "::".join(filter(None, (file, *key[1:])))


def select_known_tests(
    rows: Sequence[KnownTestRow],
    torch: str | None,
    gfx: str,
    platform: project_names.Platform,
    python: str,
    *,
    today: date,
) -> KnownTests:
    """Return what is known of tests of a torch (``None``: of any) on a GPU target."""
    version = Version(torch) if torch is not None else None
    return KnownTests((row for row in rows if row.applies_to(version, gfx, platform, python)), today)


def _split_test(test: str) -> _TestKey:
    match = _TEST_NAME.fullmatch(test)
    assert match is not None
    return match[1], match[2] or "", match[3]


def split_test_share(name: str) -> tuple[str, int, int]:
    """Return the file, the number and the count of a share by its name: ``test_ops 2/3``, or ``test_nn``."""
    match = _SHARE_NAME.fullmatch(name)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        return name, 1, 1
    return match[1], int(match[2]), int(match[3])


class KnownTestGroup(facts.Fact):
    """What a source says of tests of one torch, on ``targets`` and ``platforms``; it counts up to a day."""

    expires: date
    torch: VersionSpecifier = ""
    targets: tuple[str, ...] = ()
    platforms: tuple[project_names.Platform, ...] = ()
    entries: tuple[KnownTestEntry, ...] = Field(min_length=1)

    @field_validator("entries")
    @classmethod
    def _are_tracked(cls, value: tuple[KnownTestEntry, ...]) -> tuple[KnownTestEntry, ...]:
        for number, entry in enumerate(value):
            if (entry.issue is None) == (entry.line is None):
                raise records.make_record_error("an entry has either an `issue` or a `line`", number)
        return value


class KnownTestTable(facts.FactTable):
    """The whole of ``data/therock_known_tests.yaml``: what one ``owner`` keeps."""

    owner: str = Field(min_length=1)
    groups: tuple[KnownTestGroup, ...]

    @property
    def known(self) -> tuple[KnownTestRow, ...]:
        """Each entry with what its group says."""
        return tuple(
            KnownTestRow(
                tests=entry.tests,
                effect=entry.effect,
                reason=entry.reason,
                owner=self.owner,
                issue=entry.issue or f"{self.sources[group.source].url}#L{entry.line}",
                expires=group.expires,
                torch=group.torch,
                targets=entry.targets or group.targets,
                platforms=group.platforms,
                pythons=entry.pythons,
                source=group.source,
                kind=group.kind,
            )
            for group in self.groups
            for entry in group.entries
        )


def load_torch_tests() -> TorchTestTable:
    """Return the table, with what the other one knows behind what it knows itself."""
    return _read_torch_tests()


@lru_cache
def _read_torch_tests() -> TorchTestTable:
    table = records.load_record(project_names.get_data_folder() / "torch_tests.yaml", TorchTestTable)
    imported = records.load_record(
        project_names.get_data_folder() / "therock_known_tests.yaml", KnownTestTable
    )
    changes = {
        "known": (*table.known, *imported.known),
        "sources": {**imported.sources, **table.sources},
    }
    return table.model_copy(update=changes)
