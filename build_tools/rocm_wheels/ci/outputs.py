"""What a step of a workflow tells the steps and jobs after it (GitHub's workflow commands)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.errors import UsageError, named

VARIABLE = "GITHUB_OUTPUT"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def set_outputs(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append outputs to the file that GitHub names. Raises UsageError outside of a workflow.

    A value of several lines ends at a word that is nowhere in it, so that no value can set another output.
    """
    if not env.get(VARIABLE):
        tip = f"without --output it is printed; in a shell: {VARIABLE}=FILE names the file to write to"
        raise UsageError(f"{VARIABLE} is not set: this is no step of a workflow", tip=tip)
    said = []
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of an output", tip="letters, digits, - and _")
        end = f"end-{secrets.token_hex(8)}"
        said.append(f"{name}<<{end}\n{value}\n{end}\n" if "\n" in value else f"{name}={value}\n")
    place = Path(env[VARIABLE])
    if place.is_dir() or not place.parent.is_dir():
        raise UsageError(
            f"{VARIABLE} names {place}, which cannot be a file: a folder is there, or none above it"
        )
    try:
        with place.open("a", encoding="utf-8") as file:
            file.write("".join(said))
    except OSError as failure:
        named(failure, place)
        raise
