"""What a run and the process of a step tell each other: where the record is, and how the step ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from rocm_wheels.errors import BuildError, InterruptedRunError, RocmWheelsError, get_error_class
from rocm_wheels.pipeline.plan.step import Step
from rocm_wheels.sdk.environment_spec import EnvironmentSpec

RECORD_VARIABLE = "ROCM_WHEELS_RECORD"
ADDRESS_VARIABLES = {"index_url": "ROCM_WHEELS_INDEX_URL", "find_links": "ROCM_WHEELS_FIND_LINKS"}

ExecutionState = Literal[
    "done", "skipped", "failed", "timeout", "interrupted", "killed", "left out", "not begun"
]
KEPT_OUTPUT_LINES = 60  # of what a step prints are kept: an error is at its end
_ERROR_PREFIX = re.compile(r"error: |::error::")  # the second on GitHub, where it is one line


def make_step_variables(record: Path, sdk: EnvironmentSpec) -> dict[str, str]:
    """Return the variables by which a run tells the process of a step where its record is, and the whole
    addresses of packages, which are not in the plan when they hold a password.
    """
    addresses = {variable: getattr(sdk, name) for name, variable in ADDRESS_VARIABLES.items()}
    return {RECORD_VARIABLE: str(record), **{name: url for name, url in addresses.items() if url}}


def judge_step_end(
    step: Step, code: int, timed_out: BuildError | None, result: Mapping[str, object], log_file: Path
) -> tuple[ExecutionState, RocmWheelsError | None]:
    """Say how a step ended, from the exit code of its process and what that said itself."""
    if timed_out is not None:
        timed_out.tip = f"its log: {log_file}; --step-timeout allows more"
        return "timeout", timed_out
    if not code:
        return "done", None
    if code < 0:
        tip = "run the same command again; it carries on where it was"
        return "killed", BuildError(f"{step.id} was killed by signal {-code} (log: {log_file})", tip=tip)
    error, step_tip = get_error_class(code), result.get("tip")
    fallback = (
        "was interrupted"
        if error is InterruptedRunError
        else f"ended with exit code {code}; what it said is above"
    )
    failure = error(
        str(result.get("message") or f"{step.id} {fallback}"), tip=None if step_tip is None else str(step_tip)
    )
    return ("interrupted" if isinstance(failure, InterruptedRunError) else "failed"), failure


def result_path(folder: Path, step: str) -> Path:
    """Return the file in which the process of a step says how it ended."""
    return folder / f"{step}.result.json"


def read_result(folder: Path, step: str, last_lines: Iterable[str] = ()) -> Mapping[str, object]:
    """Read what the process of a step said of its end; where it could not (a full disk), what it printed."""
    try:
        result = json.loads(result_path(folder, step).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        result = {}
    result_path(folder, step).unlink(missing_ok=True)
    result = result if isinstance(result, dict) else {}
    return (
        result
        if result.keys() & {"message", "again"}
        else {**_find_printed_error(list(last_lines)), **result}
    )


def measured_cpu_seconds(result: Mapping[str, object], sampled: float) -> float:
    """Return the processors' time of a step: as its process counted it, else as far as it was sampled."""
    counted = result.get("cpu_seconds")
    return round(max(sampled, counted if isinstance(counted, (int, float)) else 0.0), 2)


def _find_printed_error(lines: list[str]) -> Mapping[str, object]:
    """Return the error that a process has printed last: its message, and its tip."""
    first = max((number for number, line in enumerate(lines) if _ERROR_PREFIX.match(line)), default=None)
    if first is None:
        return {}
    text = _ERROR_PREFIX.sub("", "\n".join(lines[first:]).replace("%0A", "\n"), count=1)
    message, _, tip = text.partition("\ntip: ")
    return {"message": message, "tip": tip or None}
