"""What ROCm on this machine says of its version and its GPUs: files, rocminfo.

It runs without the variables that hide GPUs or let them pose as others: those are applied later, so
that hidden GPUs are known too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .gpu import Gpu, RocmInstallation, is_chip_name
from .pci import make_amd_gpu
from .pci_bus import format_slot
from .programs import Look
from .variables import ROCM_VARIABLE, ForcedHardware, parse_major_minor, read_forced_hardware

_VARIABLES = ("ROCM_PATH", "ROCM_HOME")
_WINDOWS_VARIABLES = ("HIP_PATH",)  # on Linux it named a part of ROCm, long ago
_SYSTEM_FOLDER = "opt/rocm"
_WINDOWS_FOLDER = "Program Files/AMD/ROCm"
_PACKAGED_FOLDER = "usr"  # where Debian and Fedora put their own
_VERSION_PARTS = ("MAJOR", "MINOR", "PATCH")
_DIST_INFO = re.compile(r"(rocm_sdk_core|rocm)-([0-9][^-]*)\.dist-info", re.IGNORECASE)
_HEADERS = {  # the macros that a header states the version with
    "include/rocm-core/rocm_version.h": "ROCM",
    "include/rocm_version.h": "ROCM",
    "include/hip/hip_version.h": "HIP",
}


def find_rocm_installations(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = "linux",
    site_packages: Sequence[Path] = (),
    forced: ForcedHardware | None = None,
) -> tuple[tuple[RocmInstallation, ...], tuple[str, ...]]:
    """Return every ROCm that is found, the one that counts first, and what could not be read.

    Stated by a variable, it is the only one. Otherwise the one that ``ROCM_PATH`` (``ROCM_HOME``; on Windows
    ``HIP_PATH``) names, then the Python packages in ``site_packages``, then ``/opt/rocm``, its neighbours,
    newest first, and what the system packages. ValueError for a variable that cannot be read.
    """
    forced = forced if forced is not None else read_forced_hardware(env)
    if forced.rocm is not None:
        return tuple(RocmInstallation(version, "forced", ROCM_VARIABLE) for version in forced.rocm), ()
    faults: list[str] = []
    installations: list[RocmInstallation] = []
    variables = (*_VARIABLES, *(_WINDOWS_VARIABLES if platform == "win32" else ()))
    set_variables = [variable for variable in variables if env.get(variable)]
    for variable in set_variables:
        path = Path(env[variable])
        in_place = _read_rocm_folder(path, faults)
        if not in_place:
            faults.append(f"{variable}={path}: no ROCm is there")
        installations += in_place
    for folder in site_packages:
        installations += _read_rocm_packages(folder, faults)
    # who names a ROCm means that one, and not another that happens to be in /opt
    for path in () if set_variables else _list_system_folders(root, platform):
        installations += _read_rocm_folder(path, faults)
    unique: dict[Path, RocmInstallation] = {}
    for installation in installations:
        unique.setdefault(Path(installation.path).resolve(), installation)
    return tuple(unique.values()), tuple(faults)


def _list_system_folders(root: Path, platform: str) -> Iterator[Path]:
    """Yield where installers put ROCm: the usual link, versions side by side, a system's own."""
    if platform == "win32":
        yield from _sort_newest_first((root / _WINDOWS_FOLDER).glob("[0-9]*"))
        return
    yield root / _SYSTEM_FOLDER
    yield from _sort_newest_first((root / "opt").glob("rocm-[0-9]*"))
    yield root / _PACKAGED_FOLDER


def _sort_newest_first(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)], reverse=True)


def _read_rocm_folder(folder: Path, faults: list[str]) -> list[RocmInstallation]:
    """Return what one folder states, by its most trustworthy file."""
    info = folder / ".info" / "version"
    text = _read_text(info, faults)
    if text and (rocm := _make_installation(text.strip(), "info", info, folder, faults)):
        return [rocm]
    for name, macro in _HEADERS.items():
        header = _read_text(folder / name, faults)
        if not header:
            continue
        numbers = [re.search(rf"#define\s+{macro}_VERSION_{part}\s+(\d+)", header) for part in _VERSION_PARTS]
        if numbers[0] and numbers[1]:
            return [
                RocmInstallation(".".join(number[1] for number in numbers if number), "header", str(folder))
            ]
        faults.append(f"{folder / name} does not state a version")
    return []


