"""Results as the smoke tests write them: ``results.json``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.lock import Sha256
from rocm_wheels.release.evidence import Counts, Evidence
from rocm_wheels.release.evidence_given import NO_GPU, Given
from rocm_wheels.release.evidence_results import read_as, tested_hashes
from rocm_wheels.shell import shell_line
from rocm_wheels.wheels.members import digest_of_file

_SHOWN = 60
_ON_GPU = re.compile(r"[\[-]gpu[\]-]| @gfx")  # in the name of a smoke test that ran on one
# what changes how results are shown, and not which tests are run; a test that -x kept from running is missing
# (without the plugin unittest none of its tests would be found)
_CHOOSES_NOTHING = re.compile(
    r"--|-p|no:(?:cacheprovider|faulthandler|logging|randomly|random_order|sugar|terminal|timeout|warnings|xdist)"
    r"|-[vqsxl]+|-r[A-Za-z]+|--exitfirst|--verbose|--quiet|--showlocals|--full-trace|--no-header|--no-summary"
    r"|--(?:tb|color|durations|durations-min|capture|junitxml|junit-xml|show-capture|maxfail)=\S*"
)


class _Test(BaseModel):
    name: str
    outcome: Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]


class _Selection(BaseModel):
    pytest_args: tuple[str, ...] = ()
    deselected: int = 0


class _Smoke(BaseModel):
    schema_version: Literal[1] = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    gfx: tuple[str, ...]
    files: Mapping[str, Sha256]
    tests: tuple[_Test, ...]
    counts: Mapping[str, int]
    selection: _Selection | None = None


def evidence_of_smoke(value: object, source: Path, given: Given) -> list[Evidence]:
    """Return what the smoke tests found, on the GPUs of one target or on none."""
    found = read_as(_Smoke, value, source)
    counted = Counter[str](one.outcome for one in found.tests)
    if (said := Counter({k: n for k, n in found.counts.items() if n})) != counted:
        raise DataError(
            f"{source} counts {_counted(said)}, and lists {_counted(counted)}",
            tip="it is not whole: run again",
        )
    counts = Counts(**counted)
    _refuse_other_tools(found, counts, source)
    tip = "run the smoke tests where the wheels of the set are installed, from its own index"
    hashes = tested_hashes(found.files, source, given, tip=tip)
    bad = [one.name for one in found.tests if one.outcome not in {"passed", "skipped"}]
    return [
        given.make(
            "smoke",
            counts,
            hashes,
            source=source,
            tool=found.tool,
            when=found.when,
            host=found.host,
            gfx=_target(found.gfx, counts, source, given),
            failed=bad,
            selected=_selected(found),
            digest=digest_of_file(source),
        )
    ]


def _refuse_other_tools(found: _Smoke, counts: Counts, source: Path) -> None:
    """Raise DataError for results that are not of our smoke tests, or name a GPU that no test passed on."""
    if not (found.tool.startswith("rocm-wheels ") and " smoke tests" in found.tool):
        raise DataError(
            f"{source} is of another tool ({found.tool[:_SHOWN]})",
            tip="run build_tools/run_pytorch_smoke_tests.py; of other tests, hand in the JUnit files",
        )
    on_gpu = any(_ON_GPU.search(one.name) and one.outcome == "passed" for one in found.tests)
    if found.gfx and counts.outcome() == "pass" and not on_gpu:
        raise DataError(f"{source} names {', '.join(found.gfx)}, and no test passed on a GPU")


def choosing(words: Iterable[str]) -> list[str]:
    """Return the words that may choose among tests, of those that pytest was given."""
    return [word for word in words if not _CHOOSES_NOTHING.fullmatch(word)]


def _selected(found: _Smoke) -> str:
    """Return how tests were chosen; "" where all were run, or those left out failed to run.

    Of the words that pytest was given those are known that choose nothing; any other may.
    """
    if found.selection is None:  # of a version that put the words behind its name
        return found.tool.partition(" smoke tests")[2].strip(" ()")
    words = choosing(found.selection.pytest_args)
    left_out = f"{found.selection.deselected} left out" if found.selection.deselected else ""
    return ", ".join(filter(None, [shell_line(words) if words else "", left_out]))


def _target(said: tuple[str, ...], counts: Counts, source: Path, given: Given) -> str | None:
    """Return the target that a result is of; what people say must agree, or explain a failure."""
    found = sorted({base_target(one) for one in said})
    if len(found) > 1:
        raise UsageError(
            f"{source} is of {' and '.join(found)} together: one may have skipped what another passed",
            tip=f"add those that are beside it: results-{found[0]}.json and the others",
        )
    own = found[0] if found else None
    if given.gfx in {None, own} or (given.gfx == NO_GPU and own is None):
        return own
    if own is not None or counts.outcome() == "pass":
        raise UsageError(f"{source} {f'ran on {own}' if own else 'saw no GPU'}, not on {given.gfx}")
    return given.gfx  # it died before it had seen the GPU


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"
