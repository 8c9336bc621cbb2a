"""Read the facts of a system that ROCm depends on.

Facts are read from files below a root: nothing is started. Devices are opened, as the runtime would: modes
and groups explain a refusal, they do not foretell one (access lists, the device rules of a container).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.gpus import pci_bus
from rocm_wheels.gpus.programs import read_text

# what the cgroups of a process are called in a container, where nothing else says so
_CGROUP_CONTAINERS = (("docker", "docker"), ("libpod", "podman"), ("kubepods", "kubernetes"), ("/lxc", "lxc"))
_BLACKLIST_LINE = re.compile(r"^\s*(blacklist\s+amdgpu|install\s+amdgpu\s+/bin/(true|false))\b", re.MULTILINE)
_BLACKLIST_OPTION = re.compile(r"modprobe\.blacklist=\S*\bamdgpu\b|\bmodule_blacklist=\S*\bamdgpu\b")
_HYPERVISOR_FLAG = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)


@dataclass(frozen=True)
class DeviceFile:
    """A device: ``refused`` is the number of the error of opening it, 0 when it opened, None: not there."""

    path: Path
    refused: int | None = None
    mode: int = 0
    gid: int = 0


@dataclass(frozen=True)
class ProcessUser:
    """Who is asking: ``groups`` are the numbers of the process's groups."""

    name: str
    uid: int
    groups: frozenset[int]


@dataclass(frozen=True)
class MachineFacts:
    """What was read. ``platform`` is ``sys.platform``'s word.

    ``container`` names its kind, "" outside of one. ``driver_loaded`` and ``driver_version`` are about the
    kernel's amdgpu; ``blacklisted`` has the files that keep it from being loaded. ``amd_cards`` are those of
    the PCI bus. ``dxg`` is None outside of WSL. ``group_names`` and ``members`` are /etc/group's.
    ``shared_memory`` is the size of /dev/shm and ``locked_memory`` the limit of memory that may be locked, in
    bytes (None: unlimited, or not known). ``home_writable`` says whether the home folder can be written to.
    """

    platform: str
    kernel: str = ""
    command_line: str = ""
    container: str = ""
    wsl: bool = False
    dxg: DeviceFile | None = None
    driver_loaded: bool = False
    driver_version: str = ""
    blacklisted: tuple[str, ...] = ()
    amd_cards: tuple[pci_bus.PciCard, ...] = ()
    kfd: DeviceFile = field(default_factory=lambda: DeviceFile(Path("/dev/kfd")))
    render: tuple[DeviceFile, ...] = ()
    user: ProcessUser = field(default_factory=lambda: ProcessUser("", 0, frozenset()))
    group_names: Mapping[int, str] = field(default_factory=dict)
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    numa_balancing: bool = False
    hypervisor: bool = False
    shared_memory: int | None = None
    locked_memory: int | None = None
    home: Path | None = None
    home_writable: bool = True


DeviceOpener = Callable[[Path], int]


def read_machine_facts(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    platform: str = sys.platform,
    user: ProcessUser | None = None,
    opening: DeviceOpener | None = None,
) -> MachineFacts:
    """Read a machine; what is not there is left out. Of another system than Linux, little is known."""
    home = Path(env["HOME"]) if env.get("HOME") else None
    writable = home is None or (home.is_dir() and os.access(home, os.W_OK))
    if not platform.startswith("linux"):
        return MachineFacts(platform, home=home, home_writable=writable)

    def read(name: str) -> str:
        return read_text(root / name)

    def probe(name: str) -> DeviceFile:
        return _probe_device(root, name, opening or open_device)

    kernel = read("proc/version")
    wsl = "microsoft" in kernel.lower()
    names, members = _parse_groups(read("etc/group"))
    return MachineFacts(
        platform=platform,
        kernel=kernel,
        command_line=read("proc/cmdline"),
        container=_detect_container(root, env),
        wsl=wsl,
        dxg=probe("dev/dxg") if wsl else None,
        driver_loaded=(root / "sys/module/amdgpu").is_dir(),
        driver_version=read("sys/module/amdgpu/version"),
        blacklisted=_find_blacklists(root),
        amd_cards=tuple(card for card in pci_bus.read_pci_cards(root)[0] if card.vendor == "amd"),
        kfd=probe("dev/kfd"),
        render=tuple(probe(f"dev/dri/{name}") for name in _list_render_nodes(root)),
        user=user or _read_process_user(env),
        group_names=names,
        members=members,
        numa_balancing=read("proc/sys/kernel/numa_balancing") == "1",
        hypervisor=_HYPERVISOR_FLAG.search(read("proc/cpuinfo")) is not None,
        shared_memory=_measure_shared_memory(root),
        locked_memory=_read_lock_limit(),
        home=home,
        home_writable=writable,
    )


