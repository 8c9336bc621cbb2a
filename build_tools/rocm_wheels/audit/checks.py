"""The tables of checks: ``CHECKS`` are those of a wheel, ``SET_CHECKS`` those of a set of wheels;
``DRIFT_CHECKS`` compare a wheel with an older one. Each is defined where its rule is: see ``check``.
"""

from __future__ import annotations

from rocm_wheels.audit import check as check_definition
from rocm_wheels.audit import (
    contents,
    device_code,
    drift,
    kernels,
    libraries,
    metadata,
    modules,
    publishing,
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

MODULES = (
    *(contents, device_code, drift, kernels, libraries, metadata, modules, publishing, set_agreement),
    *(set_index, set_requirements, split_wheels, symbols),
)
"""Where checks are defined: importing them is what does it."""

_OTHERS = (
    check_definition.AuditCheck(
        "RW022",
        IMPORT_CHECK,
        "error",
        "it can be imported in a clean process, and says of itself what was built",
        "Nothing works.",
        "The last lines that the process printed say what is missing.",
        needs_recipe=True,
    ),
    check_definition.AuditCheck(
        "RW048",
        EXCEPTION_CHECK,
        "error",
        "exceptions of the policy have not ended",
        "What was let pass for a time is let pass for good, because nobody looks again.",
        "Mend what the exception is about, or decide again, with a new date.",
    ),
)

ALL_CHECKS = tuple(sorted((*check_definition.DEFINED, *_OTHERS), key=lambda check: check.id))
"""The checks of all kinds, by their ids."""
CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "wheel")
SET_CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "set")
DRIFT_CHECKS = tuple(check for check in ALL_CHECKS if check.kind == "drift")


def find_check(word: str) -> check_definition.AuditCheck:
    """Return a check by its id or name. Raises UsageError for what is neither."""
    for check in ALL_CHECKS:
        if word.lower() in (check.id.lower(), check.name):
            return check
    names = [name for check in ALL_CHECKS for name in (check.id, check.name)]
    raise errors.UsageError(
        f"there is no check {word}{tables.suggest_name(word, names)}", tip="`audit --explain` lists them"
    )


def get_check_id(name: str) -> str:
    """Return the id of a check, "" where there is none of that name."""
    return next((check.id for check in ALL_CHECKS if check.name == name), "")
