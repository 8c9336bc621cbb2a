"""Pythons that wheels are built for, and uv, which installs into them.

A version is looked for in manylinux's ``/opt/python``, among pyenv's, among uv's, on PATH, and, on Windows,
by the launcher. Names only choose what is asked: what an interpreter is, it says itself, and a ``python3.12``
that says 3.11 is no 3.12. uv is not asked: the light installation has none, and its search ends at the first
program on PATH that does not run, such as pyenv's shims of versions that are not active. The interpreter of
a virtual environment stands for the one below it, which wheels are built for.

uv retries the network by itself; its last words become the message of an SdkError.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, installation, process, shell
from rocm_wheels.models import closed_projects

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
_DISK, _CERTIFICATE = "no space left|quota exceeded", "certificate|unknownissuer"
_NETWORK = "error sending request|dns error|timed out|connection|retries|status server error"
# words of uv's failures and what to do, the first one that fits: the network's stand in others' too
_TIPS = {
    _DISK: "free some space and run the same command again; the cache of uv may be on another disk",
    _CERTIFICATE: "uv does not know who signed the index: set SSL_CERT_FILE, or UV_SYSTEM_CERTS=1 for the"
    " system's",
    "externally managed": "this Python belongs to the system; use a virtual environment, or leave"
    " --current-env out",
    "does not satisfy python": "the packages are for other versions of Python: name one with --python",
    "no solution found|not found in the package registry": "check --rocm, --rocm-extras, --rocm-index and"
    " --find-links; also --pre of build_prod_wheels.py",
    "no virtual environment|no interpreter found": "check that this Python exists and runs",
    _NETWORK: "the package index could not be reached; uv has tried several times already, run this again"
    " later",
}


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
    def options(self) -> tuple[str, ...]:
        """The options of ``uv pip`` without the places, which can hold passwords: all may read arguments."""
        cache = ("--cache-dir", str(self.cache_dir)) if self.cache_dir else ()
        return (*cache, *(("--prerelease", "allow") if self.pre else ()))


def compose_uv_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Compose uv's environment: the user's own settings, without what would lead it elsewhere."""
    inherited = {name: value for name, value in env.items() if name not in _REMOVED_VARIABLES}
    return {**inherited, "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}


def is_offline(env: Mapping[str, str]) -> bool:
    """Tell whether UV_OFFLINE forbids the network, as uv reads it: ``0`` and ``false`` do not."""
    return env.get("UV_OFFLINE", "").lower() in ("1", "true", "yes", "on", "y", "t")


def run_uv(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    activity: str,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run uv. SdkError with its last words, and what to do where they are known."""
    lines: list[str] = []

    def listen(line: str) -> None:
        lines.append(line)
        if on_line is not None:
            on_line(line)

    try:
        process.run_command(
            [installation.find_uv(), *words],
            env=compose_uv_environment(env),
            cwd=cwd,
            on_line=listen,
            check=errors.SdkError,
            description=activity,
        )
    except errors.SdkError as error:
        text = "\n".join(lines).lower()
        error.tip = next((tip for pattern, tip in _TIPS.items() if re.search(pattern, text)), None)
        raise


def is_transient_failure(output: str) -> bool:
    """Tell whether a failure of uv is the network's or the disk's: it says nothing of the packages."""
    return bool(re.search("|".join((_DISK, _CERTIFICATE, _NETWORK)), output.lower()))


def make_venv(
    python: Path, prefix: Path, env: Mapping[str, str], *, on_line: Callable[[str], None] | None = None
) -> None:
    """Make a virtual environment of ``python`` at ``prefix``, without pip or anything else in it."""
    words = ["venv", "--quiet", "--no-project", "--python", str(python), str(prefix)]
    activity = f"making a virtual environment of {python}"
    run_uv(words, env, cwd=prefix.parent, activity=activity, on_line=on_line)


def run_pip(
    words: Sequence[str],
    source: PackageSource,
    env: Mapping[str, str],
    *,
    activity: str,
    cwd: Path,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run ``uv pip`` with packages of ``source``. SdkError with its last words."""
    given = {"UV_FIND_LINKS": source.find_links, "UV_DEFAULT_INDEX": source.index_url}
    places = {name: place for name, place in given.items() if place}
    if places:
        activity += f" from {' and '.join(map(shell.hide_credentials, places.values()))}"
    words = ["pip", *words, *source.options]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        uv_env = {**env, **places}
        if places or source.closed:
            # the first index that has a page of a project is the last one that is asked, and these are empty
            Path(folder, "index.html").write_text("<!DOCTYPE html>\n", encoding="utf-8")
            for name in closed_projects.list_closed_projects():
                if sys.platform == "win32":  # where not everybody may make links
                    Path(folder, name).mkdir()
                    shutil.copy(Path(folder, "index.html"), Path(folder, name))
                else:  # of a hundred pages, for each start of uv, one is written and taken away again
                    Path(folder, name).symlink_to(".")
            indexes = [source.index_url, Path(folder).as_uri(), env.get("UV_INDEX")]
            uv_env["UV_INDEX"] = " ".join(index for index in indexes if index)
            words += ["--index-strategy", "first-index"]
        run_uv(words, uv_env, cwd=cwd, activity=activity, on_line=on_line)


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
    words = ["install", "--python", str(python), *arguments]
    run_pip(words, source, env, activity=activity, cwd=cwd, on_line=on_line)


def format_install_command(arguments: Sequence[str], source: PackageSource | None = None) -> str:
    """Return what ``pip_install`` starts, as people would type it in the environment."""
    source = source or PackageSource()
    index = ["--default-index", source.index_url] if source.index_url else []
    links = ["--find-links", source.find_links] if source.find_links else []
    return shell.format_command(["uv", "pip", "install", *index, *links, *source.options, *arguments])


_SECONDS = 60.0
# Py_GIL_DISABLED and the letter t: PEP 703. Asked without site and json, which take longer than all else: an
# environment is known by its pyvenv.cfg (PEP 405), and all paths are those of the Python below it.
_QUESTION = """
import os, sys, sysconfig
ask = sysconfig.get_config_var
places = [os.path.dirname(sys.executable), os.path.dirname(os.path.dirname(sys.executable))]
environments = [place for place in places if os.path.isfile(os.path.join(place, "pyvenv.cfg"))]
include = sysconfig.get_path("include")
stages = {"alpha": "a", "beta": "b", "candidate": "rc"}
stage = stages[sys.version_info[3]] + str(sys.version_info[4]) if sys.version_info[3] in stages else ""
print(repr({
    "implementation": sys.implementation.name,
    "version": "%d.%d.%d" % sys.version_info[:3] + stage,
    "free_threaded": bool(ask("Py_GIL_DISABLED")),
    "debug": bool(ask("Py_DEBUG")) or hasattr(sys, "gettotalrefcount"),
    "bits": 64 if sys.maxsize > 2**32 else 32,
    "platform": sysconfig.get_platform(),
    "environment": environments[0] if environments else None,
    "base_prefix": sys.base_prefix,
    "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", None) or sys.executable,
    "headers": include if os.path.isfile(os.path.join(include, "Python.h")) else None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says of itself. ``path`` is its file, whatever links lead there.

    ``tag`` is that of its wheels (``cp312``, ``cp313t``), ``headers`` the folder with Python.h, ``None``
    where there is none.
    """

    path: Path
    version: str
    tag: str
    headers: Path | None = None

    @property
    def full_version(self) -> str:
        """The version with a ``t`` where it is free-threaded, as its users write it."""
        return self.version + ("t" if self.tag.endswith("t") else "")

    @property
    def short_version(self) -> str:
        """What locks and tables call it: ``3.12``, ``3.13t``."""
        return f"3.{self.tag.removeprefix('cp3')}"

    def __str__(self) -> str:
        return f"{self.path} (Python {self.full_version})"


def locate_python(prefix: Path) -> Path:
    """Return where the interpreter of a virtual environment is."""
    return prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def query_interpreter(program: Path, env: Mapping[str, str]) -> Interpreter:
    """Ask a program what it is; that of a virtual environment stands for the one below it.

    Raises UsageError for what does not run, and for what torch cannot be built for: another
    implementation, a debug build, 32 bits.
    """
    output = process.capture_output(
        [program, "-I", "-S", "-c", _QUESTION],
        env=env,
        timeout=_SECONDS,
        check=errors.UsageError,
        description=f"asking {program} which Python it is",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        answer = dict(ast.literal_eval(output))
        version = str(answer["version"])
    except (ValueError, SyntaxError, TypeError, KeyError) as cause:
        raise errors.UsageError(f"{program}, asked which Python it is, said {output[:200]!r}") from cause
    fault = ""
    if answer["implementation"] != "cpython":
        fault = f"{answer['implementation']} {version}; wheels of torch are built for CPython"
    elif answer["debug"]:
        fault = f"a debug build of Python {version}; its extension modules load nowhere else"
    elif answer["bits"] != 64:
        fault = f"a Python {version} of {answer['bits']} bits ({answer['platform']}); ROCm has 64"
    if fault:
        raise errors.UsageError(f"{program} is {fault}")
    minor, free = version.split(".")[1], "t" if answer["free_threaded"] else ""
    path = Path(answer["base_executable"])
    if answer["environment"]:
        # On POSIX before 3.11 _base_executable is the environment's own: a link to the one below, or a copy.
        prefix, base = Path(answer["environment"]), Path(answer["base_prefix"])
        linked = Path(os.path.realpath(answer["executable"]))
        below = [path, linked, base / "bin" / f"python3.{minor}{free}", base / "python.exe"]
        real = [path for path in below if path.exists() and not path.is_relative_to(prefix)]
        if not real:
            raise errors.UsageError(
                f"{program} is of the virtual environment {prefix}, but the Python below it is not in {base}",
                tip="name the Python itself, and not the environment",
            )
        path = real[0]
    headers = Path(answer["headers"]) if answer["headers"] else None
    return Interpreter(Path(os.path.realpath(path)), version, f"cp3{minor}{free}", headers)


OPT_PYTHON = Path("/opt/python")
_VERSION = re.compile(r"(?:python)?(3\.\d+(?:\.\d+)?t?)")
_TAG = re.compile(r"cp3(?P<minor>\d+)(?:-cp3(?P=minor))?(?P<free>t?)")
_FORMS = "a path, a version (3.12, 3.12.4, 3.13t), a tag (cp312, cp313-cp313t) or a program on PATH"


def find_interpreters(words: Sequence[str], env: Mapping[str, str]) -> tuple[Interpreter, ...]:
    """Return the interpreters that ``words`` name, in their order, each asked what it is.

    A word is a program, the folder of an environment or installation, a version or a tag. Raises
    UsageError for a word that is none of these, for a Python that is nowhere (with the programs that
    were asked) or that torch cannot be built for, and for two words whose wheels would have the same tag.
    """
    by_tag: dict[str, tuple[str, Interpreter]] = {}
    for word in words:
        interpreter = _find_interpreter(word.strip(), env)
        if interpreter.tag in by_tag:
            other, before = by_tag[interpreter.tag]
            relation = f"both {interpreter.tag}: {before}, {interpreter}"
            if interpreter.path == before.path:
                relation = f"the same Python: {interpreter}"
            raise errors.UsageError(
                f"--python: {other} and {word} are {relation}",
                tip="wheels of one tag are built once; leave one of them out",
            )
        by_tag[interpreter.tag] = (word, interpreter)
    return tuple(interpreter for _, interpreter in by_tag.values())


def find_python_program(word: str, env: Mapping[str, str]) -> Path:
    """Return the program that a word names: by a path, a version or a tag, or on PATH (``python3``).

    Of an environment's folder it is the interpreter there, whose link stays as it is: that is what makes it
    the environment's. UsageError for a word that names no Python.
    """
    if _read_version(word):
        return _find_interpreter(word, env).path
    path = Path(word).expanduser()
    is_path = any(mark and mark in word for mark in (os.sep, os.altsep, "/"))
    if not word or not (is_path or path.exists()):
        program = shutil.which(word, path=env.get("PATH", "")) if word else None
        if program is None:
            raise errors.UsageError(f"--python: {word!r} is not a Python", tip=f"give {_FORMS}")
        return Path(program).absolute()
    if not path.exists():
        raise errors.UsageError(f"--python: there is no Python {word}", tip=f"give {_FORMS}")
    program_path = _find_program(path) if path.is_dir() else path
    if program_path is None:
        raise errors.UsageError(
            f"--python: there is no Python in the folder {path.absolute()}",
            tip="looked for bin/python, bin/python3, Scripts/python.exe and python.exe",
        )
    return program_path.absolute()


def read_python_version(word: str, env: Mapping[str, str]) -> str:
    """Return ``3.12``, ``3.12.4`` or ``3.13t`` of a version, a tag or a Python, which is asked what it is.

    UsageError for a word that is none of these.
    """
    return _read_version(word) or _find_interpreter(word, env).short_version


def _read_version(word: str) -> str | None:
    """Return the version that a version or a tag means (``cp313-cp313t`` → ``3.13t``); else ``None``."""
    if match := _VERSION.fullmatch(word):
        return match[1]
    if match := _TAG.fullmatch(word):
        return f"3.{match['minor']}{match['free']}"
    if re.fullmatch(r"cp3\d+t?-.*", word):
        raise errors.UsageError(f"--python: there is no tag {word}", tip="such as cp312-cp312, cp313-cp313t")
    return None


def _find_interpreter(word: str, env: Mapping[str, str]) -> Interpreter:
    version = _read_version(word)
    if version is None:
        return query_interpreter(find_python_program(word, env), env)
    report = []
    for program in dict.fromkeys(_list_programs(version, env)):
        try:
            interpreter = query_interpreter(program, env)
        except errors.UsageError as fault:
            report.append(str(fault).splitlines()[0].rstrip(":"))
            continue
        release = re.sub(r"(a|b|rc)\d+", "", interpreter.full_version)
        if version in (interpreter.short_version, release):
            return interpreter
        report.append(f"{program} is Python {interpreter.full_version}")
    places = f"{OPT_PYTHON}, pyenv's, uv's and PATH"
    raise errors.UsageError(
        "\n  ".join([f"--python {word}: there is no Python {version} among {places}", *report]),
        tip=f"install it (pyenv, `uv python install {version}`), or give the path of its program",
    )


def _list_programs(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield what may be a Python of this version, in the order in which places count, the newest first."""
    minor, free = ".".join(version.removesuffix("t").split(".")[:2]), "t" if version.endswith("t") else ""
    home = Path(env.get("HOME") or env.get("USERPROFILE") or os.sep)
    shared = env.get("XDG_DATA_HOME") or env.get("APPDATA") or home / ".local" / "share"
    tag = f"cp{minor.replace('.', '')}"
    for root, pattern in (
        (OPT_PYTHON, f"{tag}-{tag}{free}"),
        (Path(env.get("PYENV_ROOT") or home / ".pyenv") / "versions", f"{minor}*"),
        (Path(env.get("UV_PYTHON_INSTALL_DIR") or Path(shared, "uv", "python")), f"cpython-{minor}*"),
    ):
        folders = sorted(root.absolute().glob(pattern))
        folders.sort(key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)][:3], reverse=True)
        yield from filter(None, map(_find_program, folders))
    search_path = env.get("PATH", "")
    for name in (f"python{minor}{free}", "python3", "python"):
        matches = [shutil.which(name, path=folder) for folder in search_path.split(os.pathsep) if folder]
        yield from (Path(match).absolute() for match in matches if match)
    # the launcher of Windows knows what the registry says (written, never run)
    if sys.platform == "win32" and (launcher := shutil.which("py", path=search_path)):
        question = [launcher, f"-{minor}{free}", "-c", "import sys; print(sys.executable)"]
        try:
            yield Path(process.capture_output(question, env=env, check=errors.SdkError, timeout=_SECONDS))
        except errors.SdkError:
            return  # it has none


def _find_program(folder: Path) -> Path | None:
    """Return the interpreter of an environment or installation; ``None`` when there is none."""
    names = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
    return next((folder / name for name in names if (folder / name).exists()), None)
