"""Variables that hold numbers: what each may be, in one table, and one function that reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import overload

from rocm_wheels.core import errors

# what a variable holds, the least and the most
_NUMBERS = {
    "MAX_JOBS": ("a number of jobs at a time", 1, 9999),
    "SCCACHE_SERVER_PORT": ("a port", 1, 65535),
    "ROCM_WHEELS_JOBS": ("a number of repositories or steps at a time", 1, 999),
    "ROCM_WHEELS_RETRIES": ("how often a failed request is sent again", 0, 100),
    "ROCM_WHEELS_TIMEOUT": ("seconds that a server may be silent", 1, 86400),
    "SOURCE_DATE_EPOCH": ("a number of seconds from 1970 to 2107", 0, 4_354_819_199),  # as far as zip goes
}


@overload
def read_number(env: Mapping[str, str], name: str) -> int | None: ...
@overload
def read_number(env: Mapping[str, str], name: str, default: int) -> int: ...
def read_number(env: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """Return the number that a variable of the table holds; the default for one that is not set, or empty.

    Raises UsageError, with the variable's name, for anything else.
    """
    text = env.get(name, "")
    if not text:
        return default
    description, least, most = _NUMBERS[name]
    if not re.fullmatch("[0-9]{1,15}", text) or not least <= int(text) <= most:
        raise errors.UsageError(
            f"{name}={text!r} is not {description}",
            tip=f"unset it, or set it to a number from {least} to {most}",
        )
    return int(text)


_process: dict[str, str] = {}


def keep_for_process(env: Mapping[str, str]) -> None:
    """Have ``read_process_number`` answer from this environment: what the command line read when it began.

    Only numbers of ours are kept; what they hold is looked at when they are used.
    """
    _process.clear()
    _process.update({name: env[name] for name in _NUMBERS if name in env and name.startswith("ROCM_WHEELS_")})


def read_process_number(name: str, default: int) -> int:
    """Return a number of the environment that a command began with; the default for who has no command.

    For what reaches servers from deep below, and is handed no environment. Raises as ``read_number`` does.
    """
    return read_number(_process, name, default)


def check_numbers(env: MutableMapping[str, str]) -> None:
    """Read all variables of the table, and take empty ones out: programs that we start fail at them.

    Raises UsageError for the first that holds something else than it may.
    """
    for name in _NUMBERS:
        if read_number(env, name) is None:
            env.pop(name, None)
