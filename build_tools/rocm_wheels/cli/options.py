"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli import boundary
from rocm_wheels.core import progress, tables

if TYPE_CHECKING:
    from datetime import timedelta

    from click import Context, Parameter

    from rocm_wheels.index import manifest, signing


class GivenPath(click.Path):
    """A path that is really given: an empty one (of a variable that is not set) is not the current folder."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=dir_okay)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Return the path. Raises click's BadParameter for an empty one."""
        if not os.fspath(value):
            self.fail("the path is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


class GivenText(click.types.StringParamType):
    """A URL or the like that is really given: "" is neither the current folder nor the option left out."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Return the text. Raises click's BadParameter for an empty one."""
        if not value:
            self.fail("it is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


if TYPE_CHECKING:
    _Base = click.ParamType[float]
    _TextType = click.ParamType[str]
else:
    _Base = _TextType = click.ParamType  # not generic before click 8.2

_PLAIN_PYTHON = re.compile(r"3\.\d+t?")


class PythonVersions(_TextType):
    """Versions of Python, by commas; a path stands for the version of the Python there."""

    name = "version"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> str:
        """Return the versions as tables write them, ``3.12,3.14t``. Raises UsageError for what is none."""
        words = [word for word in re.split(r"[,\s]+", str(value)) if word]
        return ",".join(_read_python_version(word) for word in words)


def _read_python_version(word: str) -> str:
    if _PLAIN_PYTHON.fullmatch(word):
        return word
    from rocm_wheels.sdk import interpreters

    return interpreters.read_python_version(word, boundary.read_environment())


_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MOST_SECONDS = 100 * 365 * 86400


class Duration(_Base):
    """A length of time in seconds: ``90m``, ``1.5h``, ``7d``, ``30s``; not none at all.

    A number that is not text (of code) is taken as it is.
    """

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; click's own error for anything else, and for more than lies between now and the year 1."""
        if isinstance(value, (int, float)):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
        seconds = float(match[1]) * _SECONDS.get(match[2], 0) if match is not None else 0
        if not seconds:
            self.fail(f"{value!r} is not a length of time: 30s, 90m, 6h, 7d", param, ctx)
        if seconds > _MOST_SECONDS:
            self.fail(f"{value!r} is longer than a hundred years", param, ctx)
        return seconds


def read_signers(keys: Iterable[Path], env: Mapping[str, str]) -> dict[str, str]:
    """Return the public keys of files by the names of those. Raises UsageError for a file that is none."""
    from rocm_wheels.core import ssh_signature

    return {key.name: ssh_signature.read_public_key(key, env) for key in keys}


def open_memory(env: Mapping[str, str]) -> manifest.ManifestMemory:
    """Return what the user's machine has seen of manifests."""
    from rocm_wheels.core import user_folders
    from rocm_wheels.index import manifest

    return manifest.ManifestMemory(user_folders.find_state_folder(env, sys.platform) / "manifests")


def make_signer(
    key: Path | None, valid_for: timedelta, env: Mapping[str, str], *, anew: bool, dry_run: bool
) -> signing.ReleaseSigner | None:
    """Return who signs now what indexes show, by the key in a file; None without. UsageError for no key.

    Also believed is what keys of ``ROCM_WHEELS_RELEASED_BY`` have signed.
    """
    if key is None:
        return None
    from rocm_wheels.cli import evidence
    from rocm_wheels.index import signing

    words = env.get("ROCM_WHEELS_RELEASED_BY", "").split(os.pathsep)
    trusted = read_signers([Path(word) for word in words if word], env)
    memory = None if dry_run else open_memory(env)
    signer = signing.ReleaseSigner(key, env, evidence.current_time(), trusted, valid_for, anew, memory)
    _ = signer.trusted  # says what is wrong with the key
    return signer


class SigningKey(GivenPath):
    """The file of a private key; a variable may hold the key itself, which then is a file while we run."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Return the path of the file. Raises click's BadParameter for an empty one."""
        if not str(value).lstrip().startswith("-----BEGIN ") or ctx is None:
            return super().convert(value, param, ctx)
        if ctx.resilient_parsing:  # values are shown, and nothing runs
            return Path("KEY")
        folder = ctx.find_root().with_resource(tempfile.TemporaryDirectory(prefix="rocm-wheels-key-"))
        path = Path(folder, "key")
        path.touch(mode=0o600)
        path.write_text(str(value).strip() + "\n", encoding="utf-8")
        return path


class RegularFile(click.Path):
    """A file that is there: no folder, and no pipe or device, which reading would wait for."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Return the path. Raises click's BadParameter for anything else."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_file():
            self.fail(f"{path} is not a file", param, ctx)
        return path


wheel_file = RegularFile()


def _drop_repetitions(_ctx: Context, _param: Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


wheels_argument = click.argument(
    "wheels", nargs=-1, required=True, type=wheel_file, metavar="WHEEL...", callback=_drop_repetitions
)


@contextmanager
def show_activity(activity: str, count: int) -> Iterator[None]:
    """Show on a terminal what a block does with so many wheels."""
    progress.show_live_line(f"{activity} {tables.format_count(count, 'wheel')} …")
    try:
        yield
    finally:
        progress.show_live_line("")
