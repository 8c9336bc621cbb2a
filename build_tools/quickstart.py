#!/usr/bin/env python3
"""From a fresh clone to the first wheels, or to the whole test suite, in one command.

    python3 build_tools/quickstart.py demo [--output-dir DIR]
    python3 build_tools/quickstart.py test [pytest options]
    python3 build_tools/quickstart.py setup [--store] [--tests] [--compiler-cache] [--github-path]

Makes ``.venv`` in the clone (``.venv.rocm-wheels`` where that name is taken) from the hash-locked
``requirements.lock`` (with uv when it is on PATH, else with venv and pip), then hands over; ``test`` adds
``requirements-test.lock``, options of ``setup`` less.
Standard library only. After an interruption run it again; once it is done, it does nothing.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035 - as below

from _arguments import OnceParser

BUILD_TOOLS = Path(__file__).resolve().parent
CLONE = BUILD_TOOLS.parent
LOCK = BUILD_TOOLS / "requirements.lock"
CHECKS = CLONE / ".ci" / "check"
# what can be added, by option; each of the first has all of the next, and of requirements.lock
ADDITIONS = {
    "tests": BUILD_TOOLS / "requirements-test.lock",
    "store": BUILD_TOOLS / "requirements-store.lock",  # S3, and attestations of what is in a store
    "cache": CLONE / "dockerfiles" / "tools.lock",  # ccache and sccache, as our build image has them
}
NESTED = ("tests", "store")
WINDOWS = sys.platform == "win32"


def own_place() -> Path:
    """Return ``.venv`` of the clone, or where it is somebody else's the folder that is ours alone.

    Ours has a state, and rocm-wheels in it as soon as that says that it is finished.
    """
    place, state = CLONE / ".venv", CLONE / ".venv.state"
    inside = "Lib/site-packages" if WINDOWS else "lib/*/site-packages"
    finished = state.is_file() and "unfinished" not in state.read_text(encoding="utf-8")
    foreign = not state.is_file() or (finished and not any(place.glob(inside + "/rocm_wheels-*.dist-info")))
    return CLONE / ".venv.rocm-wheels" if place.exists() and foreign else place


VENV = own_place()
STATE = VENV.with_name(VENV.name + ".state")
# A module's tests share what is long to make, a finished demo for instance: each module goes to one worker,
# in the order of tests/conftest.py. (`--dist loadgroup` groups nothing with pytest 9.2: pytest-xdist#1386.)
_PARALLEL = ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--durations", "30"]

# Annotations are quoted where a Python 3.6 could not evaluate them: it must come as far as to be told
# that it is too old (RHEL 8 and its like; of the image that wheels are built in, python3 is 3.12).

DEMO_COSTS = "this takes 3 to 4 minutes on two cores, 1.3 GB of disk and 370 MB of downloads, .venv included"
LAST_WORDS = 20  # lines of an installer that failed
SPACE = 5 * 10**8  # bytes that an installer may need at once
LOCK_FAULT = (
    "match the hashes|hash mismatch|hash-checking|require-hashes mode|no solution found|from versions: [^n]"
)
NETWORK_FAULT = (
    "retrying|timed out|connection|connect error|dns error|certificate|proxy|http error|status code"
    "|status client|from versions: none"
)

# package manager: (venv, git, C++ compiler)
PACKAGES = {
    "apt-get": ("python3-venv", "git", "g++"),
    "dnf": ("python3", "git", "gcc-c++"),
    "zypper": ("python3", "git", "gcc-c++"),
    "pacman": ("python", "git", "gcc"),
    "apk": ("python3", "git", "g++"),
    "brew": ("python", "git", "gcc"),
}


class Failure(Exception):
    """What is wrong, and the way out: one line."""


def run() -> int:
    """Do what ``main`` does; what fails, an interruption and a disk that does not let us end in one line."""
    try:
        return main()
    except KeyboardInterrupt:
        code, line = 130, "interrupted; run the same command again"
    except Failure as failure:
        code, line = 2, str(failure)
    except OSError as failure:
        where = f" ({failure.filename})" if failure.filename else ""
        code, line = (
            2,
            f"{failure.strerror}{where}; the clone must be writable, on a disk with some space left",
        )
    print(f"error: {line}", file=sys.stderr)
    return code


def main() -> int:
    """Parse the command line, make the environment and hand over."""
    if sys.version_info < (3, 10):  # noqa: UP036 - started by whatever python3 is
        pythons = sorted(Path("/opt/python").glob("cp31[0-9]-cp31[0-9]/bin/python3"))  # of a manylinux image
        newer = str(pythons[-1]) if pythons else "python3.12"
        raise Failure(
            f"Python 3.10 or newer is needed; this is {sys.version.split()[0]} ({sys.executable}); "
            f"start this script with a newer one: {newer} build_tools/quickstart.py …"
        )
    parser = OnceParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="build real wheels from a miniature of everything")
    demo.add_argument("--output-dir", help="where the wheels go (default: demo-output in the clone)")
    commands.add_parser(
        "test", help="run the static checks and all tests; or pytest alone, with what follows"
    )
    setup = commands.add_parser("setup", help="only make .venv")
    for option, name, help_text in (
        ("--store", "store", "with what stores in S3 need, and attestations of workflows"),
        ("--tests", "tests", "with that, and what the tests need"),
        ("--compiler-cache", "cache", "with ccache and sccache, which builds can use"),
        ("--github-path", "github_path", "in a workflow: have rocm-wheels on PATH in later steps"),
    ):
        setup.add_argument(option, dest=name, action="store_true", help=help_text)
    options, rest = parser.parse_known_args()
    if rest and options.command != "test":
        parser.error("unrecognized arguments: " + " ".join(rest))
    path_file = os.environ.get("GITHUB_PATH")
    if getattr(options, "github_path", False) and path_file is None:
        raise Failure(
            "GITHUB_PATH is not set: this is no step of a workflow; leave --github-path out elsewhere"
        )
    require_tools(compiler=options.command != "setup")
    if options.command == "demo" and not STATE.is_file() and (shutil.which("uv") or venv_works()):
        print(DEMO_COSTS, file=sys.stderr)
    with one_at_a_time():
        wanted = [name for name in ADDITIONS if getattr(options, name, False)]
        make_environment(["tests"] if options.command == "test" else wanted)
    if path_file and getattr(options, "github_path", False):
        with open(path_file, "a", encoding="utf-8") as handle:
            handle.write(f"{venv_python().parent}\n")
    return hand_over(options.command, getattr(options, "output_dir", None), rest)


def hand_over(command: str, output_dir: "str | None", rest: "list[str]") -> int:
    """Run what was asked for inside the environment."""
    if command == "setup":
        program = venv_python().parent / "rocm-wheels"
        print(f"ready: {program} (the scripts in build_tools/ and repos/ find it by themselves)")
        return 0
    argv = [str(venv_python()), str(BUILD_TOOLS / "demo.py")]
    if output_dir:
        argv += ["--output-dir", str(Path(output_dir).absolute())]
    if command == "test":
        os.chdir(CLONE)
        # the whole: what needs no test comes first; who narrows pytest by its variable wants that alone
        if not rest and not os.environ.get("PYTEST_ADDOPTS"):
            checked = subprocess.run([str(venv_python()), str(CHECKS)], env=clean_environment(), check=False)
            if checked.returncode:
                return checked.returncode
        argv = [str(venv_python()), "-m", "pytest", *(rest or _PARALLEL)]
    if not WINDOWS:
        sys.stdout.flush()
        os.execve(argv[0], argv, clean_environment())
    return subprocess.run(argv, env=clean_environment(), check=False).returncode


def make_environment(additions: "list[str]") -> None:
    """Make, complete or renew ``.venv``; nothing is done when it already is what the locks say."""
    base = {
        "lock": digest(LOCK),
        "project": digest(CLONE / "pyproject.toml"),
        "python": sys.version,
        "base": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        "place": str(VENV),
    }
    state = read_state()
    made = state is not None and base.items() <= state.items() and venv_python().exists()
    installed = {name: state[name] for name in ADDITIONS if state.get(name)} if state and made else {}
    missing = list_missing(installed, additions)
    if made and not missing:
        return
    if VENV.exists() and state is None:
        raise Failure(f"{VENV} exists and was not made by this script; move it away, then run this again")
    uv = shutil.which("uv")
    if uv is None and not venv_works():
        raise Failure(
            f"this Python has no venv with pip or ensurepip, and uv is not on PATH; {name_package(0)}"
        )
    locks = [ADDITIONS[name] for name in missing]
    if not made and not any(name in NESTED for name in missing):
        locks.insert(0, LOCK)
    how, what = "uv" if uv else "venv and pip", "completing" if made else "making"
    print(f"{what} {VENV} from {locks[0].name} with {how} …", file=sys.stderr, flush=True)
    write_state({"state": "unfinished"})
    for number, lock in enumerate(locks):
        for argv in installation(uv, lock, anew=not made and number == 0):
            code, words = run_installer(argv)
            if code and uv is None and argv[1:3] == ["-m", "venv"]:
                fault = "this Python cannot make an environment with pip (its words are above)"
                raise Failure(f"{fault}; {name_package(0)}")
            if code:
                raise Failure(f"{how} failed with exit code {code} (its words are above); {find_tip(words)}")
    write_state({**base, **installed, **{name: digest(ADDITIONS[name]) for name in missing}})


def run_installer(argv: "list[str]") -> "tuple[int, str]":
    """Run a command; show on a terminal what it does now, and where it fails its last words. Return these."""
    begin, lines, terminal = time.monotonic(), [], sys.stderr.isatty()
    width = shutil.get_terminal_size().columns - 1
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(argv, cwd=str(CLONE), env=clean_environment(), **pipes) as process:
        for line in process.stdout or ():
            lines.append(line)
            if terminal:
                shown = f"{time.monotonic() - begin:4.0f} s  {line.strip()}"[:width]
                print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)
    words, clear = "".join(lines[-LAST_WORDS:]), "\r\x1b[K" if terminal else ""
    print(clear + (words if process.returncode else ""), end="", file=sys.stderr)
    return process.returncode, words


def find_tip(words: str) -> str:
    """Return what helps, by the last words of pip or uv; new pips call a full disk a fault of the network."""
    if re.search(LOCK_FAULT, words, re.IGNORECASE):
        return "the lock, this installer and its package index do not fit together: take another of the two"
    places = (tempfile.gettempdir(), str(CLONE))
    full = [place for place in places if shutil.disk_usage(place).free < SPACE]
    if full or re.search("no space left|disk quota", words, re.IGNORECASE):
        return f"free some space (in {' and '.join(full or places)}), then run this again"
    if re.search(NETWORK_FAULT, words, re.IGNORECASE):
        return "check the network and the package index, then run this again"
    return "mend what they say, then run this again"


def list_missing(installed: "dict[str, str]", additions: "list[str]") -> "list[str]":
    """Return the additions that are to be installed: of those that hold each other, the largest alone."""
    nested = [name for name in NESTED if name in additions][:1]
    if nested:
        larger = NESTED[: NESTED.index(nested[0]) + 1]
        nested = [] if any(installed.get(name) == digest(ADDITIONS[name]) for name in larger) else nested
    others = [name for name in additions if name not in NESTED]
    return nested + [name for name in others if installed.get(name) != digest(ADDITIONS[name])]


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installation(uv: "str | None", lock: Path, *, anew: bool) -> "list[list[str]]":
    """Return the commands that fill ``.venv``: environment, locked packages, the project itself."""
    python = str(venv_python())
    # A lock has all that is needed. Who looks for requirements in what it installs, as pip up to 23.2 does,
    # takes for one with an extra, or the same without it, the newest version that there is: without digest.
    hashed = ["--no-deps", "--require-hashes", "-r", str(lock)]
    project = ["--no-deps", "--no-build-isolation", "-e", str(CLONE)]
    if uv:
        venv = [uv, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, str(VENV)]
        install = [uv, "pip", "install", "--python", python]
    else:
        pip = [sys.executable, "-m", "pip", "--python", python] if has_pip() else [python, "-m", "pip"]
        bare = ["--without-pip"] if has_pip() else []
        venv = [sys.executable, "-m", "venv", "--clear", *bare, str(VENV)]
        install = [*pip, "--disable-pip-version-check", "install", "--no-compile"]
    return [venv, [*install, *hashed], [*install, *project]] if anew else [[*install, *hashed]]


def clean_environment() -> "dict[str, str]":
    """Return the environment without what would bend another Python, or have it run another copy of us."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def venv_python() -> Path:
    """Return the interpreter of ``.venv``."""
    return VENV / ("Scripts/python.exe" if WINDOWS else "bin/python")


