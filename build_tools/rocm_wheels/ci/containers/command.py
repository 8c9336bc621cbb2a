"""The command line of an engine, word for word, and why each word is there. All of it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.ci.containers.engine import Engine
from rocm_wheels.ci.containers.images import ChosenImage
from rocm_wheels.ci.containers.machine import MOST_FILES, GpuDevice, ContainerHost
from rocm_wheels.ci.containers.mounts import ContainerMount
from rocm_wheels.ci.containers.variables import ContainerVariable
from rocm_wheels.errors import EngineError, UsageError

STOP_SECONDS = 10
GROUP_PLACEHOLDER = "group-of:"  # before a path: the group that owns it where the line is run
_ASSUMED_GROUP_OWNERS = ("/dev/kfd", "/dev/dri/renderD128")
_SOFT_FILES = 65536
_SHARED_FOLDERS = (Path("/home"), Path("/opt"), Path("/srv"), Path("/tmp"))


@dataclass(frozen=True)
class ContainerRequest:
    """What is to run in a container, and what it may see.

    ``gpu``: devices of the GPUs, () for none. ``check_shared_memory``: size of /dev/shm as engines read it, else
    that of the machine (with GPUs) or the engine's own. ``stdin`` passes standard input on.
    """

    image: ChosenImage
    command: tuple[str, ...]
    name: str
    folder: Path
    mounts: tuple[ContainerMount, ...]
    variables: tuple[ContainerVariable, ...] = ()
    gpu: tuple[GpuDevice, ...] = ()
    shared_memory: str | None = None
    network: str | None = None
    stdin: bool = False
    tty: bool = False


@dataclass(frozen=True)
class CommandPart:
    """Words of a command that belong together, and why they are there."""

    words: tuple[str, ...]
    why: str


def flatten_parts(parts: list[CommandPart]) -> list[str]:
    """Return the command itself."""
    return [word for part in parts for word in part.words]


def compose_command(engine: Engine, machine: ContainerHost, request: ContainerRequest) -> list[CommandPart]:
    """Return the parts of the command. Raises EngineError for GPUs that this engine could not hand on."""
    return [
        CommandPart((engine.program, "run"), f"{engine.name} {engine.version}".strip()),
        CommandPart(("--rm",), "nothing is left of the container when the command has ended"),
        CommandPart(
            ("--init",), "signals reach the command, and processes without parents are taken care of"
        ),
        CommandPart(("--name", request.name), "an interruption ends this container by its name"),
        *_terminal_parts(request),
        *_user_parts(engine, machine),
        *_folder_parts(request, machine),
        *_variable_parts(request),
        *_device_parts(engine, machine, request),
        *_limit_parts(engine, machine),
        *_other_parts(request),
        CommandPart((request.image.reference,), "the image"),
        CommandPart(request.command, "the command"),
    ]


def _terminal_parts(request: ContainerRequest) -> Iterator[CommandPart]:
    if request.tty:
        yield CommandPart(("--interactive", "--tty"), "there is a terminal")
    elif request.stdin:
        yield CommandPart(("--interactive",), "standard input is passed on")


def _user_parts(engine: Engine, machine: ContainerHost) -> Iterator[CommandPart]:
    """Map the user so that files are ours on both sides: rootless engines have numbers of their own."""
    if engine.name == "podman" and engine.rootless:
        yield CommandPart(
            ("--userns", "keep-id"), "rootless podman: files belong to the same user on both sides"
        )
    elif engine.rootless:
        yield CommandPart(("--user", "0:0"), "rootless docker: root inside is you outside")
    elif machine.uid is not None:
        yield CommandPart(("--user", f"{machine.uid}:{machine.gid}"), "files belong to you, not to root")


def _folder_parts(request: ContainerRequest, machine: ContainerHost) -> Iterator[CommandPart]:
    relabel = machine.selinux and not request.gpu
    for mount in request.mounts:
        if relabel and mount.ours and mount.path in (machine.home, *_SHARED_FOLDERS):
            raise UsageError(
                f"SELinux would have to label all of {mount.path} for containers, which locks you out of it",
                tip="work in a folder below it",
            )
        options = [name for name, on in (("ro", mount.read_only), ("z", relabel and mount.ours)) if on]
        volume = ":".join((str(mount.path), str(mount.inside), *([",".join(options)] if options else [])))
        why = (
            "the same path inside and outside"
            if mount.path == mount.inside
            else "a folder that was asked for"
        )
        yield CommandPart(
            ("--volume", volume), f"{why}; z: SELinux lets containers read it" if "z" in options else why
        )
    yield CommandPart(("--workdir", str(request.folder)), "the folder that you are in")


def _variable_parts(request: ContainerRequest) -> Iterator[CommandPart]:
    for variable in request.variables:
        why = "its value comes from your environment, and is in no list of processes"
        yield CommandPart(
            ("--env", variable.word), why if variable.value is None else "set for the container"
        )


def _device_parts(engine: Engine, machine: ContainerHost, request: ContainerRequest) -> Iterator[CommandPart]:
    if not request.gpu:
        return
    for device in request.gpu:
        yield CommandPart(("--device", device.path), "ROCm opens it")
    yield from _group_parts(engine, machine, request.gpu)
    yield CommandPart(
        ("--security-opt", "seccomp=unconfined"),
        "with GPUs only: the engine's filter forbids what binds memory to a NUMA node (numactl, RCCL)",
    )
    if machine.selinux:
        why = (
            "SELinux keeps containers from devices that are labelled as such; no folder is labelled anew then"
        )
        yield CommandPart(("--security-opt", "label=disable"), why)
    if request.shared_memory is None:
        yield CommandPart(
            ("--ipc", "host"), "processes on several GPUs share memory; 64 MB, an engine's own, are too few"
        )


def _group_parts(
    engine: Engine, machine: ContainerHost, devices: tuple[GpuDevice, ...]
) -> Iterator[CommandPart]:
    """Add the groups that own the devices, by number: names and numbers differ between image and machine."""
    numbers = sorted({entry.group for entry in devices if entry.group is not None and not entry.everyone})
    unknown = any(entry.group is None for entry in devices)
    groups = (
        [f"{GROUP_PLACEHOLDER}{path}" for path in _ASSUMED_GROUP_OWNERS]
        if unknown
        else [str(entry) for entry in numbers]
    )
    if not groups or (machine.uid == 0 and not engine.rootless):
        return
    if not engine.rootless:
        for group in groups:
            yield CommandPart(("--group-add", group), "owns the devices, whatever it is called inside")
    elif engine.name == "docker":
        raise EngineError(
            f"rootless docker cannot hand on your groups, and {devices[0].path} is open to its group alone",
            tip="use rootless podman (--engine podman), or docker with its daemon",
        )
    elif engine.runtime != "crun":
        raise EngineError(
            f"podman keeps your groups only with crun, and uses {engine.runtime or 'another runtime'}",
            tip='install crun; in ~/.config/containers/containers.conf, below [engine]: runtime = "crun"',
        )
    else:
        yield CommandPart(
            ("--group-add", "keep-groups"), "rootless podman: your own groups stay, which own the devices"
        )


def _limit_parts(engine: Engine, machine: ContainerHost) -> Iterator[CommandPart]:
    """Set limits; podman starts containers itself, and cannot give them more than we have."""
    hard = MOST_FILES if engine.name == "docker" and not engine.rootless else min(machine.files, MOST_FILES)
    yield CommandPart(
        ("--ulimit", "core=0:0"), "no memory of a crashed test on the disk: tens of gigabytes with a GPU"
    )
    why = (
        "links and tests open many files; without a limit programs that close every possible one take minutes"
    )
    yield CommandPart(("--ulimit", f"nofile={min(_SOFT_FILES, hard)}:{hard}"), why)


def _other_parts(request: ContainerRequest) -> Iterator[CommandPart]:
    if request.shared_memory is not None:
        yield CommandPart(
            ("--shm-size", request.shared_memory), "what was asked for, in place of the machine's own"
        )
    if request.network is not None:
        yield CommandPart(("--network", request.network), "what was asked for")
    if request.image.made_here:
        yield CommandPart(
            ("--pull", "never"), "it is on this machine: nobody else's image of that name is taken"
        )
