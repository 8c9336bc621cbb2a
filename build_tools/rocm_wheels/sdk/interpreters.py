"""Pythons that wheels are built for, and uv, which finds and installs them.

A version is looked for in manylinux's ``/opt/python``, among pyenv's, among uv's, on PATH, and, on Windows,
by the launcher. Names only choose what is asked: what an interpreter is, it says itself. ``python3.12`` that
says 3.11 is an error, and not a 3.12. The interpreter of a virtual environment stands for the one below it,
which wheels are built for.

uv retries the network by itself; its last words become the message of an SdkError.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, extras, process, shell
from rocm_wheels.models import project

# They would make uv choose another environment, Python or output than the one asked for.
_REMOVED_VARIABLES = (
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "VIRTUAL_ENV",
)
_DISK_FULL = ("no space left", "quota exceeded")
_UNTRUSTED = ("certificate", "unknownissuer")
_NETWORK = ("error sending request", "dns error", "timed out", "connection", "retries", "status server error")


@dataclass(frozen=True)
class PackageSource:
    """Where packages come from. ``index_url`` replaces the user's default index; ``find_links`` adds to it.

    With one of them, or ``closed``, closed projects (``is_closed_project``) come from there alone: on the
    user's own indexes other people have such names. ``cache_dir`` is the installer's; ``pre`` allows
    pre-releases.
    """

    index_url: str | None = None
    find_links: str | None = None
    cache_dir: Path | None = None
    pre: bool = False
    closed: bool = False

    @property
    def variables(self) -> Mapping[str, str]:
        """Options with a password in them, as uv takes them from its environment: all may read arguments."""
        urls = {"UV_DEFAULT_INDEX": self.index_url, "UV_FIND_LINKS": self.find_links}
        return {
            name: value for name, value in urls.items() if value and shell.hide_credentials(value) != value
        }

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``uv pip install``."""
        candidates = [
            ("--default-index", self.index_url),
            ("--find-links", self.find_links),
            ("--cache-dir", str(self.cache_dir) if self.cache_dir else None),
            ("--prerelease", "allow" if self.pre else None),
        ]
        return tuple(word for option, value in candidates if value for word in (option, value))


def compose_uv_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Compose uv's environment: the user's own settings, without what would lead it elsewhere."""
    inherited = {name: value for name, value in env.items() if name not in _REMOVED_VARIABLES}
    return {**inherited, "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}


def make_venv(
    python: Path, prefix: Path, env: Mapping[str, str], *, on_line: Callable[[str], None] | None = None
) -> None:
    """Make a virtual environment of ``python`` at ``prefix``, without pip or anything else in it."""
    _run_uv(
        ["venv", "--quiet", "--no-project", "--python", str(python), str(prefix)],
        env,
        cwd=prefix.parent,
        activity=f"making a virtual environment of {python}",
        on_line=on_line,
    )


def pip_install(
    python: Path,
    arguments: Sequence[str],
    source: PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Install into the environment of ``python``. SdkError with the installer's last words."""
    words = ["install", "--python", str(python)]
    _run_pip(words, arguments, source, env, activity=activity, cwd=cwd, on_line=on_line)


