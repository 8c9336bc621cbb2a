"""Every ROCm on a machine, and the version that each states of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .forced import Forced, major_minor, read_forced
from .gpu import RocmFound

_VARIABLES = ("ROCM_PATH", "ROCM_HOME")
_WINDOWS_VARIABLES = ("HIP_PATH",)  # on Linux it named a part of ROCm, long ago
_SYSTEM = "opt/rocm"
_WINDOWS = "Program Files/AMD/ROCm"
_PACKAGED = "usr"  # where Debian and Fedora put their own
_PARTS = ("MAJOR", "MINOR", "PATCH")
_DIST_INFO = re.compile(r"(rocm_sdk_core|rocm)-([0-9][^-]*)\.dist-info", re.IGNORECASE)
_HEADERS = {  # the macros that a header states the version with
    "include/rocm-core/rocm_version.h": "ROCM",
    "include/rocm_version.h": "ROCM",
    "include/hip/hip_version.h": "HIP",
}


def find_rocm(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = "linux",
    site_packages: Sequence[Path] = (),
    forced: Forced | None = None,
) -> tuple[tuple[RocmFound, ...], tuple[str, ...]]:
    """Return every ROCm that is found, the one that counts first, and what could not be read.

    Stated by a variable, it is the only one. Otherwise the one that ``ROCM_PATH`` (``ROCM_HOME``; on Windows
    ``HIP_PATH``) names, then the Python packages in ``site_packages``, then ``/opt/rocm``, its neighbours,
    newest first, and what the system packages. ValueError for a variable that cannot be read.
    """
    forced = forced if forced is not None else read_forced(env)
    if forced.rocm is not None:
        return tuple(RocmFound(version, "forced", forced.rocm_by) for version in forced.rocm), ()
    faults: list[str] = []
    found: list[RocmFound] = []
    variables = (*_VARIABLES, *(_WINDOWS_VARIABLES if platform == "win32" else ()))
    named = [variable for variable in variables if env.get(variable)]
    for variable in named:
        place = Path(env[variable])
        seen = _in_folder(place, faults)
        if not seen:
            faults.append(f"{variable}={place}: no ROCm is there")
        found += seen
    for folder in site_packages:
        found += _packages(folder, faults)
    # who names a ROCm means that one, and not another that happens to be in /opt
    for place in () if named else _system_places(root, platform):
        found += _in_folder(place, faults)
    unique: dict[Path, RocmFound] = {}
    for one in found:
        unique.setdefault(Path(one.path).resolve(), one)
    return tuple(unique.values()), tuple(faults)


def _system_places(root: Path, platform: str) -> Iterator[Path]:
    """Yield where installers put ROCm: the usual link, versions side by side, a system's own."""
    if platform == "win32":
        yield from _newest_first((root / _WINDOWS).glob("[0-9]*"))
        return
    yield root / _SYSTEM
    yield from _newest_first((root / "opt").glob("rocm-[0-9]*"))
    yield root / _PACKAGED


def _newest_first(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)], reverse=True)


def _in_folder(place: Path, faults: list[str]) -> list[RocmFound]:
    """Return what one folder states, by its most trustworthy file."""
    info = place / ".info" / "version"
    text = _read(info, faults)
    if text and (found := _found(text.strip(), "info", info, place, faults)):
        return [found]
    for name, macro in _HEADERS.items():
        header = _read(place / name, faults)
        if not header:
            continue
        numbers = [re.search(rf"#define\s+{macro}_VERSION_{part}\s+(\d+)", header) for part in _PARTS]
        if numbers[0] and numbers[1]:
            return [RocmFound(".".join(one[1] for one in numbers if one), "header", str(place))]
        faults.append(f"{place / name} does not state a version")
    return []


def _packages(folder: Path, faults: list[str]) -> list[RocmFound]:
    """Return the ROCm that is installed as Python packages: by the metadata, else by the files themselves."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    stated = [(found[1] == "rocm", found[2]) for name in names if (found := _DIST_INFO.fullmatch(name))]
    versions = list(dict.fromkeys(version for _, version in sorted(stated)))  # the core's own word first
    core = folder / "_rocm_sdk_core"
    if len(versions) > 1:
        faults.append(f"{folder}: ROCm packages of several versions: {', '.join(versions)}")
    if versions:
        one = _found(versions[0], "pip", folder, core if core.is_dir() else folder, faults)
        return [one] if one else []
    return [RocmFound(one.version, "pip", one.path) for one in _in_folder(core, faults)]


def _found(text: str, source: str, file: Path, place: Path, faults: list[str]) -> RocmFound | None:
    try:
        major_minor(text)
    except ValueError as cause:
        faults.append(f"{file}: {cause}")
        return None
    return RocmFound(text, source, str(place))


def _read(path: Path, faults: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as cause:
        faults.append(f"{path} cannot be read: {cause.strerror}")
        return ""
