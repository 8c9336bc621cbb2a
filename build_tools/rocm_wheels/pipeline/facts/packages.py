"""Installed packages that a build depends on: those that a project requires, and what these require."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError

PYPROJECT = "pyproject.toml"
# as pip and uv read them: -r FILE, -rFILE, --requirement=FILE
_INCLUDE_LINE = re.compile(
    r"(?:(?P<requirements>-r|--requirement)|-c|--constraint)(?:\s*=\s*|\s*)(?P<file>\S.*)"
)


@dataclass(frozen=True)
class EnvironmentPackage:
    """An installed distribution: canonical name, version, its RECORD, canonical names that it requires."""

    name: str
    version: str
    record: Path
    requires: tuple[str, ...]

    def identity(self) -> str:
        """Return version and a digest of the installed files, as RECORD lists them."""
        return f"{self.version} {hashlib.sha256(read_record_lines(self.record)).hexdigest()[:12]}"


def read_record_lines(record: Path) -> bytes:
    """Return the lines of a RECORD, sorted, that tell what a package holds: each with the hash of a file.

    What the installer itself wrote is left out: metadata, and scripts, which hold the environment's path.
    """
    text = record.read_text(encoding="utf-8", errors="surrogateescape")
    files = (line for line in text.splitlines() if not line.startswith("../") and ".dist-info/" not in line)
    return "\n".join(sorted(files)).encode("utf-8", "surrogateescape")


def list_installed_packages(site_packages: Path) -> Mapping[str, EnvironmentPackage]:
    """Return what is installed in a folder, by canonical name."""
    packages: dict[str, EnvironmentPackage] = {}
    for folder in sorted(site_packages.glob("*.dist-info")):
        metadata = folder / "METADATA"
        if not metadata.is_file() or not (folder / "RECORD").is_file():
            continue
        headers = HeaderParser().parsestr(
            metadata.read_text(encoding="utf-8", errors="replace"), headersonly=True
        )
        name = canonicalize_name(headers.get("Name", ""))
        lines = (str(line) for line in headers.get_all("Requires-Dist", []))
        requires = tuple(dict.fromkeys(_parse_names(line for line in lines if "extra ==" not in line)))
        packages[name] = EnvironmentPackage(name, headers.get("Version", ""), folder / "RECORD", requires)
    return packages


def find_half_installed(site_packages: Path) -> tuple[str, ...]:
    """Return the canonical names of packages of whose files some are missing; byte code does not count.

    Without ROCm's: they come with their environment, which is there as a whole or made anew.
    """
    return tuple(
        canonicalize_name(folder.name.split("-")[0])
        for folder in sorted(site_packages.glob("*.dist-info"))
        if not folder.name.startswith("rocm") and not _is_whole(folder)
    )


def _is_whole(folder: Path) -> bool:
    try:
        with (folder / "RECORD").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            names = [row[0] for row in csv.reader(file) if row and not row[0].endswith(".pyc")]
    except FileNotFoundError:
        return False
    return (folder / "METADATA").is_file() and all((folder.parent / name).exists() for name in names)


def find_requirement_closure(
    names: Iterable[str], packages: Mapping[str, EnvironmentPackage]
) -> Mapping[str, EnvironmentPackage]:
    """Return those of ``names`` that are installed, with all installed ones that they require."""
    required: dict[str, EnvironmentPackage] = {}
    pending: list[str] = [canonicalize_name(name) for name in names]
    while pending:
        name = pending.pop()
        if name in packages and name not in required:
            required[name] = packages[name]
            pending += packages[name].requires
    return dict(sorted(required.items()))


def read_required_names(tools: Iterable[str], files: Iterable[Path]) -> tuple[str, ...]:
    """Return the names in requirements and requirements files, those that the files include as well."""
    lines = [*tools, *(line for file in files for line in _read_requirement_lines(file, {}))]
    return tuple(dict.fromkeys(_parse_names(lines)))


def _parse_names(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            yield canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            continue  # a path, a URL or an option: the installer's matter


def digest_requirements_file(file: Path) -> str:
    """Digest a requirements file and those that it includes, constraints as well: 12 hexadecimal digits."""
    included: dict[Path, None] = {}
    for _ in _read_requirement_lines(file, included, constraints=True):
        pass
    return hashlib.sha256(b"".join(path.read_bytes() for path in included)).hexdigest()[:12]


def expand_requirements(files: Iterable[Path]) -> list[str | Path]:
    """Return what an installer takes: requirements files as they are, the lines of a ``pyproject.toml``."""
    words: list[str | Path] = []
    for file in files:
        words += read_build_requirements(file) if file.name == PYPROJECT else [file]
    return words


def read_build_requirements(file: Path) -> tuple[str, ...]:
    """Return ``build-system.requires`` of a ``pyproject.toml`` (PEP 518).

    Raises DataError for a file that is no TOML or says something else there.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        requires = tomllib.loads(file.read_text(encoding="utf-8")).get("build-system", {}).get("requires", [])
    except (tomllib.TOMLDecodeError, AttributeError) as cause:
        raise DataError(f"{file}: build-system.requires cannot be read: {cause}") from cause
    if not isinstance(requires, list) or not all(isinstance(line, str) for line in requires):
        raise DataError(f"{file}: build-system.requires is not a list of requirements")
    return tuple(requires)


def _read_requirement_lines(
    file: Path, included: dict[Path, None], *, constraints: bool = False
) -> Iterator[str]:
    """Yield the requirements of a file and of those that it includes; these are added to ``included``."""
    file = Path(os.path.normpath(file))
    if file in included or not file.is_file():
        return
    included[file] = None
    if file.name == PYPROJECT:
        yield from read_build_requirements(file)
        return
    for raw in file.read_text(encoding="utf-8", errors="replace").splitlines():
        line = raw.split(" #", 1)[0].strip()
        match = _INCLUDE_LINE.fullmatch(line)
        if match is not None and (constraints or match["requirements"]):
            yield from _read_requirement_lines(file.parent / match["file"], included, constraints=constraints)
        elif line and not line.startswith(("#", "-")):
            yield line
