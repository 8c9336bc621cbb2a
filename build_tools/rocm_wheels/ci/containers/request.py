"""From what was asked for to a request: the folders, variables and devices of this machine."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.ci.containers.command import GROUP_OF, Request
from rocm_wheels.ci.containers.images import choose_image
from rocm_wheels.ci.containers.machine import Device, Machine, gpu_devices, gpu_devices_elsewhere
from rocm_wheels.ci.containers.mounts import all_mounts, read_mounts
from rocm_wheels.ci.containers.variables import (
    Variable,
    asked_for,
    certificate_paths,
    own_proxies,
    passed_on,
)
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.model.containers import container_table
from rocm_wheels.shell import shell_line

CHECKOUT = "ROCM_WHEELS_CHECKOUT"  # what rocm-wheels of our images is started from
_SIZE = re.compile(r"[1-9][0-9]*[bkmgBKMG]?")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=,/-]*")
# below the cache; HOME, because a number without a name has none, and caches of pip, uv and ccache
_FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "cache",
    "CCACHE_DIR": "ccache",
    "UV_CACHE_DIR": "uv",
    "PIP_CACHE_DIR": "pip",
}


@dataclass(frozen=True)
class Asked:
    """What options say. ``tty``: there is a terminal on both ends.

    ``for_any_machine``: the line is shown, and may be run on another machine that has the GPUs.
    """

    image: str
    command: tuple[str, ...]
    here: Path
    cache: Path
    clone: Path | None
    mounts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    gpu: bool = False
    shared_memory: str | None = None
    network: str | None = None
    stdin: bool = False
    tty: bool = False
    for_any_machine: bool = False
    allow_unresolved: bool = False


def request_of(asked: Asked, machine: Machine, env: Mapping[str, str], root: Path = Path("/")) -> Request:
    """Return the request. Raises the errors of what cannot be had, before anything is started or made."""
    image = choose_image(
        asked.image, container_table().images, asked.clone, allow_unresolved=asked.allow_unresolved
    )
    _check_words(asked)
    if machine.uid == 0 and env.get("SUDO_UID", "0") != "0":
        log.warn(
            "by sudo you are root: what the command writes will be root's; a user of the group docker, or of"
            " podman, keeps files"
        )
    given = asked_for(asked.variables, env)
    if asked.network is None and (local := own_proxies(env)):
        log.warn(f"{local[0]} is a proxy on this machine, which a container reaches with --network host only")
    mounts = all_mounts(
        asked.clone, asked.here, asked.cache, read_mounts(asked.mounts), certificate_paths(env)
    )
    set_here = {one.name: one for one in (*passed_on(env, tty=asked.tty), *_own(asked, machine), *given)}
    return Request(
        image=image,
        command=asked.command,
        name=f"rocm-wheels-{secrets.token_hex(4)}",
        folder=asked.here,
        mounts=mounts,
        variables=tuple(set_here.values()),
        gpu=_gpus(asked, machine, root) if asked.gpu else (),
        shared_memory=asked.shared_memory,
        network=asked.network,
        stdin=asked.stdin,
        tty=asked.tty,
    )


def _gpus(asked: Asked, machine: Machine, root: Path) -> tuple[Device, ...]:
    try:
        return gpu_devices(root)
    except HostError as missing:
        if not asked.for_any_machine:
            raise
        asks = ", and asks there who owns them" if machine.uid else ""
        log.warn(f"{missing.message}; the line is for a machine that has GPUs{asks}")
        return gpu_devices_elsewhere()


def _check_words(asked: Asked) -> None:
    """Refuse what engines would refuse, with a page of their help."""
    if asked.shared_memory is not None and not _SIZE.fullmatch(asked.shared_memory):
        raise UsageError(
            f"--shm-size {asked.shared_memory!r} is no size", tip="a number and a unit: 16g, 512m"
        )
    if asked.network is not None and not _NETWORK.fullmatch(asked.network):
        raise UsageError(
            f"--network {asked.network!r} is no name of a network", tip="none, host, bridge, a name"
        )
    if asked.cache.exists() and not asked.cache.is_dir():
        raise UsageError(f"--cache {asked.cache} is no folder")


def folders_of(cache: Path) -> list[Path]:
    """Return the folders that must be there before a container is: an engine would make them as root."""
    return [cache / name for name in _FOLDERS.values()]


def pasteable(argv: list[str], cache: Path) -> str:
    """Return the command for a shell; the folders that are missing are made first."""
    if shell_line(argv) != shlex.join(argv):
        log.warn("the line has *** in place of a secret, and does something else until that is put in")
    missing = [shlex.quote(str(one)) for one in folders_of(cache) if not one.is_dir()]
    made = f"mkdir -p {' '.join(missing)} && " if missing else ""
    return f"{made}{asking_there(shell_line(argv))}"


def asking_there(line: str) -> str:
    """Return a line for a shell that finds out where it is run what nobody could know here."""
    return re.sub(rf"(--group-add ){GROUP_OF}(/dev/\S+)", r'\1"$(stat -c %g \2)"', line)


def _own(asked: Asked, machine: Machine) -> list[Variable]:
    found = [Variable(name, str(asked.cache / folder)) for name, folder in _FOLDERS.items()]
    found += [Variable(name, machine.user) for name in ("USER", "LOGNAME")]
    if asked.clone is not None:
        found.append(Variable(CHECKOUT, str(asked.clone)))
    return found