def pip_compile(
    arguments: Sequence[str],
    source: PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Resolve requirements into a file, with digests. SdkError with the installer's last words."""
    _run_pip(["compile"], arguments, source, env, activity=activity, cwd=cwd, on_line=on_line)


def _run_pip(
    words: Sequence[str],
    arguments: Sequence[str],
    source: PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None,
) -> None:
    """Run ``uv pip``; what holds a password goes by its environment."""
    hidden = source.variables
    public_source = replace(
        source,
        index_url=None if "UV_DEFAULT_INDEX" in hidden else source.index_url,
        find_links=None if "UV_FIND_LINKS" in hidden else source.find_links,
    )
    places = [shell.hide_credentials(place) for place in (source.find_links, source.index_url) if place]
    if places:
        activity += f" from {' and '.join(places)}"
    words = ["pip", *words, *public_source.options]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        uv_env = {**env, **hidden}
        if places or source.closed:
            # the first index that has a page of a project is the last one that is asked, and these are empty
            for name in project.list_closed_projects():
                Path(folder, name).mkdir()
                Path(folder, name, "index.html").write_text("<!DOCTYPE html>\n", encoding="utf-8")
            first = [*([source.index_url] if source.index_url else []), Path(folder).as_uri()]
            uv_env["UV_INDEX"] = " ".join([*first, env.get("UV_INDEX", "")]).strip()
            words += ["--index-strategy", "first-index"]
        _run_uv([*words, *arguments], uv_env, cwd=cwd, activity=activity, on_line=on_line)


def format_install_command(arguments: Sequence[str], source: PackageSource | None = None) -> str:
    """Return what ``pip_install`` starts, as people would type it in the environment."""
    options = source.options if source is not None else ()
    return shell.format_command(["uv", "pip", "install", *options, *arguments])


def pip_uninstall(python: Path, names: Sequence[str], env: Mapping[str, str], *, cwd: Path) -> None:
    """Remove distributions from the environment of ``python``; one that is not there does not matter."""
    words = ["pip", "uninstall", "--python", str(python), *names]
    _run_uv(words, env, cwd=cwd, activity=f"removing {', '.join(names)}", on_line=None)


def clean_installer_cache(
    names: Sequence[str], cache_dir: Path | None, env: Mapping[str, str], *, cwd: Path
) -> None:
    """Take what the installer's cache has of some packages away."""
    words = ["cache", "clean", *PackageSource(cache_dir=cache_dir).options, *names]
    _run_uv(words, env, cwd=cwd, activity=f"removing {', '.join(names)} from uv's cache", on_line=None)


def _run_uv(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    activity: str,
    on_line: Callable[[str], None] | None,
) -> None:
    lines: list[str] = []

    def listen(line: str) -> None:
        lines.append(line)
        if on_line is not None:
            on_line(line)

    try:
        process.run_command(
            [extras.find_uv(), *words],
            env=compose_uv_environment(env),
            cwd=cwd,
            on_line=listen,
            check=errors.SdkError,
            description=activity,
        )
    except errors.SdkError as error:
        error.tip = _suggest_fix("\n".join(lines))
        raise


def is_transient_failure(output: str) -> bool:
    """Tell whether a failure of uv is the network's or the disk's: it says nothing of the packages."""
    low = output.lower()
    return any(word in low for word in (*_NETWORK, *_DISK_FULL, *_UNTRUSTED))


def _suggest_fix(output: str) -> str | None:
    """Tell from the installer's words what to do about a failure."""
    low = output.lower()
    if any(word in low for word in _DISK_FULL):
        return "free some space and run the same command again; the cache of uv may be on another disk"
    if any(word in low for word in _UNTRUSTED):
        return (
            "uv does not know who signed the index: set SSL_CERT_FILE, or UV_SYSTEM_CERTS=1 for the system's"
        )
    if "externally managed" in low:
        return "this Python belongs to the system; use a virtual environment, or leave --current-env out"
    if "does not satisfy python" in low:
        return "the packages are for other versions of Python: name one with --python"
    if "no solution found" in low or "not found in the package registry" in low:
        return "check --rocm, --rocm-extras, --rocm-index and --find-links; --pre for pre-releases"
    if "no virtual environment" in low or "no interpreter found" in low:
        return "check that this Python exists and runs"
    if any(word in low for word in _NETWORK):
        return (
            "the package index could not be reached; uv has tried several times already, run this again later"
        )
    return None


_SECONDS = 60.0
# Py_GIL_DISABLED and the letter t: PEP 703. On POSIX before 3.11 _base_executable is the environment's own.
_QUESTION = """
import json, os, struct, sys, sysconfig
ask = sysconfig.get_config_var
include = sysconfig.get_path("include")
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": "%d.%d.%d" % sys.version_info[:3]
    + ("" if sys.version_info[3] == "final" else {"alpha": "a", "beta": "b"}.get(sys.version_info[3], "rc")
       + str(sys.version_info[4])),
    "free_threaded": bool(ask("Py_GIL_DISABLED")),
    "debug": bool(ask("Py_DEBUG")) or hasattr(sys, "gettotalrefcount"),
    "bits": struct.calcsize("P") * 8,
    "platform": sysconfig.get_platform(),
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", None) or sys.executable,
    "headers": include if os.path.isfile(os.path.join(include, "Python.h")) else None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says of itself. ``path`` is its file, whatever links lead there.

    ``tag`` is that of its wheels (``cp312``, ``cp313t``), ``platform`` sysconfig's
    (``linux-x86_64``), ``headers`` the folder with Python.h, ``None`` where there is none.
    """

    path: Path
    version: str
    tag: str
    implementation: str
    platform: str = ""
    headers: Path | None = None

    @property
    def free_threaded(self) -> bool:
        """Tell whether it runs without the GIL."""
        return self.tag.endswith("t")

    @property
    def full_version(self) -> str:
        """The version with a ``t`` where it is free-threaded, as its users write it."""
        return f"{self.version}{'t' if self.free_threaded else ''}"

    def __str__(self) -> str:
        return f"{self.path} (Python {self.full_version})"


def locate_python(prefix: Path) -> Path:
    """Return where the interpreter of a virtual environment is."""
    return prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def query_interpreter(program: Path, env: Mapping[str, str]) -> Interpreter:
    """Ask a program what it is, and the one below it when it belongs to a virtual environment.

    Raises UsageError for what does not run, and for what torch cannot be built for: another
    implementation, a debug build, 32 bits.
    """
    answer = _read_answer(program, env)
    if answer["prefix"] != answer["base_prefix"]:
        below = _find_base_interpreter(answer)
        if below is None:
            raise errors.UsageError(
                f"{program} is of the virtual environment {answer['prefix']}, but the Python below it is not"
                f" in {answer['base_prefix']}",
                tip="name the Python itself, and not the environment",
            )
        if os.path.realpath(below) != os.path.realpath(program):  # else it has said all of itself
            answer = _read_answer(below, env)
        answer |= {"executable": str(below), "base_executable": str(below)}
    if fault := _describe_fault(answer):
        raise errors.UsageError(f"{program} is {fault}")
    major, minor = str(answer["version"]).split(".")[:2]
    return Interpreter(
        path=Path(os.path.realpath(answer["base_executable"])),
        version=answer["version"],
        tag=f"cp{major}{minor}{'t' if answer['free_threaded'] else ''}",
        implementation=answer["implementation"],
        platform=answer["platform"],
        headers=Path(answer["headers"]) if answer["headers"] else None,
    )


def _read_answer(program: Path, env: Mapping[str, str]) -> dict[str, Any]:
    output = process.capture_output(
        [program, "-I", "-c", _QUESTION],
        env=env,
        timeout=_SECONDS,
        check=errors.UsageError,
        description=f"asking {program} which Python it is",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        answer = json.loads(output)
        return {**answer, "version": str(answer["version"])}
    except (ValueError, TypeError, KeyError) as cause:
        raise errors.UsageError(f"{program}, asked which Python it is, said {output[:200]!r}") from cause


def _find_base_interpreter(answer: Mapping[str, Any]) -> Path | None:
    """Return the interpreter that a virtual environment was made of."""
    prefix, base = Path(answer["prefix"]), Path(answer["base_prefix"])
    stated = Path(answer["base_executable"])
    if not stated.is_relative_to(prefix) and stated.exists():
        return stated
    minor = ".".join(str(answer["version"]).split(".")[:2])
    free = "t" if answer["free_threaded"] else ""
    candidates = [base / "bin" / f"python{minor}{free}", base / "bin" / "python3", base / "python.exe"]
    linked = Path(os.path.realpath(answer["executable"]))
    return next(
        (path for path in (*candidates, linked) if path.exists() and not path.is_relative_to(prefix)), None
    )


def _describe_fault(answer: Mapping[str, Any]) -> str | None:
    """Say why no wheel of torch can be built for an interpreter; ``None`` when one can."""
    version = answer["version"]
    if answer["implementation"] != "cpython":
        return f"{answer['implementation']} {version}; wheels of torch are built for CPython"
    if answer["debug"]:
        return f"a debug build of Python {version}; its extension modules load nowhere else"
    if answer["bits"] != 64:
        return f"a Python {version} of {answer['bits']} bits ({answer['platform']}); ROCm has 64"
    return None


OPT_PYTHON = Path("/opt/python")
_RELEASE = r"(?P<version>3\.\d+(?:\.\d+)?)(?:(?:a|b|rc)\d+)?"
_PYENV = re.compile(rf"{_RELEASE}(?P<free>t?)(?:-dev)?")
_UV = re.compile(rf"cpython-{_RELEASE}(?P<free>\+freethreaded)?-.+")
# py -0p, then and now: " -3.12-64 * C:\…\python.exe", " -V:3.13t * C:\…\python3.13t.exe"
_PY = re.compile(
    r"\s*-(?:V:)?(?P<version>3\.\d+)(?P<free>t?)(?:-\d+)?\s+(?:\*\s+)?(?P<path>\S.*?\.exe)\s*\*?\s*"
)


@dataclass(frozen=True)
class RequestedPython:
    """A version that was asked for: ``3.12``, ``3.12.4``, ``3.13t``."""

    minor: str
    patch: str | None = None
    free_threaded: bool = False

    @property
    def tag(self) -> str:
        """The tag of its wheels: ``cp312``, ``cp313t``."""
        return f"cp{self.minor.replace('.', '')}{'t' if self.free_threaded else ''}"

    def __str__(self) -> str:
        return f"{self.minor}{f'.{self.patch}' if self.patch else ''}{'t' if self.free_threaded else ''}"

    def matches(self, version: str, *, free_threaded: bool) -> bool:
        """Tell whether a folder whose name says this can hold what is wanted."""
        numbers = version.split(".")
        fits = ".".join(numbers[:2]) == self.minor and free_threaded == self.free_threaded
        return fits and (self.patch is None or len(numbers) < 3 or numbers[2] == self.patch)


@dataclass(frozen=True)
class PythonLocation:
    """Somewhere to look, and the programs that are worth asking there, the best first.

    ``named``: its name says which Python it is, and it may be nothing else.
    """

    name: str
    programs: tuple[Path, ...]
    named: bool = True


def list_locations(
    requested: RequestedPython, env: Mapping[str, str], opt_python: Path
) -> Iterator[PythonLocation]:
    """Yield the places of a version in the order in which they count."""
    yield from _locate_opt_python(requested, opt_python)
    if sys.platform != "win32":
        pyenv = Path(env.get("PYENV_ROOT") or Path(env.get("HOME") or "~").expanduser() / ".pyenv")
        yield _search_folders(requested, pyenv / "versions", _PYENV)
    yield _search_uv(requested, env)
    yield from _search_path(requested, env)
    if sys.platform == "win32":
        yield _ask_launcher(requested, env)


def find_program(folder: Path) -> Path | None:
    """Return the interpreter of an environment or installation; ``None`` when there is none."""
    names = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
    return next((folder / name for name in names if (folder / name).exists()), None)


def _locate_opt_python(requested: RequestedPython, root: Path) -> Iterator[PythonLocation]:
    """The Pythons of a manylinux image: a folder a (Python, ABI)."""
    if sys.platform != "win32":
        folder = root / f"{requested.tag.removesuffix('t')}-{requested.tag}"
        program = folder / "bin" / "python"
        yield PythonLocation(str(folder), (program,) if program.exists() else ())


def _search_folders(requested: RequestedPython, root: Path, name: re.Pattern[str]) -> PythonLocation:
    """Folders called by their version, the newest first."""
    programs: list[tuple[tuple[int, ...], Path]] = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        match = name.fullmatch(folder.name)
        if match is None or not requested.matches(match["version"], free_threaded=bool(match["free"])):
            continue
        if program := find_program(folder):
            programs.append((tuple(int(number) for number in match["version"].split(".")), program))
    programs.sort(key=lambda item: item[0], reverse=True)
    return PythonLocation(str(root), tuple(program for _, program in programs))


def _search_uv(requested: RequestedPython, env: Mapping[str, str]) -> PythonLocation:
    if folder := env.get("UV_PYTHON_INSTALL_DIR"):
        return _search_folders(requested, Path(folder).absolute(), _UV)
    try:
        output = process.capture_output(
            [extras.find_uv(), "python", "dir"],
            env=compose_uv_environment(env),
            check=errors.SdkError,
            timeout=60,
        )
    except errors.RocmWheelsError as fault:
        return PythonLocation(f"uv's Pythons (`uv python dir` failed: {str(fault).splitlines()[0]})", ())
    return _search_folders(requested, Path(output.strip()), _UV)


def _search_path(requested: RequestedPython, env: Mapping[str, str]) -> Iterator[PythonLocation]:
    free = "t" if requested.free_threaded else ""
    names = [(f"python{requested.minor}{free}", True), ("python3", False), ("python", False)]
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for name, named in names:
        matches = [shutil.which(name, path=folder) for folder in folders]
        programs = dict.fromkeys(Path(path).absolute() for path in matches if path)
        yield PythonLocation(f"{name} on PATH", tuple(programs), named)


def _ask_launcher(requested: RequestedPython, env: Mapping[str, str]) -> PythonLocation:
    """Ask the launcher of Windows, which knows what the registry says (written, never run)."""
    program = shutil.which("py", path=env.get("PATH", ""))
    if program is None:
        return PythonLocation("py -0p (there is no py on PATH)", ())
    try:
        output = process.capture_output([program, "-0p"], env=env, check=errors.SdkError, timeout=60)
    except errors.RocmWheelsError as fault:
        return PythonLocation(f"py -0p (failed: {str(fault).splitlines()[0]})", ())
    return PythonLocation("py -0p", parse_launcher_output(requested, output))


def parse_launcher_output(requested: RequestedPython, output: str) -> tuple[Path, ...]:
    """Return the programs of a version that ``py -0p`` printed."""
    lines = [match for line in output.splitlines() if (match := _PY.fullmatch(line))]
    fitting = [line for line in lines if requested.matches(line["version"], free_threaded=bool(line["free"]))]
    return tuple(Path(line["path"]) for line in fitting)


_VERSION = re.compile(r"(?:python)?(3\.\d+)(?:\.(\d+))?(t?)")
_TAG = re.compile(r"cp3(\d+)(t?)(?:-cp3(\d+)(t?))?")
_FORMS = "a path, a version (3.12, 3.12.4, 3.13t), a tag (cp312, cp313-cp313t) or a program on PATH"


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
            raise errors.UsageError(
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
            raise errors.UsageError(
                f"--python: there is no tag {word}", tip="such as cp312-cp312, cp313-cp313t"
            )
        return RequestedPython(f"3.{minor}", None, bool(first or last))
    return None


def find_python_program(word: str, env: Mapping[str, str]) -> Path:
    """Return the program that a word names: by a path, a version or a tag, or on PATH (``python3``).

    Of an environment's folder it is the interpreter there, whose link stays as it is: that is what makes it
    the environment's. UsageError for a word that names no Python.
    """
    if parse_requested_python(word):
        return find_interpreters([word], env)[0].path
    return _find_named_program(word, env)


def read_python_version(word: str, env: Mapping[str, str]) -> str:
    """Return ``3.12``, ``3.12.4`` or ``3.13t`` of a version, a tag or a Python, which is asked what it is.

    UsageError for a word that is none of these.
    """
    if requested := parse_requested_python(word):
        return str(requested)
    interpreter = _find_interpreter(word, env, OPT_PYTHON)
    minor = ".".join(interpreter.version.split(".")[:2])
    return f"{minor}{'t' if interpreter.free_threaded else ''}"


def _find_named_program(word: str, env: Mapping[str, str]) -> Path:
    path = Path(word).expanduser()
    is_path = any(mark and mark in word for mark in (os.sep, os.altsep, "/"))
    if not word or not (is_path or path.exists()):
        program = shutil.which(word, path=env.get("PATH", "")) if word else None
        if program is None:
            raise errors.UsageError(f"--python: {word!r} is not a Python", tip=f"give {_FORMS}")
        return Path(program).absolute()
    path = path.absolute()
    if not path.exists():
        raise errors.UsageError(f"--python: there is no Python {word}", tip=f"give {_FORMS}")
    program_path = find_program(path) if path.is_dir() else path
    if program_path is None:
        raise errors.UsageError(
            f"--python: there is no Python in the folder {path}",
            tip="looked for bin/python, bin/python3, Scripts/python.exe and python.exe",
        )
    return program_path


def _find_interpreter(word: str, env: Mapping[str, str], opt_python: Path) -> Interpreter:
    if requested := parse_requested_python(word):
        return _find_by_version(requested, word, env, opt_python)
    return query_interpreter(_find_named_program(word, env), env)


def _find_by_version(
    requested: RequestedPython, word: str, env: Mapping[str, str], opt_python: Path
) -> Interpreter:
    report: list[str] = []
    for location in list_locations(requested, env, opt_python):
        report.append(location.name)
        for program in location.programs:
            try:
                interpreter = query_interpreter(program, env)
            except errors.UsageError as fault:
                report.append(f"  {str(fault).splitlines()[0].rstrip(':')}")
                continue
            if _is_requested(interpreter, requested):
                return interpreter
            if location.named and not _name_fits(interpreter, requested):
                raise errors.UsageError(
                    f"--python {word}: {program} says that it is Python {interpreter.full_version}",
                    tip="it is not taken for what its name says; mend it, or give the path of another",
                )
            report.append(f"  {program} is Python {interpreter.full_version}")
    text = "\n".join(f"  {line}" for line in report)
    raise errors.UsageError(
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
