"""Describe torch's own tests: what a run holds, what is known to fail, hang or crash where, how long to
wait.

Owns ``data/torch_tests.yaml``, and ``data/therock_known_tests.yaml``, which goes on with what is known. That
suites and targets of theirs are some is held by tests of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Literal, get_args

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import Field

from rocm_wheels.core import records
from rocm_wheels.models import facts, project_names
from rocm_wheels.models.gfx import strip_features

SuiteName = Literal["default", "full", "distributed", "inductor"]
SUITE_NAMES: tuple[SuiteName, ...] = get_args(SuiteName)
TestRunner = Literal["pytest", "run_test"]
FailureEffect = Literal["fails", "hangs", "crashes"]
_SHARE_NAME = re.compile(r"(.+) ([0-9]{1,4})/([0-9]{1,4})")
_TEST_NAME = re.compile(r"([\w./-]+(?:/\*)?\.py)::(?:(\w+)::)?([^:\s]+)")


TestName = Annotated[
    str, records.require_pattern(_TEST_NAME.pattern, "a test, FILE.py::[Class::]name, and no pattern")
]
IssueUrl = Annotated[
    str, records.require_pattern(r"https://\S+", "the address of where it is tracked: https://…")
]


class TorchTestGroup(records.Record):
    """Files that are run alike: named (``test_nn`` for ``test/test_nn.py``), or listed by its run_test.py.

    ``listed_by`` are the words that it is told. ``run_by``: pytest runs a file, or run_test.py, whose
    handlers give it backends, ranks and folders, and which is told ``words``.
    """

    files: tuple[str, ...] = ()
    listed_by: tuple[str, ...] = ()
    run_by: TestRunner = "pytest"
    words: tuple[str, ...] = ()


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


class KnownTestEntry(records.Record):
    """Tests that are known not to pass, why, and on which ``targets`` and ``pythons``; none: on all.

    ``tests`` are exact: ``test_nn.py::TestNN::test_print``; without the class, the tests of that very name in
    every class of the file; ``inductor/*.py``, in every file of a folder. ``effect``: those that hang or
    crash are not run, for they would take others with them; those that fail are, so that it is seen when
    they do not any more. ``issue`` is where it is tracked, else it is the ``line`` of a source.
    """

    tests: tuple[TestName, ...] = Field(min_length=1)
    effect: FailureEffect = "fails"
    reason: str = Field(default="TheRock says nothing of it", min_length=1)
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    issue: IssueUrl | None = None
    line: int | None = Field(default=None, ge=1)


class KnownTestRow(KnownTestEntry, facts.Fact):
    """What is known of tests, by whom, and where; what is not named is meant whole.

    From the day after ``expires`` the row does not count: what fails is a new failure.
    """

    effect: FailureEffect
    reason: str = Field(min_length=1)
    owner: str = Field(min_length=1)
    issue: IssueUrl
    expires: date
    torch: facts.SpecifierField = SpecifierSet("")
    platforms: tuple[project_names.Platform, ...] = ()

    def applies_to(
        self, torch: Version | None, gfx: str, platform: project_names.Platform, python: str
    ) -> bool:
        """Tell whether it is about a torch (``None``: any) on a GPU target; ``python`` is as ``3.12``."""
        return (
            (torch is None or self.torch.contains(torch.base_version, prereleases=True))
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


_TestKey = tuple[str, str, str]  # file or folder, class, name


class KnownTests:
    """What is known of tests in one place: by exact name, whatever class, where none was named."""

    def __init__(self, rows: Iterable[KnownTestRow], today: date) -> None:
        """``rows`` are those that hold here; of two about a test, one that keeps it from being run counts."""
        self._by_name: dict[_TestKey, KnownTestRow] = {}
        self._expired: dict[_TestKey, KnownTestRow] = {}
        for row in rows:
            by_name = self._expired if row.expires < today else self._by_name
            for key in map(_split_test, row.tests):
                if key and (key not in by_name or (by_name[key].effect == "fails" and row.effect != "fails")):
                    by_name[key] = row

    def find_test(self, test: str) -> KnownTestRow | None:
        """Return what is known of a test by its node id (``test_nn.py::TestNN::test_print``)."""
        return _find_row(self._by_name, test)

    def find_expired(self, test: str) -> KnownTestRow | None:
        """Return what was known of a test, and nobody has looked at again in time."""
        return _find_row(self._expired, test)

    def list_names(self, file: str, *, skipped: bool = False) -> list[str]:
        """Return the tests of a file (``test_nn.py``) that something is known of here.

        ``skipped``: those that hang or crash. Without a file all, as the table has them.
        """
        names = []
        for (place, group, name), row in self._by_name.items():
            of_file = place == file or (
                place.endswith("/*.py") and file.startswith(place.removesuffix("*.py"))
            )
            if (not file or of_file) and not (skipped and row.effect == "fails"):
                names.append("::".join(filter(None, (file or place, group, name))))
        return names


def _find_row(by_name: Mapping[_TestKey, KnownTestRow], test: str) -> KnownTestRow | None:
    if (key := _split_test(test)) is None:
        return None
    file, group, name = key
    folders = [f"{folder}/*.py" for folder in PurePosixPath(file).parents if folder.name]
    keys = [(place, *rest) for place in (file, *folders) for rest in ((group, name), ("", name))]
    return next((by_name[key] for key in keys if key in by_name), None)


def _split_test(test: str) -> _TestKey | None:
    match = _TEST_NAME.fullmatch(test)
    return (match[1], match[2] or "", match[3]) if match else None


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


def split_test_share(name: str) -> tuple[str, int, int]:
    """Return the file, the number and the count of a share by its name: ``test_ops 2/3``, or ``test_nn``."""
    match = _SHARE_NAME.fullmatch(name)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        return name, 1, 1
    return match[1], int(match[2]), int(match[3])


class KnownTestGroup(facts.Fact):
    """What a source says of tests of one torch, on ``targets`` and ``platforms``; it counts up to a day."""

    expires: date
    torch: facts.SpecifierField = SpecifierSet("")
    targets: tuple[str, ...] = ()
    platforms: tuple[project_names.Platform, ...] = ()
    entries: tuple[KnownTestEntry, ...] = Field(min_length=1)


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


@lru_cache
def load_torch_tests() -> TorchTestTable:
    """Return the table, with what the other one knows behind what it knows itself."""
    folder = project_names.get_data_folder()
    table = records.load_record(folder / "torch_tests.yaml", TorchTestTable)
    imported = records.load_record(folder / "therock_known_tests.yaml", KnownTestTable)
    known, sources = (*table.known, *imported.known), {**imported.sources, **table.sources}
    return table.model_copy(update={"known": known, "sources": sources})
