"""What of this machine a container gets to feel: the user, the GPUs' devices, limits, SELinux."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import EngineError, HostError

KFD_PATH, DRI_PATH = "dev/kfd", "dev/dri"
ASSUMED_DEVICES = ("/dev/kfd", "/dev/dri")  # a folder stands for all in it
MOST_FILES = 524288  # more makes programs slow that close every possible file before they start another


@dataclass(frozen=True)
class GpuDevice:
    """A device file. ``group`` owns it (``None``: not known here); ``everyone`` may read and write it."""

    path: str
    group: int | None
    everyone: bool


@dataclass(frozen=True)
class ContainerHost:
    """The machine that containers are to run on. ``files`` is our own hard limit of open files.

    ``uid`` and ``gid`` are ``None`` where the system has no such numbers (Windows).
    """

    uid: int | None
    gid: int | None
    user: str
    home: Path
    selinux: bool = False
    files: int = MOST_FILES


def inspect_host(env: Mapping[str, str], root: Path = Path("/")) -> ContainerHost:
    """Return the machine whose files are below ``root``. Raises EngineError where containers are no Linux."""
    if sys.platform == "win32":
        raise EngineError(
            "containers are started from Linux: paths of Windows mean nothing inside",
            tip="run this inside of WSL, where rocm-wheels and the engine are both at home",
        )
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enforce = root / "sys/fs/selinux/enforce"
    return ContainerHost(
        uid=os.getuid(),
        gid=os.getgid(),
        user=_find_user(env),
        home=Path(env.get("HOME") or Path.home()),
        selinux=enforce.is_file() and enforce.read_text(encoding="ascii").strip() == "1",
        files=MOST_FILES if files in (-1, resource.RLIM_INFINITY) else min(files, MOST_FILES),
    )


def find_gpu_devices(root: Path = Path("/")) -> tuple[GpuDevice, ...]:
    """Return the device files that ROCm opens: the compute interface and every render node, in this order.

    Raises HostError where there are none: a container without them would find no GPU.
    """
    kfd = root / KFD_PATH
    if not kfd.exists():
        raise HostError(
            "there is no /dev/kfd: no driver for AMD's GPUs is loaded here",
            tip="`rocm-wheels doctor` says what is missing; without --gpu the container starts all the same;"
            " `container print --gpu` gives the line for a machine that has GPUs",
        )
    nodes = sorted((root / DRI_PATH).glob("renderD*"), key=lambda node: (len(node.name), node.name))
    if not nodes:
        raise HostError(
            "/dev/kfd is there, and /dev/dri has no render node: no GPU is behind it",
            tip="`rocm-wheels doctor` says what is missing; in a container: it must have them, too",
        )
    return tuple(_read_device(node, root) for node in (kfd, *nodes))


def assume_gpu_devices() -> tuple[GpuDevice, ...]:
    """Return the devices of a machine that nobody has looked at."""
    return tuple(GpuDevice(path, None, everyone=False) for path in ASSUMED_DEVICES)


def _read_device(path: Path, root: Path) -> GpuDevice:
    status = path.stat()
    everyone = stat.S_IROTH | stat.S_IWOTH
    return GpuDevice(f"/{path.relative_to(root)}", status.st_gid, status.st_mode & everyone == everyone)


def _find_user(env: Mapping[str, str]) -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without a name, as on machines of a CI
        return env.get("USER") or f"user{os.getuid()}"
