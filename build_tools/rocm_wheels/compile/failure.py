"""What went wrong, read from a build's log: the first error that a compiler, linker or CMake reports.

A build of torch prints hundreds of thousands of lines and goes on for a while after the
first error. Understood: clang and hipcc, GCC, MSVC and clang-cl, ld, lld and link.exe, CMake,
ninja, make, setuptools; running out of memory or disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.compile.error_lines import ECHOES, ERRORS, Kind
from rocm_wheels.errors import BuildError
from rocm_wheels.shell import environment_changes, shell_line

_LOOK_AHEAD = 400  # lines between an error and clang's "when compiling for gfx…"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# what clang says after the errors of one pass; what lld says of the object of one pass
_FOR_TARGET = re.compile(
    r"generated when compiling for (?P<pass>gfx[0-9a-f]+(?::[a-z]+[+-])*|host)"
    r"|referenced by \S+-(?P<object>gfx[0-9a-f]+(?:-[a-z]+[+-])*)-[0-9a-f]{6}\.o"
)
_IN_MESSAGE = re.compile(r"\b(?P<target>gfx[0-9]+[0-9a-f]{2}(?::[a-z]+[+-])*)(?![0-9a-z-])")
_ARCHES = re.compile(r"(?:--offload-arch=|--amdgpu-target=|-mcpu=|-target-cpu )(?P<targets>gfx[^\s\"']+)")
_NEW_COMMAND = re.compile(r"^(?:FAILED: |\[\d+/\d+\] |building ')")


@dataclass(frozen=True)
class BuildFailure:
    """The first error of a build. ``target``: the GPU target that it was compiled for, or ``host``."""

    kind: Kind
    message: str
    file: str | None = None
    line: int | None = None
    target: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        text = ": ".join(part for part in (place, self.message) if part)
        return f"{text} (compiled for {self.target})" if self.target else text


class BuildFailed(BuildError):
    """A front end failed. ``failure`` is what its log says; ``log`` and ``command`` help to go on."""

    def __init__(self, message: str, *, failure: BuildFailure | None, log: Path, command: str) -> None:
        super().__init__(message, tip=_tip(failure) if failure else None)
        self.failure = failure
        self.log = log
        self.command = command


_TIPS: dict[str, str] = {
    "memory": "the machine ran out of memory: build with fewer jobs at a time (MAX_JOBS=4)",
    "disk": "the disk is full: free space, then run again; what is compiled is kept",
}
# clang names each HIP object by its output; caches leave the output out of their key (ROCm/TheRock#748)
_TWIN = "two objects of one source came out of the compiler cache as one: build without the cache"


def _tip(failure: BuildFailure) -> str | None:
    return _TWIN if "__hip_cuid_" in failure.message else _TIPS.get(failure.kind)


def first_failure(lines: Iterable[str]) -> BuildFailure | None:
    """Return the first error in a log, or ``None`` when nothing looks like one.

    Errors of programs that only report somebody else's (ninja, make, setuptools, a Python traceback)
    count when there is no other.
    """
    text = [_COLOUR.sub("", line.rstrip("\r\n")) for line in lines]
    arches: tuple[str, ...] = ()
    for number, line in enumerate(text):
        found = _strong(line)
        if found is None:
            arches = _arches(line) or (() if _NEW_COMMAND.match(line) else arches)
            continue
        if found.kind == "configure" and not found.message:
            found = replace(found, message=paragraph(text[number + 1 :]))
        if found.kind in ("compile", "link"):
            found = replace(found, target=_target(found, text[number + 1 : number + _LOOK_AHEAD], arches))
        return found
    return _weak(text)


def explain_failure(what: str, failure: BuildFailure | None, *, log: Path, command: str) -> str:
    """Write what the screen ends with: what failed, the first error, the log, a command that repeats it."""
    first = str(failure) if failure else "none was recognised; read the log"
    return f"{what}\n  first error: {first}\n  log: {log}\n  repeat: {command}"


def repeat_command(
    argv: Sequence[str | Path], *, cwd: Path, base: Mapping[str, str], env: Mapping[str, str]
) -> str:
    """Write a command for a shell that has the environment ``base``: only changed variables, and ``cd``."""
    return shell_line(argv, cwd=cwd, changes=environment_changes(base, env))


def _strong(line: str) -> BuildFailure | None:
    for kind, pattern in ERRORS:
        if match := pattern.match(line):
            groups = match.groupdict()
            code = f"{groups['code']}: " if groups.get("code") else ""
            number = groups.get("line")
            return BuildFailure(
                kind, code + groups["message"].strip(), groups.get("file"), int(number) if number else None
            )
    return None


def _weak(text: Sequence[str]) -> BuildFailure | None:
    for pattern in ECHOES:
        for line in text:
            if match := pattern.match(line):
                found = BuildFailure("build", match["message"].strip())
                return replace(found, target=_target(found, (), ()))
    return None


def _arches(line: str) -> tuple[str, ...]:
    lists = (re.split("[,;]", match["targets"]) for match in _ARCHES.finditer(line))
    return tuple(dict.fromkeys(target for targets in lists for target in targets))


def _target(found: BuildFailure, following: Sequence[str], arches: tuple[str, ...]) -> str | None:
    """Find the target: clang names it after the errors, or the message does, or there is only one."""
    for line in following:
        if match := _FOR_TARGET.search(line):
            return match["pass"] or match["object"]
        if _NEW_COMMAND.match(line):
            break
    if match := _IN_MESSAGE.search(found.message):
        return match["target"]
    return arches[0] if len(arches) == 1 else None


def paragraph(lines: Sequence[str]) -> str:
    """Join the indented lines that CMake prints under an error."""
    words: list[str] = []
    for line in lines:
        if line and not line.startswith("  "):
            break
        if not line and words:
            break
        words.append(line.strip())
    return " ".join(word for word in words if word)
