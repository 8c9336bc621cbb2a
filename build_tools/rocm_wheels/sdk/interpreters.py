"""Find the Pythons that wheels are asked for, by path or by version.

A version is looked for in manylinux's ``/opt/python``, among pyenv's, among uv's, on PATH, and, on
Windows, by the launcher. What is found is asked what it is: ``python3.12`` that says 3.11 is an error, and
not a 3.12.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.sdk.interpreter import Interpreter, query_interpreter
from rocm_wheels.sdk.interpreter_places import OPT_PYTHON, RequestedPython, list_locations, find_program

_VERSION = re.compile(r"(?:python)?(3\.\d+)(?:\.(\d+))?(t?)")
_TAG = re.compile(r"cp3(\d+)(t?)(?:-cp3(\d+)(t?))?")
_FORMS = "a path, a version (3.12, 3.12.4, 3.13t) or a tag (cp312, cp313-cp313t)"


def find_interpreters(
    words: Sequence[str], env: Mapping[str, str], *, opt_python: Path = OPT_PYTHON
) -> tuple[Interpreter, ...]:
    """Return the interpreters that ``words`` name, in their order, each asked what it is.

    A word is a program, the folder of an environment or installation, a version or a tag. Raises
    UsageError for a word that is none of these, for a Python that is nowhere (with the places
    looked at), that is another one than its name says or that torch cannot be built for, and for two
    words whose wheels would have the same tag.
    """
    by_tag: dict[str, tuple[str, Interpreter]] = {}
    for word in words:
        interpreter = _find_interpreter(word.strip(), env, opt_python)
        if interpreter.tag in by_tag:
            other, before = by_tag[interpreter.tag]
            same = interpreter.path == before.path
            relation = (
                f"the same Python: {interpreter}"
                if same
                else f"both {interpreter.tag}: {before}, {interpreter}"
            )
            raise UsageError(
                f"--python: {other} and {word} are {relation}",
                tip="wheels of one tag are built once; leave one of them out",
            )
        by_tag[interpreter.tag] = (word, interpreter)
    return tuple(interpreter for _, interpreter in by_tag.values())


def parse_requested_python(word: str) -> RequestedPython | None:
    """Read a version or a tag; ``None`` for a word that is neither.

    Raises UsageError for the tag of an ABI that does not belong to its Python.
    """
    if match := _VERSION.fullmatch(word):
        return RequestedPython(match[1], match[2], bool(match[3]))
    if match := _TAG.fullmatch(word):
        minor, first, abi, last = match.groups()
        if abi not in (None, minor) or (abi is not None and first):
            raise UsageError(f"--python: there is no tag {word}", tip="such as cp312-cp312, cp313-cp313t")
        return RequestedPython(f"3.{minor}", None, bool(first or last))
    return None


def _find_interpreter(word: str, env: Mapping[str, str], opt_python: Path) -> Interpreter:
    if requested := parse_requested_python(word):
        return _find_by_version(requested, word, env, opt_python)
    path = Path(word)
    is_path = any(mark and mark in word for mark in (os.sep, os.altsep, "/"))
    if not word or not (is_path or path.exists()):
        raise UsageError(f"--python: {word!r} is not a Python", tip=f"give {_FORMS}")
    path = path.absolute()
    if not path.exists():
        raise UsageError(f"--python: there is no {path}")
    program = find_program(path) if path.is_dir() else path
    if program is None:
        raise UsageError(
            f"--python: there is no Python in the folder {path}",
            tip="looked for bin/python, bin/python3, Scripts/python.exe and python.exe",
        )
    return query_interpreter(program, env)


def _find_by_version(
    requested: RequestedPython, word: str, env: Mapping[str, str], opt_python: Path
) -> Interpreter:
    report: list[str] = []
    for location in list_locations(requested, env, opt_python):
        report.append(location.name)
        for program in location.programs:
            try:
                interpreter = query_interpreter(program, env)
            except UsageError as fault:
                report.append(f"  {str(fault).splitlines()[0].rstrip(':')}")
                continue
            if _is_requested(interpreter, requested):
                return interpreter
            if location.named and not _name_fits(interpreter, requested):
                raise UsageError(
                    f"--python {word}: {program} says that it is Python {interpreter.full_version}",
                    tip="it is not taken for what its name says; mend it, or give the path of another",
                )
            report.append(f"  {program} is Python {interpreter.full_version}")
    text = "\n".join(f"  {line}" for line in report)
    raise UsageError(
        f"--python {word}: there is no Python {requested}; looked at\n{text}",
        tip=f"install it (pyenv, `uv python install {requested}`), or give the path of its program",
    )


def _is_requested(interpreter: Interpreter, requested: RequestedPython) -> bool:
    return interpreter.tag == requested.tag and requested.patch in (
        None,
        re.split(r"[abr]", interpreter.version.split(".")[2])[0],
    )


def _name_fits(interpreter: Interpreter, requested: RequestedPython) -> bool:
    """Tell whether a name with this version is true: what is called 3.13 may be free-threaded."""
    return interpreter.tag == requested.tag or (
        interpreter.tag == f"{requested.tag}t" and not requested.free_threaded
    )
