"""Filling in what preflight checks look at: a few looks at the disk, a few programs tried."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.compile.sdk_tree import SdkTree, sdk_warnings
from rocm_wheels.errors import RocmWheelsError, UsageError
from rocm_wheels.model.project import Platform, Project
from rocm_wheels.parallel import each
from rocm_wheels.pipeline.collect import refuse_foreign
from rocm_wheels.pipeline.preflight.subject import Folder, Headers, Program, Role, Subject
from rocm_wheels.process import capture
from rocm_wheels.sdk.interpreter import ask_interpreter
from rocm_wheels.workspace import Workspace

_SECONDS = 30.0
_VERSION = re.compile(r"(\d+(?:\.\d+)+)")
# name, variable, language, what build files try, a header that is there when the library is
_COMPILERS = (
    ("C compiler", "CC", "c", ("cc", "gcc", "clang"), "stdio.h"),
    ("C++ compiler", "CXX", "c++", ("c++", "g++", "clang++"), "cstddef"),
)
_LANGUAGE = ("LC_ALL", "LC_CTYPE", "LANG")


def look(
    known: Subject,
    *,
    env: Mapping[str, str],
    work: Path,
    output: Path,
    sources: Mapping[str, Path],
    wheels: Iterable[tuple[Project, str, Path]] = (),
    sdk: SdkTree | None = None,
    epochs: Iterable[int | None] = (),
    statvfs: Callable[[Path], os.statvfs_result] | None = None,
) -> Subject:
    """Look at what else the checks want to know of a run; what its plan says is ``known``.

    ``wheels`` that will be made: project, tag, folder. ``env`` is that of the builds: a build environment's
    programs come first on its PATH, once it is there. ``epochs`` are the dates of the sources' commits. An
    existing work directory is written to for a moment; nothing else is.
    """
    trees = {name: sources[name] for name in known.projects}
    newest = _newest(trees.values(), epochs)
    return replace(
        known,
        folders=_folders(work, output, trees, _temporary(env, known.platform), statvfs),
        programs=_programs(env, known.platform),
        sdk_lacks=sdk_warnings(sdk) if sdk is not None else (),
        foreign=_foreign(Workspace(work), wheels),
        now=time.time(),
        newest=newest,
        long_paths=_long_paths(),
        open_files=_open_files(),
        variables={name: env[name] for name in _LANGUAGE if name in env},
    )


def headers_of(python: Path, env: Mapping[str, str], tag: str = "") -> Headers:
    """Find an interpreter's Python.h: where one with this tag has it, else where it says.

    An interpreter that will not do is told of here, and refused where it matters.
    """
    if said := re.fullmatch(r"cp3(\d+)(t?)", tag):
        usual = Path(os.path.realpath(python)).parent.parent / "include" / f"python3.{said[1]}{said[2]}"
        if (usual / "Python.h").is_file():
            return Headers(f"{python} ({tag})", python, usual)
    try:
        one = ask_interpreter(python, env)
    except UsageError as failure:
        return Headers(str(python), python, None, failure.message)
    return Headers(str(one), one.path, one.headers)


def _foreign(workspace: Workspace, wheels: Iterable[tuple[Project, str, Path]]) -> tuple[str, ...]:
    """Return a sentence for each wheel to come beside which somebody else's lies."""
    found = []
    for project, tag, folder in wheels:
        try:
            refuse_foreign(workspace, folder, project.distribution, tag)
        except UsageError as failure:
            found.append(failure.message)
    return tuple(found)


def _folders(
    work: Path,
    output: Path,
    trees: Mapping[str, Path],
    temporary: Path,
    statvfs: Callable[[Path], os.statvfs_result] | None,
) -> tuple[Folder, ...]:
    asked: list[tuple[Role, str, Path]] = [
        ("work", "work directory", work),
        ("output", "output folder", output),
        *(("source", f"source tree of {name}", tree) for name, tree in trees.items()),
        ("temporary", "folder of temporary files", temporary),
    ]
    return tuple(_folder(role, what, path, statvfs) for role, what, path in asked)


