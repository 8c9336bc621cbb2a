"""The tables of checks: ``CHECKS`` are those of a wheel, ``SET_CHECKS`` those of a set of wheels;
``DRIFT_CHECKS`` compare a wheel with an older one. Each is defined where its rule is: see ``definition``.
"""

from __future__ import annotations

from rocm_wheels.audit import (  # noqa: F401 - importing modules is what defines their checks
    asan,
    audited_set,
    code_targets,
    contents,
    definition,
    device_code,
    drift,
    import_check,
    kernels,
    libraries,
    metadata,
    modules,
    needs,
    publishing,
    rocm_start,
    set_agreement,
    set_index,
    set_requirements,
    split_wheels,
    symbols,
)
from rocm_wheels.core import errors, tables

IMPORT_CHECK = "import"
EXCEPTION_CHECK = "exceptions"
LOST_WHEELS = "lost-wheels"

_EXCEPTIONS = definition.AuditCheck(
    "RW048",
    EXCEPTION_CHECK,
    "error",
    "exceptions of the policy have not ended",
    "What was let pass for a time is let pass for good, because nobody looks again.",
    "Mend what the exception is about, or decide again, with a new date.",
)

ALL_CHECKS = tuple(sorted((*definition.DEFINED, _EXCEPTIONS), key=lambda check: check.id))
"""The checks of all kinds, by their ids."""
CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "wheel")
SET_CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "set")
DRIFT_CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "drift")


def find_check(word: str) -> definition.AuditCheck:
    """Return a check by its id or name. Raises UsageError for what is neither."""
    for check in ALL_CHECKS:
        if word.lower() in (check.id.lower(), check.name):
            return check
    names = [name for check in ALL_CHECKS for name in (check.id, check.name)]
    tip = "`audit --explain` lists them"
    raise errors.UsageError(f"there is no check {word}{tables.suggest_name(word, names)}", tip=tip)


def get_check_id(name: str) -> str:
    """Return the id of a check, "" where there is none of that name."""
    return next((check.id for check in ALL_CHECKS if check.name == name), "")
