"""Words for pytest: what people hand over, and which of them choose among tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from rocm_wheels.core import errors

_XDIST_OPTION = re.compile(
    r"-n(\d+|auto|logical)?|--(numprocesses|maxprocesses|dist|tx)(=.*)?|-d"
)  # pytest-xdist's
# what changes how results are shown, and not which tests are run; a test that -x kept from running is missing
# (without the plugin unittest none of its tests would be found)
_HARMLESS_ARGUMENT = re.compile(
    r"--|-p|no:(?:cacheprovider|faulthandler|logging|randomly|random_order|sugar|terminal|timeout|warnings|xdist)"
    r"|-[vqsxl]+|-r[A-Za-z]+|--exitfirst|--verbose|--quiet|--showlocals|--full-trace|--no-header|--no-summary"
    r"|--(?:tb|color|durations|durations-min|capture|junitxml|junit-xml|show-capture|maxfail)=\S*"
)


def join_pytest_arguments(addopts: str, expression: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return what pytest is told: what its own variable says, ``-k``, and what stands behind ``--``.

    Raises UsageError for a variable with a quote that is not closed, and for tests side by side: which of
    them ended its process, nobody would know.
    """
    try:
        own_words = shlex.split(addopts)
    except ValueError as cause:
        tip = "pytest reads it as a shell does: unset it, or close the quote"
        raise errors.UsageError(f"PYTEST_ADDOPTS={addopts}: {cause}", tip=tip) from None
    arguments = (*own_words, *(["-k", expression] if expression else []), *words)
    if several := next((word for word in arguments if _XDIST_OPTION.fullmatch(word)), None):
        tip = "leave it out (also of PYTEST_ADDOPTS); --shard and --num-shards share the files out"
        raise errors.UsageError(f"{several}: tests run one by one on a GPU", tip=tip)
    return arguments


def find_selecting_words(words: Iterable[str]) -> list[str]:
    """Return the words that may choose among tests, of those that pytest was given.

    Those are known that choose nothing; any other may.
    """
    return [word for word in words if not _HARMLESS_ARGUMENT.fullmatch(word)]