def read_state() -> "dict[str, str] | None":
    """Return what was last recorded: a dict, ``{}`` when torn, ``None`` when never recorded."""
    try:
        state: Any = json.loads(STATE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def write_state(state: "dict[str, str]") -> None:
    """Record the state of ``.venv``: complete only when its last command has succeeded."""
    beside = STATE.with_name(STATE.name + ".part")
    beside.write_text(json.dumps(state, indent=1), encoding="utf-8")
    os.replace(str(beside), str(STATE))


def require_tools(compiler: bool) -> None:
    """Raise Failure for a program that is missing, with the package that has it."""
    if shutil.which("git") is None:
        raise Failure(f"git is not on PATH; {name_package(1)}")
    names = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++", "cl"]
    if compiler and not any(map(shutil.which, names)):
        raise Failure(f"no C++ compiler is on PATH (looked for {', '.join(names)}); {name_package(2)}")


def name_package(column: int) -> str:
    """Return how to install what a column of PACKAGES has."""
    manager = next((name for name in PACKAGES if shutil.which(name)), None)
    return f"install it: {manager} install {PACKAGES[manager][column]}" if manager else "install it"


def has_pip() -> bool:
    """Tell whether this Python's pip can install into another environment: that spares it a pip (3 s)."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return tuple(map(int, version("pip").split(".")[:2])) >= (22, 3)
    except (PackageNotFoundError, ValueError):
        return False


def venv_works() -> bool:
    """Tell whether this Python can make an environment, and pip in it if it must (Debian splits that off)."""
    modules = "venv" if has_pip() else "venv, ensurepip"
    probe = subprocess.run([sys.executable, "-c", "import " + modules], capture_output=True, check=False)
    return probe.returncode == 0


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let a second run wait until the first has made the environment; the lock dies with its process."""
    with open(CLONE / ".venv.lock", "w", encoding="utf-8") as handle:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def open_missing_streams() -> None:
    """Open descriptors 0 to 2 that the caller has closed, or our files get their numbers, and our output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


if __name__ == "__main__":
    open_missing_streams()
    sys.exit(run())
