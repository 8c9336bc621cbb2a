"""How programs that build report errors: patterns, the first that matches a line decides.

Groups: ``file``, ``line``, ``code``, ``message``.
"""

from __future__ import annotations

import re
from typing import Literal

FailureKind = Literal["memory", "disk", "compile", "link", "configure", "build"]


def _compile_verbose(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE)


ERROR_PATTERNS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    ("disk", _compile_verbose(r"^(?P<message>.*No\ space\ left\ on\ device.*)$")),
    (
        "memory",
        _compile_verbose(
            r"""^(?P<message>.*(?:
                Killed\ signal\ terminated\ program     # gcc's driver
              | unable\ to\ execute\ command:\ Killed   # clang's driver
              | due\ to\ signal.*Killed
              | [Oo]ut\ of\ memory | virtual\ memory\ exhausted | std::bad_alloc
              | compiler\ is\ out\ of\ heap\ space      # cl.exe
            ).*)$"""
        ),
    ),
    (
        "link",
        _compile_verbose(
            r"""^(?:.*[/\\])?(?:ld(?:\.lld|\.bfd|\.gold|64\.lld)?|lld|lld-link|mold)(?:\.exe)?:\s
                (?:fatal\ )?error:\ (?P<message>.+)$"""
        ),
    ),
    (
        "link",
        _compile_verbose(
            r"""^(?:.*[/\\])?ld(?:\.\w+)?:\s
                (?P<message>(?:cannot\ find|undefined|multiple\ definition|relocation).*)$"""
        ),
    ),
    (
        "link",
        _compile_verbose(
            r"""^(?:(?:.*[/\\])?ld(?:\.\w+)?:\s)?
                (?P<file>[^\s:][^:]*):\S*\s
                (?P<message>(?:undefined\ reference\ to|multiple\ definition\ of)\ .+)$"""
        ),
    ),
    ("link", _compile_verbose(r"^(?P<file>\S+)\s:\s(?:fatal\ )?error\ (?P<code>LNK\d+):\s(?P<message>.+)$")),
    (
        "compile",  # file:1:2: error: …, file(1,2): error: …, file(1): error C2065: …
        _compile_verbose(
            r"""^(?P<file>(?:[A-Za-z]:)?[^\s:(][^:(]*) [:(](?P<line>\d+)(?:[:,]\d+)?\)?\s?:\s
                (?:fatal\ )?error(?:\ (?P<code>[A-Z]+\d+))?:\s(?P<message>.+)$"""
        ),
    ),
    (
        "configure",
        _compile_verbose(
            r"^CMake\ Error(?:\ at\ (?P<file>[^:]+):(?P<line>\d+)\ \(.+\))?:?\s*(?P<message>.*)$"
        ),
    ),
    (
        "compile",  # a driver's own: clang++: error: invalid target ID
        _compile_verbose(
            r"""^(?:.*[/\\])?(?:(?:amd)?clang(?:\+\+|-cl|-\d+)?|hipcc|cc1plus|[cg]\+\+|gcc|cc|cl|nvcc)(?:\.exe)?:\s
                (?:fatal\ )?error:\s(?P<message>.+)$"""
        ),
    ),
    (
        "compile",  # clang's parts, which name neither themselves nor a file
        _compile_verbose(r"^(?:fatal\ )?error:\s(?P<message>(?:cannot|invalid|unsupported|unknown)\ .+)$"),
    ),
)

# Lines of programs that report what another one did: they count when nothing above is found.
ECHO_PATTERNS: tuple[re.Pattern[str], ...] = (
    _compile_verbose(r"^(?!ninja|error)[\w.+/-]+:\ (?:fatal\ )?error:\s(?P<message>.+)$"),  # some other tool
    _compile_verbose(r"^ninja:\ (?:error|fatal):\s(?P<message>.+)$"),
    _compile_verbose(r"^(?P<message>(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)(?::\ .+)?)$"),
    _compile_verbose(r"^error:\s(?P<message>.+)$"),
    _compile_verbose(r"^ERROR:?\s(?P<message>.+)$"),
    _compile_verbose(r"^make(?:\[\d+\])?:\ \*\*\*\s(?P<message>.+)$"),
)
