"""Results as the smoke tests write them: ``results.json``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field

from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.model.lock import Sha256Digest
from rocm_wheels.release.evidence import OutcomeCounts, Evidence
from rocm_wheels.release.evidence_given import NO_GPU_WORD, EvidenceSubmission
from rocm_wheels.release.evidence_results import parse_result, find_tested_hashes
from rocm_wheels.shell import format_command
from rocm_wheels.wheels.members import hash_file

_LONGEST_TOOL_SHOWN = 60
_GPU_TEST_NAME = re.compile(r"[\[-]gpu[\]-]| @gfx")  # in the name of a smoke test that ran on one
# what changes how results are shown, and not which tests are run; a test that -x kept from running is missing
# (without the plugin unittest none of its tests would be found)
_HARMLESS_ARGUMENT = re.compile(
    r"--|-p|no:(?:cacheprovider|faulthandler|logging|randomly|random_order|sugar|terminal|timeout|warnings|xdist)"
    r"|-[vqsxl]+|-r[A-Za-z]+|--exitfirst|--verbose|--quiet|--showlocals|--full-trace|--no-header|--no-summary"
    r"|--(?:tb|color|durations|durations-min|capture|junitxml|junit-xml|show-capture|maxfail)=\S*"
)


class _SmokeTest(BaseModel):
    name: str
    outcome: Literal["passed", "failed", "crashed", "timeout", "skipped", "missing"]


class _SmokeSelection(BaseModel):
    pytest_args: tuple[str, ...] = ()
    deselected: int = 0


class _SmokeResult(BaseModel):
    schema_version: Literal[1] = Field(alias="schema")
    tool: str
    when: AwareDatetime
    host: str
    gfx: tuple[str, ...]
    files: Mapping[str, Sha256Digest]
    tests: tuple[_SmokeTest, ...]
    counts: Mapping[str, int]
    selection: _SmokeSelection | None = None


def make_smoke_evidence(value: object, source: Path, submission: EvidenceSubmission) -> list[Evidence]:
    """Return what the smoke tests found, on the GPUs of one target or on none."""
    result = parse_result(_SmokeResult, value, source)
    actual_counts = Counter[str](test.outcome for test in result.tests)
    if (stated_counts := Counter({k: n for k, n in result.counts.items() if n})) != actual_counts:
        raise DataError(
            f"{source} counts {_format_counts(stated_counts)}, and lists {_format_counts(actual_counts)}",
            tip="it is not whole: run again",
        )
    counts = OutcomeCounts(**actual_counts)
    _refuse_other_tools(result, counts, source)
    tip = "run the smoke tests where the wheels of the set are installed, from its own index"
    hashes = find_tested_hashes(result.files, source, submission, tip=tip)
    bad = [test.name for test in result.tests if test.outcome not in {"passed", "skipped"}]
    return [
        submission.make_evidence(
            "smoke",
            counts,
            hashes,
            source=source,
            tool=result.tool,
            when=result.when,
            host=result.host,
            gfx=_find_smoke_target(result.gfx, counts, source, submission),
            failed=bad,
            selected=_describe_smoke_selection(result),
            digest=hash_file(source),
        )
    ]


def _refuse_other_tools(result: _SmokeResult, counts: OutcomeCounts, source: Path) -> None:
    """Raise DataError for results that are not of our smoke tests, or name a GPU that no test passed on."""
    if not (result.tool.startswith("rocm-wheels ") and " smoke tests" in result.tool):
        raise DataError(
            f"{source} is of another tool ({result.tool[:_LONGEST_TOOL_SHOWN]})",
            tip="run build_tools/run_pytorch_smoke_tests.py; of other tests, hand in the JUnit files",
        )
    on_gpu = any(_GPU_TEST_NAME.search(test.name) and test.outcome == "passed" for test in result.tests)
    if result.gfx and counts.decide_outcome() == "pass" and not on_gpu:
        raise DataError(f"{source} names {', '.join(result.gfx)}, and no test passed on a GPU")


def find_selecting_words(words: Iterable[str]) -> list[str]:
    """Return the words that may choose among tests, of those that pytest was given."""
    return [word for word in words if not _HARMLESS_ARGUMENT.fullmatch(word)]


def _describe_smoke_selection(result: _SmokeResult) -> str:
    """Return how tests were chosen; "" where all were run, or those left out failed to run.

    Of the words that pytest was given those are known that choose nothing; any other may.
    """
    if result.selection is None:  # of a version that put the words behind its name
        return result.tool.partition(" smoke tests")[2].strip(" ()")
    words = find_selecting_words(result.selection.pytest_args)
    left_out = f"{result.selection.deselected} left out" if result.selection.deselected else ""
    return ", ".join(filter(None, [format_command(words) if words else "", left_out]))


def _find_smoke_target(
    target_names: tuple[str, ...], counts: OutcomeCounts, source: Path, submission: EvidenceSubmission
) -> str | None:
    """Return the target that a result is of; what people say must agree, or explain a failure."""
    targets = sorted({strip_features(target_name) for target_name in target_names})
    if len(targets) > 1:
        raise UsageError(
            f"{source} is of {' and '.join(targets)} together: one may have skipped what another passed",
            tip=f"add those that are beside it: results-{targets[0]}.json and the others",
        )
    target = targets[0] if targets else None
    if submission.gfx in {None, target} or (submission.gfx == NO_GPU_WORD and target is None):
        return target
    if target is not None or counts.decide_outcome() == "pass":
        raise UsageError(
            f"{source} {f'ran on {target}' if target else 'saw no GPU'}, not on {submission.gfx}"
        )
    return submission.gfx  # it died before it had seen the GPU


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"
