"""How rocm-wheels is installed here: which extras and which uv there are, and how this program is started.

``pip install rocm-wheels`` is enough to choose, install and look after wheels; its extras bring the rest.
Libraries of extras are imported where they are used. Who finds one missing lets ModuleNotFoundError pass:
the command line makes of it what ``explain_missing_module`` returns. Work that would come to such a library
late, or starts programs of an extra, calls ``require_extras`` before it begins.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from rocm_wheels.core import errors

# extra: the modules of it that are imported; a test compares them with pyproject.toml and the code
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "build": ("auditwheel", "delvewheel", "git", "isal", "jinja2", "markupsafe"),
    "release": ("jinja2", "markupsafe", "pytest"),
    "s3": ("botocore",),
    "sigstore": ("sigstore",),
}
IMAGE_VARIABLE = "ROCM_WHEELS_IMAGE"  # in a container: the image that it was started from
_STORE_EXTRAS = {"s3", "sigstore"}  # what the environment of a clone has with `setup --store` alone
_CLONE = Path(__file__).resolve().parents[3]  # where we run from a clone
_PIPX_FILE = "pipx_metadata.json"
# commands that are advised to users of a machine, as they stand in sentences: "rocm-wheels itself" is none
_ADVISED_COMMANDS = "audit|build|checkout|choose|compat|configure|doctor|index|install|lock|targets|tests?"
_ADVISED = re.compile(rf"(?<![\w./-])rocm-wheels(?= (?:{_ADVISED_COMMANDS})\b)")


def require_extras(purpose: str, *extras: str) -> None:
    """Refuse to begin without extras: "``purpose`` needs …". Raises MissingExtraError."""
    missing = {extra: [name for name in EXTRAS[extra] if find_spec(name) is None] for extra in extras}
    if any(missing.values()):
        raise _make_error(purpose, {extra: names for extra, names in missing.items() if names})


def explain_missing_module(missing: ModuleNotFoundError) -> errors.MissingExtraError | None:
    """Return the error for a module of an extra; None for any other, whose absence is a bug."""
    name = (missing.name or "").partition(".")[0]
    extra = next((extra for extra, names in EXTRAS.items() if name in names), None)
    return None if extra is None else _make_error("this", {extra: [name]})


def _make_error(purpose: str, missing: Mapping[str, list[str]]) -> errors.MissingExtraError:
    modules = ", ".join(dict.fromkeys(name for names in missing.values() for name in names))
    noun = "the extra" if len(missing) == 1 else "the extras"
    return errors.MissingExtraError(
        f"{purpose} needs {noun} {' and '.join(missing)} of rocm-wheels: {modules} not installed",
        tip=_make_tip(missing.keys()),
    )


def _make_tip(extras: Collection[str]) -> str:
    """Return the command that brings extras, in the form in which this process was started."""
    prefix = Path(sys.prefix)
    if prefix.with_name(f"{prefix.name}.state").is_file() and set(extras) <= _STORE_EXTRAS:
        quickstart = prefix.parent / "build_tools" / "quickstart.py"
        return f"python3 {shlex.quote(str(quickstart))} setup --store, then the same again"
    with_extras = f"'{_find_origin() or 'rocm-wheels'}[{','.join(extras)}]'"
    if runner := _find_runner(prefix):
        return f"{' '.join(runner)} {with_extras} rocm-wheels …"
    if Path(prefix, _PIPX_FILE).is_file():
        return f"pipx install --force {with_extras}"
    installer = "uv tool install" if Path(prefix, "uv-receipt.toml").is_file() else "pip install"
    return f"{installer} {with_extras}"


@lru_cache(maxsize=1)
def find_uv() -> Path:
    """Return the uv that is installed beside us, else the one on PATH. Raises MissingExtraError."""
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ModuleNotFoundError, FileNotFoundError) as cause:
        program = shutil.which("uv")
        if program is None:
            raise errors.MissingExtraError(
                "this needs uv, which is neither installed beside rocm-wheels nor on PATH",
                tip="pip install uv",
            ) from cause
        return Path(program)


def adapt_commands(text: str) -> str:
    """Return advice with our commands in the form in which this process was started.

    ``uvx rocm-wheels install``, ``pipx run …``, ``python -m rocm_wheels`` or the program of a clone, where
    that program is not the one on PATH.
    """
    return _ADVISED.sub(lambda _: _find_own_command(Path(sys.prefix), Path(sys.argv[0])), text)


@lru_cache(maxsize=1)
def _find_own_command(prefix: Path, program: Path) -> str:
    words = ["rocm-wheels"]
    if runner := _find_runner(prefix):
        origin = _find_origin()
        words = [*runner, str(origin), "rocm-wheels"] if origin else [*runner[:-1], "rocm-wheels"]
    elif program.stem == "rocm-wheels" and not _is_on_path(program):
        words = [str(program)]
    elif program.parts[-2:] == ("rocm_wheels", "__main__.py"):
        beside = Path(sys.executable).with_name("rocm-wheels")
        words = words if _is_on_path(beside) else [sys.executable, "-m", "rocm_wheels"]
    return shlex.join(words)


def _find_runner(prefix: Path) -> list[str]:
    """Return what starts us from an environment that was made for this run; nothing for any other."""
    if prefix.parent.name.startswith("archive-v"):  # in uv's cache
        return ["uvx", "--from"]
    is_lent_by_pipx = Path(prefix, _PIPX_FILE).is_file() and prefix.parent.name != "venvs"
    return ["pipx", "run", "--spec"] if is_lent_by_pipx else []


def _is_on_path(program: Path) -> bool:
    path = shutil.which(program.name)
    return path is not None and Path(path).resolve() == program.resolve()


def get_own_command() -> list[str]:
    """Return how this very program is started: the script beside the running Python, else its module.

    A clone's scripts also run where another rocm-wheels is installed, whose script is not meant.
    """
    if (_CLONE / "pyproject.toml").is_file():
        origin = _find_origin()
        if origin is None or origin.resolve() != _CLONE:
            place = f"import sys; sys.path.insert(0, {str(_CLONE / 'build_tools')!r})"
            return [sys.executable, "-c", f"{place}; from rocm_wheels.cli.main import main; main()"]
    script = Path(sys.executable).parent / ("rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels")
    return [str(script)] if script.exists() else [sys.executable, "-m", "rocm_wheels"]


def _find_origin() -> Path | None:
    """Return the clone or the wheel that we were installed from (PEP 610); None: from an index, or not."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, seldom needed
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        text = distribution("rocm-wheels").read_text("direct_url.json")
        address = urlsplit(json.loads(text or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError):
        return None
    return Path(url2pathname(address.path)) if address.scheme == "file" else None
