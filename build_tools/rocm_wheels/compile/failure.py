"""Read from a build's log what went wrong: the first error that a compiler, linker or CMake reports.

A build of torch prints hundreds of thousands of lines and goes on for a while after the first error.
Understood: clang and hipcc, GCC, MSVC and clang-cl, ld, lld and link.exe, CMake, ninja, make, setuptools;
running out of memory or disk. Of the patterns the first that matches a line decides; their groups are
``file``, ``line``, ``code`` and ``message``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rocm_wheels.core import errors, shell

FailureKind = Literal["memory", "disk", "compile", "link", "configure", "build"]


_MEMORY = (
    r"Killed signal terminated program"  # gcc's driver
    r"|unable to execute command: Killed"  # clang's driver
    r"|due to signal.*Killed|[Oo]ut of memory|virtual memory exhausted|std::bad_alloc"
    r"|compiler is out of heap space"  # cl.exe
)
_COMPILERS = r"(?:(?:amd)?clang(?:\+\+|-cl|-\d+)?|hipcc|cc1plus|[cg]\+\+|gcc|cc|cl|nvcc)(?:\.exe)?"
_LINKERS = r"(?:ld(?:\.lld|\.bfd|\.gold|64\.lld)?|lld|lld-link|mold)(?:\.exe)?"
ERROR_PATTERNS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    ("disk", re.compile(r"(?P<message>.*No space left on device.*)$")),
    ("memory", re.compile(rf"(?P<message>.*(?:{_MEMORY}).*)$")),
    ("link", re.compile(rf"(?:.*[/\\])?{_LINKERS}:\s(?:fatal )?error: (?P<message>.+)$")),
    (
        "link",
        re.compile(
            r"(?:.*[/\\])?ld(?:\.\w+)?:\s"
            r"(?P<message>(?:cannot find|undefined|multiple definition|relocation).*)$"
        ),
    ),
    (
        "link",
        re.compile(
            r"(?:(?:.*[/\\])?ld(?:\.\w+)?:\s)?(?P<file>[^\s:][^:]*):\S*\s"
            r"(?P<message>(?:undefined reference to|multiple definition of) .+)$"
        ),
    ),
    ("link", re.compile(r"(?P<file>\S+)\s:\s(?:fatal )?error (?P<code>LNK\d+):\s(?P<message>.+)$")),
    (
        "compile",  # file:1:2: error: …, file(1,2): error: …, file(1): error C2065: …
        re.compile(
            r"(?P<file>(?:[A-Za-z]:)?[^\s:(][^:(]*)[:(](?P<line>\d+)(?:[:,]\d+)?\)?\s?:\s"
            r"(?:fatal )?error(?: (?P<code>[A-Z]+\d+))?:\s(?P<message>.+)$"
        ),
    ),
    (
        "configure",
        re.compile(r"CMake Error(?: at (?P<file>[^:]+):(?P<line>\d+) \(.+\))?:?\s*(?P<message>.*)$"),
    ),
    # a driver's own: clang++: error: invalid target ID
    ("compile", re.compile(rf"(?:.*[/\\])?{_COMPILERS}:\s(?:fatal )?error:\s(?P<message>.+)$")),
    # clang's parts, which name neither themselves nor a file
    (
        "compile",
        re.compile(r"(?:fatal )?error:\s(?P<message>(?:cannot|invalid|unsupported|unknown) .+)$"),
    ),
)

# Lines of programs that report what another one did: they count when nothing above is found.
ECHO_PATTERNS: tuple[re.Pattern[str], ...] = (
    re.compile(r"(?!ninja|error)[\w.+/-]+: (?:fatal )?error:\s(?P<message>.+)$"),  # some other tool
    re.compile(r"ninja: (?:error|fatal):\s(?P<message>.+)$"),
    re.compile(r"(?P<message>(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)(?:: .+)?)$"),
    re.compile(r"error:\s(?P<message>.+)$"),
    re.compile(r"ERROR:?\s(?P<message>.+)$"),
    re.compile(r"make(?:\[\d+\])?: \*\*\*\s(?P<message>.+)$"),
)


_LOOK_AHEAD = 400  # lines between an error and clang's "when compiling for gfx…"
_COLOUR_CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# what clang says after the errors of one pass; what lld says of the object of one pass
_FOR_TARGET = re.compile(
    r"generated when compiling for (?P<pass>gfx[0-9a-f]+(?::[a-z]+[+-])*|host)"
    r"|referenced by \S+-(?P<object>gfx[0-9a-f]+(?:-[a-z]+[+-])*)-[0-9a-f]{6}\.o"
)
_TARGET_IN_MESSAGE = re.compile(r"\b(?P<target>gfx[0-9]+[0-9a-f]{2}(?::[a-z]+[+-])*)(?![0-9a-z-])")
_ARCH_OPTION = re.compile(
    r"(?:--offload-arch=|--amdgpu-target=|-mcpu=|-target-cpu )(?P<targets>gfx[^\s\"']+)"
)
_NEW_COMMAND = re.compile(r"^(?:FAILED: |\[\d+/\d+\] |building ')")
# ninja says first what it was making; since 1.12 with the exit code of the command
_FAILED_OUTPUT = re.compile(r"^FAILED: (?:\[code=\d+\] )?(?P<output>\S+)")


@dataclass(frozen=True)
class BuildFailure:
    """The first error of a build. ``target``: the GPU target that it was compiled for, or ``host``.

    ``file`` is the source that the error names, else what ninja was making.
    """

    kind: FailureKind
    message: str
    file: str | None = None
    line: int | None = None
    target: str | None = None

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.line is not None else self.file
        text = ": ".join(part for part in (location, self.message) if part)
        return f"{text} (compiled for {self.target})" if self.target else text


_FAILURE_TIPS: dict[str, str] = {
    "memory": "the machine ran out of memory: build with fewer jobs at a time (MAX_JOBS=4)",
    "disk": "the disk is full: free space, then run again; what is compiled is kept",
}
# clang names each HIP object by its output; caches leave the output out of their key (ROCm/TheRock#748)
_TWIN_TIP = "two objects of one source came out of the compiler cache as one: build without the cache"


class BuildFailed(errors.BuildError):
    """A front end failed. ``failure`` is what its log says; ``log`` and ``command`` help to go on."""

    def __init__(self, message: str, *, failure: BuildFailure | None, log: Path, command: str) -> None:
        tip = None
        if failure is not None:
            tip = _TWIN_TIP if "__hip_cuid_" in failure.message else _FAILURE_TIPS.get(failure.kind)
        super().__init__(message, tip=tip)
        self.failure = failure
        self.log = log
        self.command = command

    def name_source(self, place: str) -> None:
        """Say where the first error is in the source of a translated file, such as ``cuda/Copy.cu:12``."""
        self.message = self.message.replace("\n  log: ", f"\n  in the source: {place}\n  log: ", 1)
        self.args = (self.message,)


def find_first_failure(lines: Iterable[str]) -> BuildFailure | None:
    """Return the first error in a log, or ``None`` when nothing looks like one.

    Errors of programs that only report somebody else's (ninja, make, setuptools, a Python traceback)
    count when there is no other.
    """
    text = [_COLOUR_CODE.sub("", line.rstrip("\r\n")) for line in lines]
    arches: tuple[str, ...] = ()
    output: str | None = None
    for number, line in enumerate(text):
        if match := _FAILED_OUTPUT.match(line):
            output = match["output"]
        failure = _match_error(line)
        if failure is None:
            named = ",".join(match["targets"] for match in _ARCH_OPTION.finditer(line))
            if named or _NEW_COMMAND.match(line):
                arches = tuple(dict.fromkeys(re.split("[,;]", named))) if named else ()
            continue
        if failure.kind == "configure" and not failure.message:
            failure = replace(failure, message=join_paragraph(text[number + 1 :]))
        if failure.kind in ("compile", "link"):
            failure = replace(
                failure, target=_find_target(failure, text[number + 1 : number + _LOOK_AHEAD], arches)
            )
        return failure if failure.file or failure.kind == "configure" else replace(failure, file=output)
    for pattern in ECHO_PATTERNS:
        for line in text:
            if match := pattern.match(line):
                failure = BuildFailure("build", match["message"].strip())
                return replace(failure, target=_find_target(failure, (), ()))
    return None


def list_error_places(lines: Iterable[str]) -> list[tuple[str, int]]:
    """List file and line of all errors of compilers in a log, each once, in their order."""
    failures = [_match_error(_COLOUR_CODE.sub("", line.rstrip("\r\n"))) for line in lines]
    places = [
        (failure.file, failure.line)
        for failure in failures
        if failure is not None and failure.kind == "compile" and failure.file and failure.line is not None
    ]
    return list(dict.fromkeys(places))


def explain_failure(summary: str, failure: BuildFailure | None, *, log: Path, command: str) -> str:
    """Write what the screen ends with: what failed, the first error, the log, what repeats it.

    That is a script beside the log with ``command``, a line of some kilobytes; the line itself where the
    script cannot be written.
    """
    first = str(failure) if failure else "none was recognised; read the log"
    script = log.with_suffix(".repeat.sh")
    try:
        script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        script.chmod(0o755)
        repeat = shlex.quote(str(script))
    except OSError:  # a full disk is a frequent reason of failures
        repeat = command
    return f"{summary}\n  first error: {first}\n  log: {log}\n  repeat: {repeat}"


def format_repeat_command(
    argv: Sequence[str | Path], *, cwd: Path, base: Mapping[str, str], env: Mapping[str, str]
) -> str:
    """Write a command for a shell that has the environment ``base``: only changed variables, and ``cd``."""
    return shell.format_command(argv, cwd=cwd, changes=shell.compare_environments(base, env))


def _match_error(line: str) -> BuildFailure | None:
    for kind, pattern in ERROR_PATTERNS:
        if match := pattern.match(line):
            groups = match.groupdict()
            code = f"{groups['code']}: " if groups.get("code") else ""
            number = groups.get("line")
            return BuildFailure(
                kind, code + groups["message"].strip(), groups.get("file"), int(number) if number else None
            )
    return None


def _find_target(failure: BuildFailure, following: Sequence[str], arches: tuple[str, ...]) -> str | None:
    """Find the target: clang names it after the errors, or the message does, or there is only one."""
    for line in following:
        if match := _FOR_TARGET.search(line):
            return match["pass"] or match["object"]
        if _NEW_COMMAND.match(line):
            break
    if match := _TARGET_IN_MESSAGE.search(failure.message):
        return match["target"]
    return arches[0] if len(arches) == 1 else None


def join_paragraph(lines: Sequence[str]) -> str:
    """Join the indented lines that CMake prints under an error."""
    words: list[str] = []
    for line in lines:
        if (line and not line.startswith("  ")) or (not line and words):
            break
        words.append(line.strip())
    return " ".join(word for word in words if word)
