"""From what was asked for to a request: the folders, variables and devices of this machine."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.ci.containers.command import GROUP_PLACEHOLDER, ContainerRequest
from rocm_wheels.ci.containers.images import choose_image
from rocm_wheels.ci.containers.machine import GpuDevice, ContainerHost, find_gpu_devices, assume_gpu_devices
from rocm_wheels.ci.containers.mounts import collect_mounts, parse_mounts
from rocm_wheels.ci.containers.variables import (
    ContainerVariable,
    parse_variables,
    find_certificate_paths,
    find_local_proxies,
    select_passed_variables,
)
from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.model.containers import load_container_table
from rocm_wheels.shell import format_command

CHECKOUT_VARIABLE = "ROCM_WHEELS_CHECKOUT"  # what rocm-wheels of our images is started from
_SHM_SIZE = re.compile(r"[1-9][0-9]*[bkmgBKMG]?")
_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=,/-]*")
# below the cache; HOME, because a number without a name has none, and caches of pip, uv and ccache
_CACHE_FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "cache",
    "CCACHE_DIR": "ccache",
    "UV_CACHE_DIR": "uv",
    "PIP_CACHE_DIR": "pip",
}


@dataclass(frozen=True)
class ContainerOptions:
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


def make_container_request(
    options: ContainerOptions, machine: ContainerHost, env: Mapping[str, str], root: Path = Path("/")
) -> ContainerRequest:
    """Return the request. Raises the errors of what cannot be had, before anything is started or made."""
    image = choose_image(
        options.image, load_container_table().images, options.clone, allow_unresolved=options.allow_unresolved
    )
    _check_options(options)
    if machine.uid == 0 and env.get("SUDO_UID", "0") != "0":
        log.log_warning(
            "by sudo you are root: what the command writes will be root's; a user of the group docker, or of"
            " podman, keeps files"
        )
    extra_variables = parse_variables(options.variables, env)
    if options.network is None and (local := find_local_proxies(env)):
        log.log_warning(
            f"{local[0]} is a proxy on this machine, which a container reaches with --network host only"
        )
    mounts = collect_mounts(
        options.clone, options.here, options.cache, parse_mounts(options.mounts), find_certificate_paths(env)
    )
    set_here = {
        variable.name: variable
        for variable in (
            *select_passed_variables(env, tty=options.tty),
            *_make_own_variables(options, machine),
            *extra_variables,
        )
    }
    return ContainerRequest(
        image=image,
        command=options.command,
        name=f"rocm-wheels-{secrets.token_hex(4)}",
        folder=options.here,
        mounts=mounts,
        variables=tuple(set_here.values()),
        gpu=_find_gpus(options, machine, root) if options.gpu else (),
        shared_memory=options.shared_memory,
        network=options.network,
        stdin=options.stdin,
        tty=options.tty,
    )


def _find_gpus(options: ContainerOptions, machine: ContainerHost, root: Path) -> tuple[GpuDevice, ...]:
    try:
        return find_gpu_devices(root)
    except HostError as missing:
        if not options.for_any_machine:
            raise
        asks = ", and asks there who owns them" if machine.uid else ""
        log.log_warning(f"{missing.message}; the line is for a machine that has GPUs{asks}")
        return assume_gpu_devices()


def _check_options(options: ContainerOptions) -> None:
    """Refuse what engines would refuse, with a page of their help."""
    if options.shared_memory is not None and not _SHM_SIZE.fullmatch(options.shared_memory):
        raise UsageError(
            f"--shm-size {options.shared_memory!r} is no size", tip="a number and a unit: 16g, 512m"
        )
    if options.network is not None and not _NETWORK_NAME.fullmatch(options.network):
        raise UsageError(
            f"--network {options.network!r} is no name of a network", tip="none, host, bridge, a name"
        )
    if options.cache.exists() and not options.cache.is_dir():
        raise UsageError(f"--cache {options.cache} is no folder")


def list_cache_folders(cache: Path) -> list[Path]:
    """Return the folders that must be there before a container is: an engine would make them as root."""
    return [cache / name for name in _CACHE_FOLDERS.values()]


def format_pasteable_line(argv: list[str], cache: Path) -> str:
    """Return the command for a shell; the folders that are missing are made first."""
    if format_command(argv) != shlex.join(argv):
        log.log_warning("the line has *** in place of a secret, and does something else until that is put in")
    missing = [shlex.quote(str(folder)) for folder in list_cache_folders(cache) if not folder.is_dir()]
    mkdir = f"mkdir -p {' '.join(missing)} && " if missing else ""
    return f"{mkdir}{resolve_groups_in_shell(format_command(argv))}"


def resolve_groups_in_shell(line: str) -> str:
    """Return a line for a shell that finds out where it is run what nobody could know here."""
    return re.sub(rf"(--group-add ){GROUP_PLACEHOLDER}(/dev/\S+)", r'\1"$(stat -c %g \2)"', line)


def _make_own_variables(options: ContainerOptions, machine: ContainerHost) -> list[ContainerVariable]:
    variables = [
        ContainerVariable(name, str(options.cache / folder)) for name, folder in _CACHE_FOLDERS.items()
    ]
    variables += [ContainerVariable(name, machine.user) for name in ("USER", "LOGNAME")]
    if options.clone is not None:
        variables.append(ContainerVariable(CHECKOUT_VARIABLE, str(options.clone)))
    return variables
