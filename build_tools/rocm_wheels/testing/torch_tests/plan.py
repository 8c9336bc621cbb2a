"""Which files of torch's tests are run: those of a suite, chosen and shared out."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import ChecksError, UsageError
from rocm_wheels.model.torch_tests import Group, LeftOut, Suite
from rocm_wheels.process import run
from rocm_wheels.records import did_you_mean

_LISTED = re.compile(r"    (\S+) (\d+)/(\d+)")
_LISTING_SECONDS = 600.0
_TOLD = 15
# read in torch/testing/_internal/common_utils.py and common_device_type.py of 2.15.0
_CHOOSES = re.compile(
    r"PYTORCH_(TEST|OPINFO)\w*|OPINFO_RESTRICT_TO_DSL|TORCH_TEST_DEVICES|(SLOW|DISABLED)_TESTS_FILE"
    r"|TEST_CONFIG|SANDCASTLE|TW_JOB_USER|PYTEST_PLUGINS"
)


# kinds of tests that run_test.py leaves out when it is told, and their files: read in that of torch 2.6.0
EXCLUSIONS = {
    "distributed": ("--exclude-distributed-tests", re.compile(r"distributed/.*")),
    "jit-executor": ("--exclude-jit-executor", re.compile(r"test_jit_(profiling|legacy|fuser_legacy)")),
    "quantization": ("--exclude-quantization-tests", re.compile(r"test_quantization")),
}


@dataclass(frozen=True)
class Part:
    """What one process of pytest runs: a file of test/ (``test_nn``), or a share of its tests.

    ``environment`` is its own alone.
    """

    file: str
    share: int = 1
    shares: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in results: ``test_nn``, ``test_ops 2/3``."""
        return self.file if self.shares == 1 else f"{self.file} {self.share}/{self.shares}"

    @property
    def slug(self) -> str:
        """Its name as that of a file."""
        return re.sub(r"[^\w-]+", "-", self.name)


@dataclass(frozen=True)
class Selection:
    """What is chosen of a suite. ``words`` go to pytest; ``shard`` of ``shards``, from 1.

    ``variables`` are those of the environment by which torch's tests choose among themselves. ``exclusions``
    say of a kind of tests (EXCLUSIONS) whether it is left out, where that is not up to the suite.
    ``known_as`` is the version of torch (or "all") whose known failures count; ``debug``: only tests of which
    something is known are run. ``cache``: pytest keeps its cache.
    """

    suite: str = "default"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shard: int = 1
    shards: int = 1
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    exclusions: Mapping[str, bool] = field(default_factory=dict)
    known_as: str = ""
    debug: bool = False
    cache: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """The options that make it another run than that of its suite."""
        options = [f"--{'' if leave else 'no-'}exclude-{kind}" for kind, leave in self.exclusions.items()]
        options += [f"--pytorch-version {self.known_as}"] if self.known_as else []
        return (*options, *(["--debug"] if self.debug else []))


def choosing_variables(env: Mapping[str, str], own: Iterable[str]) -> dict[str, str]:
    """Return what the environment says that keeps torch from running some tests, without our ``own``."""
    without = frozenset(own)
    return {name: env[name] for name in sorted(env) if _CHOOSES.fullmatch(name) and name not in without}


def plan_parts(
    suite: Suite, chosen: Selection, tests: Path, python: Path, env: Mapping[str, str]
) -> tuple[list[Part], list[LeftOut]]:
    """Return what is run, in order, and what the table leaves out of what is listed.

    ``include`` names files instead of those of the suite, whatever it leaves out. Raises UsageError for names
    of files that there are not, and where nothing is left; ChecksError where run_test.py lists nothing.
    """
    for option, names in (("--include", chosen.include), ("--exclude", chosen.exclude)):
        _refuse_strangers(option, names, tests)
    skipped: list[LeftOut] = []
    if any("--distributed-tests" in group.listed_by for group in suite.groups):  # it is all there is
        chosen = replace(chosen, exclusions={**chosen.exclusions, "distributed": False})
    suite = _with_exclusions(suite, chosen)
    if chosen.include:
        own = {file: group.environment for group in suite.groups for file in group.files}
        parts = _shared([Part(one, environment=own.get(one, {})) for one in chosen.include], chosen)
    else:
        parts = []
        for group in suite.groups:
            found = _listed(group, chosen, tests, python, env) if group.listed_by else _named(group, chosen)
            parts += found
            there = {part.file for part in found}
            skipped += [row for row in suite.left_out if there & set(row.files) and row not in skipped]
        without = {file for row in suite.left_out for file in row.files}
        parts = [part for part in parts if part.file not in without]
    parts = [part for part in parts if part.file not in chosen.exclude and not _is_excluded(part, chosen)]
    _refuse_strangers(f"the suite {chosen.suite}", [part.file for part in parts], tests)
    if not parts:
        raise UsageError("no file of tests is left to run", tip="--dry-run shows what a choice comes to")
    return parts, skipped