def _folder(role: Role, what: str, path: Path, statvfs: Callable[[Path], os.statvfs_result] | None) -> Folder:
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    free_files, flags = None, 0
    if sys.platform == "win32":
        free = shutil.disk_usage(nearest).free
    else:
        state = (statvfs or os.statvfs)(nearest)
        free, flags = state.f_bavail * state.f_frsize, state.f_flag
        free_files = state.f_favail if state.f_files else None  # btrfs has no table of them
    writable = os.access(nearest, os.W_OK | os.X_OK)
    exists = path.is_dir()
    links = _has_hard_links(path) if role == "work" and exists and writable and free else None
    case = not (path / ".GIT").exists() if role == "source" and (path / ".git").exists() else None
    return Folder(
        role=role,
        what=what,
        path=path,
        device=nearest.stat().st_dev,
        free=free,
        free_files=free_files,
        exists=exists,
        writable=writable,
        runs_programs=not flags & getattr(os, "ST_NOEXEC", 0),
        hard_links=links,
        tells_case=case,
    )


def _has_hard_links(folder: Path) -> bool | None:
    """Try a hard link; ``None`` when not even a file can be made (a quota, a full disk)."""
    try:
        with tempfile.TemporaryDirectory(prefix=".preflight-", dir=folder) as name:
            first = Path(name, "first")
            first.touch()
            try:
                os.link(first, Path(name, "second"))
            except OSError:
                return False
            return True
    except OSError:
        return None


def _temporary(env: Mapping[str, str], platform: Platform) -> Path:
    """Return where programs put temporary files."""
    names = ("TMP", "TEMP") if platform == "windows" else ("TMPDIR",)
    default = tempfile.gettempdir() if platform == "windows" else "/tmp"
    return Path(next((env[name] for name in names if env.get(name)), default))


def _programs(env: Mapping[str, str], platform: Platform) -> tuple[Program, ...]:
    """Ask git and ninja for their versions, and let compilers compile nothing.

    CMake is the build environment's own, in the version of the release line, and takes 0.1 s to say so.
    """
    questions = [("git", "git", ["version"]), ("ninja", "ninja", ["--version"])]
    if platform == "linux":
        for name, variable, kind, words, header in _COMPILERS:
            found = [word for word in words if shutil.which(word, path=env.get("PATH", ""))]
            first, *more = env.get(variable, "").split() or [(found or words)[0]]  # CC="ccache gcc"
            questions.append(
                (name, first, [*more, "-x", kind, "-include", header, "-fsyntax-only", os.devnull])
            )
    answers = each(lambda question: _program(*question, env=env), questions, jobs=len(questions))
    # ninja comes with build environments, which may be yet to be made
    return tuple(one for one in answers if one.path is not None or one.name != "ninja")


def _program(name: str, word: str, question: Sequence[str], *, env: Mapping[str, str]) -> Program:
    place = shutil.which(word, path=env.get("PATH", ""))
    if place is None:
        return Program(name, None)
    try:
        said = capture([place, *question], env=env, timeout=_SECONDS, check=UsageError, what=name)
    except RocmWheelsError as failure:
        return Program(name, Path(place), fault=str(failure).replace("\n", " "))
    version = _VERSION.search(said.partition("\n")[0])
    numbers = tuple(int(number) for number in version[1].split(".")) if version else ()
    return Program(name, Path(place), numbers)


def _newest(trees: Iterable[Path], epochs: Iterable[int | None]) -> float | None:
    """Return the newest time of some trees and of their commits; ``None`` where nothing has one."""
    times = [*(float(epoch) for epoch in epochs if epoch), *map(_newest_in, trees)]
    return max(times, default=0.0) or None


def _newest_in(tree: Path) -> float:
    """Return the newest time of git's own files and of what lies at the top of a tree; 0 without one."""
    newest = 0.0
    with contextlib.suppress(OSError):
        for path in (tree / ".git" / "HEAD", tree / ".git" / "index"):
            if path.exists():
                newest = max(newest, path.stat().st_mtime)
        with os.scandir(tree) as entries:
            newest = max([newest, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])
    return newest


def _open_files() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _long_paths() -> bool | None:
    """Return what the registry of Windows says (written, never run)."""
    if sys.platform != "win32":
        return None
    import winreg

    place = r"SYSTEM\CurrentControlSet\Control\FileSystem"
    with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
        return bool(winreg.QueryValueEx(key, "LongPathsEnabled")[0])
    return False
