"""What the light installation leaves out, and the error of who needs it.

``pip install rocm-wheels`` is enough to choose, install and look after wheels; its extras bring the rest.
Libraries of extras are imported where they are used. Who finds one missing lets ModuleNotFoundError pass:
the command line makes of it what ``explain_missing_module`` returns. Work that would come to such a library
late, or starts programs of an extra, calls ``require_extras`` before it begins.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from rocm_wheels.core import errors

# extra: the modules of it that are imported; a test compares them with pyproject.toml and the code
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "build": ("auditwheel", "delvewheel", "git", "gitdb", "isal", "jinja2", "markupsafe", "uv"),
    "release": ("jinja2", "markupsafe", "pytest", "uv"),
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
    if prefix.parent.name.startswith("archive-v"):  # of uv's cache
        return f"uvx --from {with_extras} rocm-wheels …"
    if Path(prefix, "pipx_metadata.json").is_file():
        is_kept = prefix.parent.name == "venvs"
        return (
            f"pipx install --force {with_extras}"
            if is_kept
            else f"pipx run --spec {with_extras} rocm-wheels …"
        )
    installer = "uv tool install" if Path(prefix, "uv-receipt.toml").is_file() else "pip install"
    return f"{installer} {with_extras}"
