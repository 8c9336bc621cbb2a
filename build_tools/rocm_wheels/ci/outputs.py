"""Outputs of a workflow's step for the steps and jobs after it (GitHub's workflow commands)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.core import UsageError, name_failed_file

OUTPUT_VARIABLE = "GITHUB_OUTPUT"
_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def set_outputs(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Append outputs to the file that GitHub names. Raises UsageError outside of a workflow.

    A value of several lines ends at a word that is nowhere in it, so that no value can set another output.
    """
    if not env.get(OUTPUT_VARIABLE):
        tip = f"without --output it is printed; in a shell: {OUTPUT_VARIABLE}=FILE names the file to write to"
        raise UsageError(f"{OUTPUT_VARIABLE} is not set: this is no step of a workflow", tip=tip)
    lines = []
    for name, value in values.items():
        if not _OUTPUT_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of an output", tip="letters, digits, - and _")
        end = f"end-{secrets.token_hex(8)}"
        lines.append(f"{name}<<{end}\n{value}\n{end}\n" if "\n" in value else f"{name}={value}\n")
    path = Path(env[OUTPUT_VARIABLE])
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(
            f"{OUTPUT_VARIABLE} names {path}, which cannot be a file: a folder is there, or none above it"
        )
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
    except OSError as failure:
        name_failed_file(failure, path)
        raise
