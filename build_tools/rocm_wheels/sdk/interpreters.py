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
from rocm_wheels.sdk.interpreter import Interpreter, ask_interpreter
from rocm_wheels.sdk.interpreter_places import OPT_PYTHON, Wanted, places, program_in

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
    found: dict[str, tuple[str, Interpreter]] = {}
    for word in words:
        one = _find(word.strip(), env, opt_python)
        if one.tag in found:
            other, before = found[one.tag]
            same = one.path == before.path
            what = f"the same Python: {one}" if same else f"both {one.tag}: {before}, {one}"
            raise UsageError(
                f"--python: {other} and {word} are {what}",
                tip="wheels of one tag are built once; leave one of them out",
            )
        found[one.tag] = (word, one)
    return tuple(one for _, one in found.values())


def wanted_version(word: str) -> Wanted | None:
    """Read a version or a tag; ``None`` for a word that is neither.

    Raises UsageError for the tag of an ABI that does not belong to its Python.
    """
    if said := _VERSION.fullmatch(word):
        return Wanted(said[1], said[2], bool(said[3]))
    if said := _TAG.fullmatch(word):
        minor, first, abi, last = said.groups()
        if abi not in (None, minor) or (abi is not None and first):
            raise UsageError(f"--python: there is no tag {word}", tip="such as cp312-cp312, cp313-cp313t")
        return Wanted(f"3.{minor}", None, bool(first or last))
    return None


def _find(word: str, env: Mapping[str, str], opt_python: Path) -> Interpreter:
    if wanted := wanted_version(word):
        return _by_version(wanted, word, env, opt_python)
    path = Path(word)
    is_path = any(mark and mark in word for mark in (os.sep, os.altsep, "/"))
    if not word or not (is_path or path.exists()):
        raise UsageError(f"--python: {word!r} is not a Python", tip=f"give {_FORMS}")
    path = path.absolute()
    if not path.exists():
        raise UsageError(f"--python: there is no {path}")
    program = program_in(path) if path.is_dir() else path
    if program is None:
        raise UsageError(
            f"--python: there is no Python in the folder {path}",
            tip="looked for bin/python, bin/python3, Scripts/python.exe and python.exe",
        )
    return ask_interpreter(program, env)


def _by_version(wanted: Wanted, word: str, env: Mapping[str, str], opt_python: Path) -> Interpreter:
    looked: list[str] = []
    for place in places(wanted, env, opt_python):
        looked.append(place.name)
        for program in place.programs:
            try:
                one = ask_interpreter(program, env)
            except UsageError as fault:
                looked.append(f"  {str(fault).splitlines()[0].rstrip(':')}")
                continue
            if _is(one, wanted):
                return one
            if place.named and not _name_fits(one, wanted):
                raise UsageError(
                    f"--python {word}: {program} says that it is Python {one.said}",
                    tip="it is not taken for what its name says; mend it, or give the path of another",
                )
            looked.append(f"  {program} is Python {one.said}")
    text = "\n".join(f"  {line}" for line in looked)
    raise UsageError(
        f"--python {word}: there is no Python {wanted}; looked at\n{text}",
        tip=f"install it (pyenv, `uv python install {wanted}`), or give the path of its program",
    )


def _is(one: Interpreter, wanted: Wanted) -> bool:
    return one.tag == wanted.tag and wanted.patch in (None, re.split(r"[abr]", one.version.split(".")[2])[0])


def _name_fits(one: Interpreter, wanted: Wanted) -> bool:
    """Tell whether a name with this version is true: what is called 3.13 may be free-threaded."""
    return one.tag == wanted.tag or (one.tag == f"{wanted.tag}t" and not wanted.free_threaded)