def open_device(path: Path) -> int:
    """Open a device for reading and writing and close it; return the number of the error, 0 without."""
    try:
        os.close(os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)))
    except OSError as refusal:
        return refusal.errno or -1
    return 0


def _probe_device(root: Path, name: str, opening: DeviceOpener) -> DeviceFile:
    public_path, path = Path("/") / name, root / name
    try:
        status = path.stat()
    except FileNotFoundError:
        return DeviceFile(public_path)
    except OSError as refusal:
        return DeviceFile(public_path, refusal.errno)
    return DeviceFile(public_path, opening(path), status.st_mode & 0o777, status.st_gid)


def _list_render_nodes(root: Path) -> list[str]:
    """Return the render nodes of AMD GPUs that the kernel lists, whether their files are there or not."""
    nodes = (root / "sys/class/drm").glob("renderD*")
    vendors = {node.name: read_text(node / "device/vendor") for node in nodes}
    present = {path.name for path in (root / "dev/dri").glob("renderD*")}
    return sorted(name for name in {*vendors, *present} if vendors.get(name, "0x1002") == "0x1002")


def _detect_container(root: Path, env: Mapping[str, str]) -> str:
    if (root / ".dockerenv").exists():
        return "kubernetes" if env.get("KUBERNETES_SERVICE_HOST") else "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".singularity.d").exists():
        return "apptainer"
    if env.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    cgroups = read_text(root / "proc/1/cgroup") + read_text(root / "proc/self/cgroup")
    stated = env.get("container", "")
    containers = [kind for word, kind in _CGROUP_CONTAINERS if word in cgroups]
    return containers[0] if containers else stated if stated in {"lxc", "podman", "docker"} else ""


def _find_blacklists(root: Path) -> tuple[str, ...]:
    folders = (root / "etc/modprobe.d", root / "lib/modprobe.d")
    files = sorted(file for folder in folders for file in folder.glob("*.conf"))
    blacklists = [f"/{file.relative_to(root)}" for file in files if _BLACKLIST_LINE.search(read_text(file))]
    if _BLACKLIST_OPTION.search(read_text(root / "proc/cmdline")):
        blacklists.append("/proc/cmdline")
    return tuple(blacklists)


def _parse_groups(text: str) -> tuple[dict[int, str], dict[str, frozenset[str]]]:
    names: dict[int, str] = {}
    members: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2].isdigit():
            names.setdefault(int(fields[2]), fields[0])
            members[fields[0]] = frozenset(filter(None, fields[3].split(",")))
    return names, members


def _read_process_user(env: Mapping[str, str]) -> ProcessUser:
    if not hasattr(os, "getgroups"):
        return ProcessUser(env.get("USERNAME", ""), 0, frozenset())
    name = env.get("USER") or env.get("LOGNAME") or str(os.getuid())
    return ProcessUser(name, os.geteuid(), frozenset([os.getegid(), *os.getgroups()]))


def _measure_shared_memory(root: Path) -> int | None:
    try:
        statistics = os.statvfs(root / "dev/shm")
    except (OSError, AttributeError):
        return None
    return statistics.f_frsize * statistics.f_blocks


def _read_lock_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