def _read_rocm_packages(folder: Path, faults: list[str]) -> list[RocmInstallation]:
    """Return the ROCm that is installed as Python packages: by the metadata, else by the files themselves."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    matches = [(match[1] == "rocm", match[2]) for name in names if (match := _DIST_INFO.fullmatch(name))]
    versions = list(dict.fromkeys(version for _, version in sorted(matches)))  # the core's own word first
    core = folder / "_rocm_sdk_core"
    if len(versions) > 1:
        faults.append(f"{folder}: ROCm packages of several versions: {', '.join(versions)}")
    if versions:
        rocm = _make_installation(versions[0], "pip", folder, core if core.is_dir() else folder, faults)
        return [rocm] if rocm else []
    return [RocmInstallation(rocm.version, "pip", rocm.path) for rocm in _read_rocm_folder(core, faults)]


def _make_installation(
    text: str, source: str, file: Path, folder: Path, faults: list[str]
) -> RocmInstallation | None:
    try:
        parse_major_minor(text)
    except ValueError as cause:
        faults.append(f"{file}: {cause}")
        return None
    return RocmInstallation(text, source, str(folder))


def _read_text(path: Path, faults: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as cause:
        faults.append(f"{path} cannot be read: {cause.strerror}")
        return ""


_HIDING_VARIABLES = ("_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HSA_OVERRIDE_GFX_VERSION", "ROCM_TARGET_LST")
_TIMEOUT = 10.0  # seconds
# of an agent itself: two blanks deep, before its lists
_AGENT_FIELD = re.compile(r"^ {2}(\S[^:\n]*):+ *(.*?) *$", re.MULTILINE)
_AGENT_HEADER = re.compile(r"^\*{3,}\s*\nAgent \d+\s*\n\*{3,}\s*$", re.MULTILINE)


class ToolOutputError(Exception):
    """What a tool printed is not what it prints."""


def query_rocminfo(look: Look) -> list[Gpu]:
    """Return the GPUs that rocminfo names.

    Where it says nothing, ROCm's other tools do not either: they read the kernel's files, as we did before.
    """
    env = {
        name: text for name, text in look.env.items() if not any(word in name for word in _HIDING_VARIABLES)
    }
    # few put ROCm's folder into PATH
    folders = [env.get("PATH", os.defpath), *([f"{env['ROCM_PATH']}/bin"] if env.get("ROCM_PATH") else [])]
    env |= {"LC_ALL": "C", "PATH": os.pathsep.join([*folders, "/opt/rocm/bin"])}
    answer = look.run(("rocminfo",), env, _TIMEOUT)
    if not answer.installed:
        look.tried.append("rocminfo: not installed")
        return []
    try:
        gpus = parse_rocminfo(answer.out)  # some print all they know, and fail then
        look.tried.append(f"rocminfo: {len(gpus)} AMD GPUs")
        look.faults += [answer.fault] if answer.fault else []
    except ToolOutputError as cause:
        look.tried.append("rocminfo: no answer")
        look.faults.append(answer.fault or str(cause))
        return []
    return gpus


def parse_rocminfo(text: str) -> list[Gpu]:
    """Read what rocminfo prints. ToolOutputError when that is no list of agents.

    An agent lists the generic targets that its code may be compiled for as further ISAs, deeper in the text:
    only the agent's own name counts.
    """
    parts = _AGENT_HEADER.split(text)
    if len(parts) < 2:
        last = (text.strip().splitlines() or ["nothing"])[-1].strip()
        raise ToolOutputError(f"rocminfo printed no agents, but {last!r}")
    agents = ({name: value for name, value in _AGENT_FIELD.findall(part) if value} for part in parts[1:])
    gpus = [fields for fields in agents if fields.get("Device Type") == "GPU"]
    return [_make_agent_gpu(fields, index) for index, fields in enumerate(gpus)]


def _make_agent_gpu(fields: Mapping[str, str], index: int) -> Gpu:
    numbers = {name: int(match[0]) for name, text in fields.items() if (match := re.match(r"\d+", text))}
    chip = fields.get("Name", "").split(":")[0]
    device = re.search(r"\(0x([0-9a-f]+)\)", fields.get("Chip ID", ""))
    location, uuid = numbers.get("BDFID"), fields.get("Uuid", "")
    return make_amd_gpu(
        chip if is_chip_name(chip) else None,
        "rocminfo",
        index=index,
        name=fields.get("Marketing Name", ""),
        pci_id=f"1002:{int(device[1], 16):04x}" if device else None,
        address=None if location is None else format_slot(numbers.get("Domain", 0), location),
        uuid=uuid if re.fullmatch(r"GPU-[0-9a-fA-F]{16}", uuid) else None,
        integrated=True if fields.get("Memory Properties") == "APU" else None,
        simd_count=numbers.get("Compute Unit", 0) * numbers.get("SIMDs per CU", 0) or None,
    )
