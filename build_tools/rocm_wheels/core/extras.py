"""What the light installation leaves out, and the error of who needs it.

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
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from rocm_wheels.core import errors

# extra: the modules of it that are imported; a test compares them with pyproject.toml and the code
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "build": ("auditwheel", "delvewheel", "git", "isal", "jinja2", "markupsafe"),
    "release": ("jinja2", "markupsafe", "pytest"),
    "s3": ("botocore",),
    "sigstore": ("sigstore",),
}
_STORE_EXTRAS = {"s3", "sigstore"}  # what the environment of a clone has with `setup --store` alone


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


def name_uv() -> str:
    """Return what uv is called in lines to paste: where it is not on PATH, the path of the one beside us."""
    if shutil.which("uv") is None:
        with suppress(errors.MissingExtraError):
            return str(find_uv())
    return "uv"


def _find_origin() -> str:
    """Return what installs us again: the clone or the wheel that we came from, else our name."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, seldom needed
    from urllib.request import url2pathname

    try:
        text = distribution("rocm-wheels").read_text("direct_url.json")
        address = urlsplit(json.loads(text or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError):
        return "rocm-wheels"
    return url2pathname(address.path) if address.scheme == "file" else "rocm-wheels"


_PIPX_FILE = "pipx_metadata.json"
# commands that are advised to users of a machine, as they stand in sentences: "rocm-wheels itself" is none
_ADVISED_COMMANDS = "audit|build|checkout|choose|compat|configure|doctor|index|install|lock|targets|tests?"
_ADVISED = re.compile(rf"(?<![\w./-])rocm-wheels(?= (?:{_ADVISED_COMMANDS})\b)")


def _is_lent_by_uv(prefix: Path) -> bool:
    """Tell whether an environment is one that ``uvx`` made for this run, in uv's cache."""
    return prefix.parent.name.startswith("archive-v")


def _is_of_pipx(prefix: Path) -> bool:
    """Tell whether an environment is one of ``pipx run``, which nothing on PATH leads to."""
    return Path(prefix, _PIPX_FILE).is_file() and prefix.parent.name != "venvs"


def adapt_commands(text: str) -> str:
    """Return advice with our commands in the form in which this process was started.

    ``uvx rocm-wheels install``, ``pipx run …``, ``python -m rocm_wheels`` or the program of a clone, where
    that program is not the one on PATH.
    """
    return _ADVISED.sub(lambda _: _find_own_command(Path(sys.prefix), Path(sys.argv[0])), text)


@lru_cache(maxsize=1)
def _find_own_command(prefix: Path, program: Path) -> str:
    words = ["rocm-wheels"]
    if _is_lent_by_uv(prefix) or _is_of_pipx(prefix):
        runner, option = (["uvx"], "--from") if _is_lent_by_uv(prefix) else (["pipx", "run"], "--spec")
        origin = _find_origin()
        words = [*runner, *([option, origin] if origin != "rocm-wheels" else []), "rocm-wheels"]
    elif program.stem == "rocm-wheels" and not _is_on_path(program):
        words = [str(program)]
    elif program.parts[-2:] == ("rocm_wheels", "__main__.py"):
        beside = Path(sys.executable).with_name("rocm-wheels")
        words = words if _is_on_path(beside) else [sys.executable, "-m", "rocm_wheels"]
    return shlex.join(words)


def _is_on_path(program: Path) -> bool:
    path = shutil.which(program.name)
    return path is not None and Path(path).resolve() == program.resolve()


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
    with_extras = f"'{_find_origin()}[{','.join(extras)}]'"
    quickstart = prefix.parent / "build_tools" / "quickstart.py"
    if prefix.with_name(f"{prefix.name}.state").is_file() and set(extras) <= _STORE_EXTRAS:
        return f"python3 {shlex.quote(str(quickstart))} setup --store, then the same again"
    if _is_lent_by_uv(prefix):
        return f"uvx --from {with_extras} rocm-wheels …"
    if _is_of_pipx(prefix):
        return f"pipx run --spec {with_extras} rocm-wheels …"
    if Path(prefix, _PIPX_FILE).is_file():
        return f"pipx install --force {with_extras}"
    installer = "uv tool install" if Path(prefix, "uv-receipt.toml").is_file() else "pip install"
    return f"{installer} {with_extras}"
