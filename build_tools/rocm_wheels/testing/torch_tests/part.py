"""Run one file of torch's tests. A test that takes its process with it costs nothing but itself."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import ending, log
from rocm_wheels.audit.imports import describe_end
from rocm_wheels.errors import BuildError, ChecksError, UsageError
from rocm_wheels.process import run
from rocm_wheels.testing import recording
from rocm_wheels.testing.torch_tests.outcomes import Outcomes, note, note_over, note_process, read_outcomes
from rocm_wheels.testing.torch_tests.plan import Part

_ENDED_WELL = (0, 1, 5)  # pytest's exit codes: passed, some failed, no tests
_REFUSED = re.compile(r".*: error: (.+)")  # what argparse says of a command line
_BEGINNINGS = 50  # of one file: each begins behind a test that ended the one before
_PLUGIN = "rocm_wheels_recorder"
_KEPT, _SHOWN = 80, 4  # lines
_TRACE = re.compile(r"(Current t|T)hread 0x.*")  # faulthandler: what follows is where it was
_LATE = re.compile(r"Timeout \([0-9:.]+\)!$")  # likewise: a test took too long
_SIDE_BY_SIDE = re.compile(
    r"-n(\d+|auto|logical)?|--(numprocesses|maxprocesses|dist|tx)(=.*)?|-d"
)  # pytest-xdist's
_QUIET = 300.0  # seconds that a process may say nothing beside the limit of a test: it starts, reads tests


@dataclass(frozen=True)
class Running:
    """What all files have: the Python, its environment, where tests and results are, limits in seconds.

    ``torch`` is the folder of the one that is tested, None where it is installed another way. ``only`` these
    tests are run, if not None. ``cache``: pytest keeps its cache, in the folder of the sources.
    """

    python: Path
    env: Mapping[str, str]
    tests: Path
    folder: Path
    left_out: tuple[str, ...]
    words: tuple[str, ...]
    test_limit: float
    file_limit: float
    show: Callable[[str], None]
    torch: Path | None = None
    only: tuple[str, ...] | None = None
    cache: bool = False

    def outcomes(self, part: Part) -> Path:
        """Return where the outcomes of a file are written."""
        return self.folder / "outcomes" / f"{part.slug}.jsonl"

    def log(self, part: Part) -> Path:
        """Return where its output goes."""
        return self.folder / "logs" / f"{part.slug}.log"


def run_part(running: Running, part: Part) -> Outcomes:
    """Run what is not done of a file, and return all that is known of it then.

    A process that dies, or says nothing for so long as a test may take, is begun again behind the test
    that it was at. Raises ChecksError where pytest cannot be started, UsageError where it does not take the
    words that somebody gave.
    """
    path = running.outcomes(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + running.file_limit
    for _ in range(_BEGINNINGS):
        note_process(path)
        before = read_outcomes(path)
        how = _once(running, part, before, deadline - time.monotonic())
        after = read_outcomes(path)
        if how is None:
            note_over(path, "")
            break
        if not _blamed(path, after, how):
            note_over(path, _at_the_end(path, before, after, how))
            break
        if time.monotonic() >= deadline:
            note_over(path, f"{part.name} {how[1]}")
            break
        words = how[1].partition("\n")[0]
        log.note(f"{part.name}: {after.begun} {words}; the rest goes on")
    else:
        note_over(path, f"{part.name} was begun {_BEGINNINGS} times, and died each time")
    return read_outcomes(path)


def _blamed(path: Path, after: Outcomes, how: tuple[str, str]) -> bool:
    """Write down that a test ended its process, and tell whether there was one."""
    if not after.begun:
        return False
    note(path, after.begun, "timeout" if how[0] == "timeout" else "crashed", f"its process {how[1]}")
    return True


def _at_the_end(path: Path, before: Outcomes, after: Outcomes, how: tuple[str, str]) -> str:
    """Say how a process ended that was at no test, and count it as a failure of the file."""
    words = f"pytest {how[1]}"
    if not any(one.reason.startswith("not read: ") for one in after.results):
        name = "before its first test" if after.results == before.results else "behind its last test"
        note(path, f"{path.stem}: {name}", "timeout" if how[0] == "timeout" else "crashed", words)
    return words


def _once(running: Running, part: Part, before: Outcomes, seconds: float) -> tuple[str, str] | None:
    """Run pytest on what is not done; return None when it ended well, else what happened, and in words."""
    said: list[str] = []

    def shown(line: str) -> None:
        said[:] = [*said[1 - _KEPT :], line]
        running.show(line)

    with tempfile.TemporaryDirectory(prefix="rocm-wheels-torch-tests-") as name:
        order = Path(name, "recording.json")
        order.write_text(json.dumps(_order(running, part, before)), encoding="utf-8")
        try:
            code = run(
                _command(running, part, order),
                env=_environment(running, part, Path(name)),
                cwd=running.tests,
                log=running.log(part),
                on_line=shown,
                timeout=max(seconds, 0.001),
                silence=running.test_limit + _QUIET,
                check=None,
                what="it",
            ).returncode
        except BuildError as cause:
            if isinstance(cause.__cause__, OSError) or ending.is_near():
                raise ChecksError(f"pytest could not be run by {running.python}") from cause
            return "timeout", str(cause).removeprefix("it ")
    _require_taken(running.words, said)
    return _how_it_ended(code, before, read_outcomes(running.outcomes(part)), said, running.test_limit)


def _require_taken(words: Sequence[str], said: Sequence[str]) -> None:
    """Raise UsageError where pytest has refused words of somebody's: no file can be tested with them."""
    refused = next((match[1] for line in said if (match := _REFUSED.fullmatch(line.strip()))), "")
    named = {word.rstrip(":") for word in refused.split()}
    if named & {part for word in words for part in (word, word.partition("=")[0])}:
        raise UsageError(
            f"pytest refuses what it is told: {refused}",
            tip="words behind -- and those of PYTEST_ADDOPTS are handed to it: take these out",
        )


