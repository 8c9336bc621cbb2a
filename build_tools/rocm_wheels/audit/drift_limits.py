"""State how much a wheel may differ from the one that it is compared with.

Owns ``data/audit_limits.yaml``; a policy replaces limits by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rocm_wheels.core import errors, records
from rocm_wheels.models import project_names

DriftMeasure = Literal[
    "wheel-grown",
    "wheel-shrunk",
    "file-grown",
    "file-shrunk",
    "files-lost",
    "files-new",
    "kernels-lost",
    "code-shrunk",
    "functions-lost",
    "cpp-symbols-lost",
]


def require_text(text: str) -> str:
    """Return a text that must say something, for records. Raises their error for an empty one."""
    if not text.strip():
        raise records.make_record_error("it must not be empty")
    return text


class DriftBound(records.Record):
    """A change counts when it is more than a share of what was there, in percent, and than an amount."""

    percent: float = Field(ge=0)
    amount: int = Field(ge=0)

    def is_exceeded(self, before: int, change: int) -> bool:
        """Tell whether a change, of what was ``before``, counts."""
        return change > self.amount and change * 100 > self.percent * before


class DriftLimit(records.Record):
    """The bounds of one measure, at least one of them, and why they are where they are."""

    warning: DriftBound | None = None
    error: DriftBound | None = None
    reason: Annotated[str, AfterValidator(require_text)]

    @model_validator(mode="after")
    def _check_bounds(self) -> DriftLimit:
        if self.warning is None and self.error is None:
            raise ValueError("a limit has `warning`, `error` or both")
        return self


DriftLimits = Mapping[DriftMeasure, DriftLimit]


class _LimitTable(records.Record):
    limits: DriftLimits


@lru_cache
def load_drift_limits() -> DriftLimits:
    """Return the limits that hold where no policy says otherwise."""
    return records.load_record(project_names.get_data_folder() / "audit_limits.yaml", _LimitTable).limits


def judge_change(
    limits: DriftLimits, measure: DriftMeasure, before: int, change: int
) -> errors.Severity | None:
    """Return how grave a change is, as an amount of what was ``before``; None where it is within limits."""
    limit = limits[measure]
    if change <= 0:
        return None
    if limit.error is not None and limit.error.is_exceeded(before, change):
        return "error"
    is_told = limit.warning is not None and limit.warning.is_exceeded(before, change)
    return "warning" if is_told else None