def _with_exclusions(suite: Suite, chosen: Selection) -> Suite:
    """Return the suite with run_test.py told otherwise. Raises UsageError where it is not asked."""
    groups = list(suite.groups)
    for kind, leave_out in chosen.exclusions.items():
        word = EXCLUSIONS[kind][0]
        listing = [number for number, group in enumerate(groups) if group.listed_by]
        if not leave_out and not listing:
            raise UsageError(
                f"--no-exclude-{kind}: the suite {chosen.suite} names its files, and leaves none of them out",
                tip="--suite full asks torch's run_test.py which files there are; --include names files",
            )
        for number in listing:
            words = [option for option in groups[number].listed_by if option != word]
            words += [word] if leave_out else []
            groups[number] = groups[number].model_copy(update={"listed_by": tuple(words)})
    return suite.model_copy(update={"groups": tuple(groups)})


def _is_excluded(part: Part, chosen: Selection) -> bool:
    return any(
        leave and EXCLUSIONS[kind][1].fullmatch(part.file) for kind, leave in chosen.exclusions.items()
    )


def _named(group: Group, chosen: Selection) -> list[Part]:
    return _shared([Part(one, environment=group.environment) for one in group.files], chosen)


def _shared(parts: list[Part], chosen: Selection) -> list[Part]:
    """Return the files of one shard: every so manieth, so that neighbours are spread."""
    return parts[chosen.shard - 1 :: chosen.shards]


def _listed(group: Group, chosen: Selection, tests: Path, python: Path, env: Mapping[str, str]) -> list[Part]:
    """Return what torch's own run_test.py would run: it knows the platform, and shares out by time."""
    argv = [str(python), str(tests / "run_test.py"), *group.listed_by, "--dry-run"]
    argv += ["--shard", str(chosen.shard), str(chosen.shards)]
    said: list[str] = []
    log.note("asking test/run_test.py which files there are")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as home:
        code = run(
            argv,
            env={**env, **group.environment, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": home},
            cwd=tests,
            on_line=said.append,
            timeout=_LISTING_SECONDS,
            check=None,
            what="run_test.py",
        ).returncode
    last = "".join(f"\n  | {line}" for line in said[-_TOLD:])
    needed = tests.parent / ".ci" / "docker" / "requirements-ci.txt"
    if code:
        raise ChecksError(
            f"run_test.py lists no tests, and ended with {code}:{last}",
            tip=f"it needs more than pytest: {python} -m pip install -r {needed}",
        )
    parts: list[Part] = []
    inside = False
    for line in said:
        if line.startswith("Name: "):
            inside = line.startswith("Name: tests to run")
        elif inside and line.startswith("    "):
            found = _LISTED.fullmatch(line.rstrip())
            if found is None:
                raise ChecksError(
                    f"run_test.py lists {line.strip()!r}, which is no file and share (NAME 1/2)"
                )
            parts.append(Part(found[1], int(found[2]), int(found[3]), group.environment))
    if not parts:
        raise ChecksError(f"run_test.py lists no tests:{last}", tip="look at what it says with --dry-run")
    return parts


def _refuse_strangers(what: str, names: Sequence[str], tests: Path) -> None:
    for name in names:
        if (tests / f"{name}.py").is_file():
            continue
        there = [path.relative_to(tests).with_suffix("").as_posix() for path in tests.rglob("test_*.py")]
        raise UsageError(
            f"{what} names {name}, and there is no {tests / name}.py{did_you_mean(name, there)}",
            tip="name files of test/ without .py: test_nn, nn/test_pooling",
        )
