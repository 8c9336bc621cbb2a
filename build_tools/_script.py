"""What every script of the clone does: find a Python that has our dependencies, then make one call.

Standard library only; imported by the scripts that people start directly. A script works
from the clone without activating anything: the running interpreter is used when it has
the dependencies, else the environment that quickstart made in the clone; without either, one
line says what to run. Who started it is noted for commands that build for that Python, or test it.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

BUILD_TOOLS = Path(__file__).resolve().parent
CLONE = BUILD_TOOLS.parent
_WINDOWS = os.name == "nt"
_STARTED_BY = "ROCM_WHEELS_STARTED_BY"


def venv_python(venv: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return venv / ("Scripts/python.exe" if _WINDOWS else "bin/python")


def run(target: str, *arguments: str) -> NoReturn:
    """Run the click command ``module:attribute`` and exit with its code.

    With ``arguments`` the attribute is a function that makes the command from them.
    """
    environment = find_environment()
    if environment is None or Path(sys.prefix).resolve() != environment.resolve():
        os.environ[_STARTED_BY] = sys.executable  # it is meant, whoever goes on
    if sys.version_info < (3, 10) or not _installed_here():
        _use_clone_environment()
    if str(BUILD_TOOLS) not in sys.path:
        sys.path.insert(0, str(BUILD_TOOLS))
    from rocm_wheels.cli import boundary

    module, _, attribute = target.partition(":")
    command = getattr(import_module(module), attribute)
    sys.exit(boundary.run_command(command(*arguments) if arguments else command))


def _leave(message: str) -> NoReturn:
    if sys.stderr is not None:  # it is when the caller has closed it
        sys.stderr.write(message + "\n")
    sys.exit(2)


def _installed_here() -> bool:
    """Tell whether rocm-wheels, and so all it needs, is installed for the running interpreter."""
    places = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return any(True for place in places for _ in place.glob("rocm_wheels-*.dist-info"))


def find_environment() -> "Path | None":
    """Return the environment that quickstart made in the clone; one that somebody else made is not meant."""
    for place in (CLONE / ".venv", CLONE / ".venv.rocm-wheels"):
        if any(place.glob(("Lib" if _WINDOWS else "lib/*") + "/site-packages/rocm_wheels-*.dist-info")):
            return place
    return None


def _use_clone_environment() -> NoReturn:
    environment = find_environment()
    if (
        environment is None
        or not venv_python(environment).exists()
        or Path(sys.prefix).resolve() == environment.resolve()
    ):
        setup = f"python3 {BUILD_TOOLS / 'quickstart.py'} setup"
        _leave(f"error: {sys.executable} lacks what rocm-wheels needs; run `{setup}` once, then this again")
    argv = [str(venv_python(environment)), *sys.argv]
    if _WINDOWS:
        import subprocess

        sys.exit(subprocess.run(argv, check=False).returncode)
    os.execv(argv[0], argv)
