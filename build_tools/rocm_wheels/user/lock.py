"""Read and write locks (PEP 751, ``pylock.toml``): uv's answer, what we give to uv, and what people keep.

Wheels stand there under the names that installers read: they know no variant labels, which only the URL has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels import __version__
from rocm_wheels.core import errors, toml_reader
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info

_SHA256 = re.compile(r"[0-9a-f]{64}")
TOOL = "rocm-wheels"  # our table in a lock


@dataclass(frozen=True)
class LockedPackage:
    """One file of a package: ``name`` is that of the file for installers, without a variant label.

    ``sha256`` (hex) and ``size`` (bytes) are None where nothing states them. ``index`` is the URL of the
    index that it is of, "" for none; ``required_by`` are the projects that ask for it. ``properties`` are
    those that a variant was chosen by, None of a wheel that is none.
    """

    project: str
    version: Version
    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    index: str = ""
    required_by: tuple[str, ...] = ()
    properties: document.Properties | None = None

    @property
    def is_sdist(self) -> bool:
        """Tell whether it has to be built first."""
        return not self.name.endswith(".whl")

    @property
    def file(self) -> str:
        """The name of the file where it comes from: that of a variant has its label."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]

    @property
    def label(self) -> str:
        """The label of a variant, "" of a wheel that is none."""
        is_plain = self.file in (self.name, "") or not self.file.endswith(".whl")
        return "" if is_plain else dist_info.split_wheel_name(self.file).label

    def __str__(self) -> str:
        return f"{self.project} {self.version}"


def strip_credentials(url: str) -> str:
    """Return a URL without user and password: what is written down must not have them."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def format_lock(packages: Sequence[LockedPackage], machine: Mapping[str, Sequence[str]]) -> str:
    """Return the text of a lock. ``machine`` goes into our own table: what it is for, and was asked for.

    HostError for a file of which nothing states a digest.
    """
    lines = ['lock-version = "1.0"', f"created-by = {quote_toml(f'{TOOL} {__version__}')}"]
    for package in sorted(packages, key=lambda package: package.project):
        if package.sha256 is None:
            raise errors.HostError(
                f"the index states no sha256 of {package.file}, and a lock has one of every file",
                tip="take an index that states them; `rocm-wheels index build` makes such indexes",
            )
        place = "url" if urlsplit(package.url).scheme else "path"
        size = "" if package.size is None else f"size = {package.size}, "
        file = f"{{ name = {quote_toml(package.name)}, {place} = {quote_toml(package.url)}, {size}"
        file += f"hashes = {{ sha256 = {quote_toml(package.sha256)} }} }}"
        lines += ["", "[[packages]]", f"name = {quote_toml(package.project)}"]
        lines += [f"version = {quote_toml(str(package.version))}"]
        lines += [f"index = {quote_toml(package.index)}"] if package.index else []
        lines += [f"sdist = {file}" if package.is_sdist else f"wheels = [{file}]"]
    lines += ["", f"[tool.{TOOL}]"] if machine else []
    lines += [f"{key} = [{', '.join(map(quote_toml, texts))}]" for key, texts in machine.items()]
    return "\n".join(lines) + "\n"


def quote_toml(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False)  # what JSON escapes TOML escapes in the same way


def read_lock(text: str, name: str) -> dict[str, Any]:
    """Return a lock as a dictionary; DataError for what is none by PEP 751, or has another table of ours."""
    from packaging.pylock import Pylock, PylockValidationError

    content = toml_reader.parse_toml(text, name=name)
    try:
        Pylock.from_dict(content)
    except PylockValidationError as cause:
        raise errors.DataError(f"{name} is no lock of PEP 751: {cause}") from None
    machine = content.get("tool", {}).get(TOOL, {})
    values = machine.values() if isinstance(machine, dict) else [machine]
    if not all(isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in values):
        raise errors.DataError(
            f"tool.{TOOL} of {name} is not of lists of texts",
            tip="`rocm-wheels install --dry-run -o pylock.toml` makes the lock again",
        )
    return content


def select_packages(
    content: Mapping[str, Any], markers: Mapping[str, str], tags: Iterable[Tag], name: str, *, folder: Path
) -> list[LockedPackage]:
    """Return what a lock, which is in ``folder``, has for a Python: one file of each package.

    HostError where it has nothing that fits, DataError for files without sha256, and what is no file.
    """
    from packaging.pylock import PackageSdist, PackageWheel, Pylock, PylockSelectError

    packages = []
    try:
        for package, file in Pylock.from_dict(content).select(environment=dict(markers), tags=list(tags)):  # type: ignore[arg-type]
            if not isinstance(file, PackageWheel | PackageSdist) or package.version is None:
                raise errors.DataError(
                    f"{name}: {package.name} is neither a wheel nor a source distribution with a version",
                    tip="a lock of folders or of repositories is for pip and uv",
                )
            if not _SHA256.fullmatch(file.hashes.get("sha256", "")):  # folders are called by digests
                raise errors.DataError(
                    f"{name}: {file.filename} has no sha256", tip="make the lock again, with sha256"
                )
            packages.append(
                LockedPackage(
                    project=canonicalize_name(package.name),
                    version=package.version,
                    name=file.filename,
                    url=file.url or urljoin(f"{folder.absolute().as_uri()}/", file.path or ""),
                    sha256=file.hashes["sha256"],
                    size=file.size,
                    index=package.index or "",
                )
            )
    except PylockSelectError as cause:
        raise errors.HostError(
            f"{name} has nothing that fits Python {markers['python_version']} here: {cause}",
            tip="make a lock with this Python: `rocm-wheels install --dry-run -o pylock.toml`",
        ) from None
    return packages