def _order(running: Running, part: Part, before: Outcomes) -> dict[str, object]:
    """Return what the recorder in pytest is told: where outcomes go, what is not run, how long a test may."""
    return {
        "outcomes": str(running.outcomes(part).absolute()),
        "done": before.done,
        "left_out": list(running.left_out),
        "only": None if running.only is None else list(running.only),
        "limit": running.test_limit,
        "torch": str(running.torch or ""),
    }


def _how_it_ended(
    code: int, before: Outcomes, after: Outcomes, said: Sequence[str], limit: float
) -> tuple[str, str] | None:
    """Judge a process of pytest by its exit code, its outcomes and what it printed; None: it ended well.

    Exit code 1 is a failed test's only where a test failed that was not done ``before``.
    """
    done = frozenset(before.done)
    failed = any(one.outcome == "failed" for one in after.results if one.name not in done)
    if code in _ENDED_WELL and after.finished and (code != 1 or failed):
        return None
    where = "".join(f"\n  | {line}" for line in _telling(said))
    if code == 1 and any(_LATE.search(line) for line in said):
        return "timeout", f"was stopped after {limit:g} s in it{where}"
    if code == 1 and after.finished:
        return "crashed", f"ended with exit code 1, and no test failed{where}"
    how = f"ended with exit code {code} in the middle" if code in _ENDED_WELL else describe_end(code)
    return "crashed", f"{how}{where}"


def _telling(said: Sequence[str]) -> list[str]:
    """Return the lines that say where a process died, or its last ones."""
    lines = [line for line in said if line.strip()]
    traces = [number for number, line in enumerate(lines) if _TRACE.match(line)]
    return lines[traces[-1] + 1 :][:_SHOWN] if traces else lines[-_SHOWN:]


def _command(running: Running, part: Part, order: Path) -> list[str]:
    shares = [f"--shard-id={part.share}", f"--num-shards={part.shares}"] if part.shares > 1 else []
    argv = [str(running.python), "-X", "faulthandler", "-m", "pytest", "-v", "-p", _PLUGIN]
    # with "=": pytest takes any other word that is a file for tests
    argv.append(f"--rocm-wheels-recording={order}")
    cache = [] if running.cache else ["-p", "no:cacheprovider"]
    return [*argv, *cache, f"{part.file}.py", *shares, *running.words]


def _environment(running: Running, part: Part, scratch: Path) -> dict[str, str]:
    """Return the environment of a process; kernels that MIOpen compiles go with the folder."""
    plugin = str(Path(next(iter(recording.__path__))))
    there = running.env.get("PYTHONPATH", "")
    separator = ";" if sys.platform == "win32" else ":"
    return {
        **running.env,
        **part.environment,
        "PYTHONPATH": separator.join(filter(None, [plugin, there])),
        "PYTHONUNBUFFERED": "1",  # a line that waits in a buffer looks like a test that hangs
        "MIOPEN_CUSTOM_CACHE_DIR": str(scratch),
    }


def words_of(addopts: Sequence[str], expression: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return what pytest is told: what its own variable says, ``-k``, and what stands behind ``--``.

    Raises UsageError for tests side by side: which of them ended its process, nobody would know.
    """
    said = (*addopts, *(["-k", expression] if expression else []), *words)
    if several := next((word for word in said if _SIDE_BY_SIDE.fullmatch(word)), None):
        tip = "leave it out (also of PYTEST_ADDOPTS); --shard and --num-shards share the files out"
        raise UsageError(f"{several}: torch's tests run one by one on a GPU", tip=tip)
    return said
