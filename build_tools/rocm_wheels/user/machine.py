"""Read the facts of a system that ROCm depends on, and hold what the doctor checks: its subject and findings.

Facts are read from files below a root: nothing is started. Devices are opened, as the runtime would: modes
and groups explain a refusal, they do not foretell one (access lists, the device rules of a container).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.core import shell
from rocm_wheels.gpus.gpu import Hardware, format_stated_target
from rocm_wheels.user import installed_packages

if TYPE_CHECKING:
    from rocm_wheels.user import install_options

_AMD_VENDOR = "0x1002"
_DISPLAY_CLASSES = ("0x03", "0x12")  # PCI classes: display controllers, processing accelerators (Instinct)
_CGROUP_CONTAINERS = (("docker", "docker"), ("libpod", "podman"), ("kubepods", "kubernetes"), ("/lxc", "lxc"))
_BLACKLIST_LINE = re.compile(r"^\s*(blacklist\s+amdgpu|install\s+amdgpu\s+/bin/(true|false))\b", re.MULTILINE)


@dataclass(frozen=True)
class DeviceFile:
    """A device: ``refused`` is the number of the error of opening it, 0 when it opened, None: not there."""

    path: Path
    refused: int | None = None
    mode: int = 0
    uid: int = 0
    gid: int = 0

    @property
    def usable(self) -> bool:
        """Tell whether it could be opened for reading and writing."""
        return self.refused == 0


@dataclass(frozen=True)
class PciBusGpu:
    """An AMD GPU on the PCI bus: ``driver`` is the kernel driver that has it, "" when none has."""

    address: str
    pci_id: str
    driver: str


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
    kernel's amdgpu; ``blacklisted`` has the files that keep it from being loaded. ``group_names`` and
    ``members`` are /etc/group's. ``shared_memory`` is the size of /dev/shm and ``locked_memory``
    the limit of memory that may be locked, in bytes (None: unlimited, or not known). ``home`` says whether
    the home folder can be written to.
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
    amd_devices: tuple[PciBusGpu, ...] = ()
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
    kernel = _read_text(root / "proc/version").strip()
    wsl = "microsoft" in kernel.lower()
    names, members = _parse_groups(_read_text(root / "etc/group"))
    trying = opening or open_device
    return MachineFacts(
        platform=platform,
        kernel=kernel,
        command_line=_read_text(root / "proc/cmdline").strip(),
        container=_detect_container(root, env),
        wsl=wsl,
        dxg=_probe_device(root, "dev/dxg", trying) if wsl else None,
        driver_loaded=(root / "sys/module/amdgpu").is_dir(),
        driver_version=_read_text(root / "sys/module/amdgpu/version").strip(),
        blacklisted=_find_blacklists(root),
        amd_devices=tuple(_list_pci_gpus(root)),
        kfd=_probe_device(root, "dev/kfd", trying),
        render=tuple(_probe_device(root, f"dev/dri/{name}", trying) for name in _list_render_nodes(root)),
        user=user or _read_process_user(env),
        group_names=names,
        members=members,
        numa_balancing=_read_text(root / "proc/sys/kernel/numa_balancing").strip() == "1",
        hypervisor=bool(
            re.search(r"^flags\s*:.*\bhypervisor\b", _read_text(root / "proc/cpuinfo"), re.MULTILINE)
        ),
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
    return DeviceFile(public_path, opening(path), status.st_mode & 0o777, status.st_uid, status.st_gid)


def _list_render_nodes(root: Path) -> list[str]:
    """Return the render nodes of AMD GPUs that the kernel lists, whether their files are there or not."""
    nodes = sorted((root / "sys/class/drm").glob("renderD*"))
    vendors = {node.name: _read_text(node / "device/vendor").strip() for node in nodes}
    amd = [name for name, vendor in vendors.items() if vendor == _AMD_VENDOR]
    present = sorted(path.name for path in (root / "dev/dri").glob("renderD*"))
    return sorted({*amd, *(name for name in present if name not in vendors)})


def _list_pci_gpus(root: Path) -> Iterator[PciBusGpu]:
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _read_text(folder / "vendor").strip() != _AMD_VENDOR:
            continue
        if not _read_text(folder / "class").strip().startswith(_DISPLAY_CLASSES):
            continue
        driver = folder / "driver"
        name = driver.readlink().name if driver.is_symlink() else ""
        device = _read_text(folder / "device").strip().removeprefix("0x")
        yield PciBusGpu(folder.name, f"1002:{device}", name)


def _detect_container(root: Path, env: Mapping[str, str]) -> str:
    if (root / ".dockerenv").exists():
        return "kubernetes" if env.get("KUBERNETES_SERVICE_HOST") else "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".singularity.d").exists():
        return "apptainer"
    if env.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    cgroups = _read_text(root / "proc/1/cgroup") + _read_text(root / "proc/self/cgroup")
    container = next((kind for word, kind in _CGROUP_CONTAINERS if word in cgroups), "")
    return container or (
        env.get("container", "") if env.get("container") in {"lxc", "podman", "docker"} else ""
    )


def _find_blacklists(root: Path) -> tuple[str, ...]:
    files = [
        file for folder in ("etc/modprobe.d", "lib/modprobe.d") for file in (root / folder).glob("*.conf")
    ]
    blacklists = [
        f"/{file.relative_to(root)}" for file in sorted(files) if _BLACKLIST_LINE.search(_read_text(file))
    ]
    line = _read_text(root / "proc/cmdline")
    if re.search(r"modprobe\.blacklist=\S*\bamdgpu\b|\bmodule_blacklist=\S*\bamdgpu\b", line):
        blacklists.append("/proc/cmdline")
    return tuple(blacklists)


def _parse_groups(text: str) -> tuple[dict[int, str], dict[str, frozenset[str]]]:
    names: dict[int, str] = {}
    members: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2].isdigit():
            names.setdefault(int(fields[2]), fields[0])
            members[fields[0]] = frozenset(user for user in fields[3].split(",") if user)
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


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class DoctorSubject:
    """A machine, a Python on it, and the environment of the process.

    ``stated`` says that the GPUs are those of a machine to be: nothing of this one's devices counts.
    ``python`` is what the user named to look at, None for the active or running one; ``is_own`` says that
    this is the environment of rocm-wheels itself, which nothing is installed into by itself.
    """

    hardware: Hardware
    installed: installed_packages.InstalledSet
    machine: MachineFacts
    env: Mapping[str, str] = field(default_factory=dict)
    stated: bool = False
    python: Path | None = None
    is_own: bool = False

    @property
    def has_amd(self) -> bool:
        """Tell whether anything says that there is an AMD GPU here."""
        on_bus = bool(self.machine.amd_devices) and not self.stated
        return on_bus or any(gpu.vendor == "amd" for gpu in self.hardware.gpus)

    @property
    def uses_xnack(self) -> bool:
        """Tell whether a process started here runs with XNACK."""
        return self.env.get("HSA_XNACK") == "1"

    def make_pip_line(self, *words: str) -> str:
        """Return a line that lets pip do something in the environment that was looked at; uv, without pip."""
        python = self.installed.environment.python
        if not any((folder / "pip").is_dir() for folder in self.installed.environment.path):
            arguments = [word for word in words if word != "-y"]  # uv does not ask
            return shell.format_command(["uv", "pip", arguments[0], "--python", python, *arguments[1:]])
        return shell.format_command([*(["pip"] if self.python is None else [python, "-m", "pip"]), *words])

    def make_rocm_pip_line(self, requirement: str, version: str) -> str:
        """Return the line that lets pip install one of ROCm's packages from AMD's index.

        Where none is known, that which installs torch with what it requires: PyPI has other packages under
        some of these names, or none, and another torch.
        """
        from rocm_wheels.models import package_indexes

        channel = "nightly" if re.search(r"[0-9]a[0-9]|dev", version) else "stable"
        platform = "windows" if self.machine.platform == "win32" else "linux"
        gfx = next(iter(self.hardware.targets), None)
        indexes = package_indexes.find_indexes(
            gfx, platform=platform, channel="prerelease" if "rc" in version else channel
        )
        index = next((candidate.url for candidate in indexes if candidate.layout == "multi-arch"), None)
        return (
            self.make_pip_line("install", requirement, "--index-url", index)
            if index
            else self.make_install_line("torch")
        )

    def make_reinstall_line(self, project: str) -> str:
        """Return the line that takes a project away and installs it anew: not from PyPI, as pip would."""
        return (
            self.make_pip_line("uninstall", "-y", project)
            + " && "
            + self.make_install_line(*dict.fromkeys(["torch", project]))
        )

    def make_replace_torch_line(self) -> str:
        """Return the line that takes torch and its companions away and installs those for this machine.

        Where no index has a torch for its GPUs, what people do with such a card: ``install`` gives none.
        """
        from rocm_wheels.models.project import list_default_packages

        removed = [package for package in list_default_packages() if self.installed.get(package)]
        removed += [package.name for package in self.installed.tritons]
        install = self.make_torch_line()
        if self.has_no_torch or not removed:
            return install
        return self.make_pip_line("uninstall", "-y", *removed) + " && " + install

    def make_torch_line(self, *projects: str) -> str:
        """Return the line that installs torch (and its companions, or ``projects``) for this machine's GPUs.

        From the channel, and with the Python, that have one; else what people do.
        """
        from rocm_wheels.models.project import list_default_packages
        from rocm_wheels.user import install_options

        names = projects or list_default_packages()
        python = self.installed.environment.minor
        option = next(
            (install_options.pick_option(ways, python) for ways in self._install_options.values() if ways),
            None,
        )
        if option is None:
            targets = list(self._install_options)
            if not targets:
                return self.make_install_line(*names)
            return install_options.explain_no_torch(targets[0])[1]
        if option.is_default and option.fits(python):
            return self.make_install_line(*names)
        return option.format_install(python, names, gfx=self._stated_gfx, place=self._place)

    @property
    def has_no_torch(self) -> bool:
        """Tell whether no index that is known has a torch for any AMD GPU of this machine."""
        return bool(self._install_options) and not any(self._install_options.values())

    def describe_no_torch(self) -> str:
        """Say that no index has a torch for the GPUs."""
        from rocm_wheels.user import install_options

        return "; ".join(install_options.explain_no_torch(gfx)[0] for gfx in self._install_options)

    @cached_property
    def _install_options(self) -> dict[str, list[install_options.InstallOption]]:
        """The ways to a torch for each AMD GPU whose target is known."""
        from rocm_wheels.user import install_options

        platform = "windows" if self.machine.platform == "win32" else "linux"
        return {
            gfx: install_options.list_install_options(gfx, platform=platform) for gfx in self.hardware.targets
        }

    @property
    def _stated_gfx(self) -> str:
        return ",".join(map(format_stated_target, self.hardware.targets)) if self.stated else ""

    @property
    def machine_name(self) -> str:
        """Name the machine that findings are about."""
        return "that machine" if self.stated else "this machine"

    def make_install_line(self, *projects: str) -> str:
        """Return the line that installs projects for this machine's GPUs."""
        gfx = ["--gfx", self._stated_gfx] if self._stated_gfx else []
        return shell.format_command(["rocm-wheels", "install", *projects, *self._place, *gfx])

    @property
    def _place(self) -> list[str]:
        """Return the words that name the environment to install into."""
        environment = self.installed.environment
        if self.python or (self.is_own and self.installed.torch):
            return ["--python", str(environment.python)]
        if not self.is_own:
            return []
        return ["--venv", "my-torch" if Path(".venv").resolve() == environment.prefix.resolve() else ".venv"]


def join_some(names: list[str], most: int = 6) -> str:
    """Return names as a list for people, cut where it grows long."""
    listed = names[:most]
    return ", ".join(listed) + (f" and {len(names) - most} more" if len(names) > most else "")
