"""The command line of an engine, word for word, and why each word is there. All of it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.ci.containers.engine import Engine
from rocm_wheels.ci.containers.images import Chosen
from rocm_wheels.ci.containers.machine import MOST_FILES, Device, Machine
from rocm_wheels.ci.containers.mounts import Mount
from rocm_wheels.ci.containers.variables import Variable
from rocm_wheels.errors import EngineError, UsageError

STOP_SECONDS = 10
GROUP_OF = "group-of:"  # before a path: the group that owns it where the line is run
_OWNED_ELSEWHERE = ("/dev/kfd", "/dev/dri/renderD128")
_SOFT_FILES = 65536
_SHARED = (Path("/home"), Path("/opt"), Path("/srv"), Path("/tmp"))


@dataclass(frozen=True)
class Request:
    """What is to run in a container, and what it may see.

    ``gpu``: devices of the GPUs, () for none. ``shared_memory``: size of /dev/shm as engines read it, else
    that of the machine (with GPUs) or the engine's own. ``stdin`` passes standard input on.
    """

    image: Chosen
    command: tuple[str, ...]
    name: str
    folder: Path
    mounts: tuple[Mount, ...]
    variables: tuple[Variable, ...] = ()
    gpu: tuple[Device, ...] = ()
    shared_memory: str | None = None
    network: str | None = None
    stdin: bool = False
    tty: bool = False


@dataclass(frozen=True)
class Part:
    """Words of a command that belong together, and why they are there."""

    words: tuple[str, ...]
    why: str


def words_of(parts: list[Part]) -> list[str]:
    """Return the command itself."""
    return [word for part in parts for word in part.words]


def compose(engine: Engine, machine: Machine, request: Request) -> list[Part]:
    """Return the parts of the command. Raises EngineError for GPUs that this engine could not hand on."""
    return [
        Part((engine.program, "run"), f"{engine.name} {engine.version}".strip()),
        Part(("--rm",), "nothing is left of the container when the command has ended"),
        Part(("--init",), "signals reach the command, and processes without parents are taken care of"),
        Part(("--name", request.name), "an interruption ends this container by its name"),
        *_terminal(request),
        *_user(engine, machine),
        *_folders(request, machine),
        *_variables(request),
        *_devices(engine, machine, request),
        *_limits(engine, machine),
        *_rest(request),
        Part((request.image.reference,), "the image"),
        Part(request.command, "the command"),
    ]


def _terminal(request: Request) -> Iterator[Part]:
    if request.tty:
        yield Part(("--interactive", "--tty"), "there is a terminal")
    elif request.stdin:
        yield Part(("--interactive",), "standard input is passed on")


def _user(engine: Engine, machine: Machine) -> Iterator[Part]:
    """Map the user so that files are ours on both sides: rootless engines have numbers of their own."""
    if engine.name == "podman" and engine.rootless:
        yield Part(("--userns", "keep-id"), "rootless podman: files belong to the same user on both sides")
    elif engine.rootless:
        yield Part(("--user", "0:0"), "rootless docker: root inside is you outside")
    elif machine.uid is not None:
        yield Part(("--user", f"{machine.uid}:{machine.gid}"), "files belong to you, not to root")


def _folders(request: Request, machine: Machine) -> Iterator[Part]:
    relabel = machine.selinux and not request.gpu
    for one in request.mounts:
        if relabel and one.ours and one.path in (machine.home, *_SHARED):
            raise UsageError(
                f"SELinux would have to label all of {one.path} for containers, which locks you out of it",
                tip="work in a folder below it",
            )
        options = [name for name, on in (("ro", one.read_only), ("z", relabel and one.ours)) if on]
        volume = ":".join((str(one.path), str(one.inside), *([",".join(options)] if options else [])))
        why = "the same path inside and outside" if one.path == one.inside else "a folder that was asked for"
        yield Part(
            ("--volume", volume), f"{why}; z: SELinux lets containers read it" if "z" in options else why
        )
    yield Part(("--workdir", str(request.folder)), "the folder that you are in")


def _variables(request: Request) -> Iterator[Part]:
    for one in request.variables:
        why = "its value comes from your environment, and is in no list of processes"
        yield Part(("--env", one.word), why if one.value is None else "set for the container")


def _devices(engine: Engine, machine: Machine, request: Request) -> Iterator[Part]:
    if not request.gpu:
        return
    for device in request.gpu:
        yield Part(("--device", device.path), "ROCm opens it")
    yield from _groups(engine, machine, request.gpu)
    yield Part(
        ("--security-opt", "seccomp=unconfined"),
        "with GPUs only: the engine's filter forbids what binds memory to a NUMA node (numactl, RCCL)",
    )
    if machine.selinux:
        why = (
            "SELinux keeps containers from devices that are labelled as such; no folder is labelled anew then"
        )
        yield Part(("--security-opt", "label=disable"), why)
    if request.shared_memory is None:
        yield Part(
            ("--ipc", "host"), "processes on several GPUs share memory; 64 MB, an engine's own, are too few"
        )


def _groups(engine: Engine, machine: Machine, devices: tuple[Device, ...]) -> Iterator[Part]:
    """Add the groups that own the devices, by number: names and numbers differ between image and machine."""
    known = sorted({one.group for one in devices if one.group is not None and not one.everyone})
    unknown = any(one.group is None for one in devices)
    groups = [f"{GROUP_OF}{path}" for path in _OWNED_ELSEWHERE] if unknown else [str(one) for one in known]
    if not groups or (machine.uid == 0 and not engine.rootless):
        return
    if not engine.rootless:
        for group in groups:
            yield Part(("--group-add", group), "owns the devices, whatever it is called inside")
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
        yield Part(
            ("--group-add", "keep-groups"), "rootless podman: your own groups stay, which own the devices"
        )


def _limits(engine: Engine, machine: Machine) -> Iterator[Part]:
    """Set limits; podman starts containers itself, and cannot give them more than we have."""
    hard = MOST_FILES if engine.name == "docker" and not engine.rootless else min(machine.files, MOST_FILES)
    yield Part(
        ("--ulimit", "core=0:0"), "no memory of a crashed test on the disk: tens of gigabytes with a GPU"
    )
    why = (
        "links and tests open many files; without a limit programs that close every possible one take minutes"
    )
    yield Part(("--ulimit", f"nofile={min(_SOFT_FILES, hard)}:{hard}"), why)


def _rest(request: Request) -> Iterator[Part]:
    if request.shared_memory is not None:
        yield Part(("--shm-size", request.shared_memory), "what was asked for, in place of the machine's own")
    if request.network is not None:
        yield Part(("--network", request.network), "what was asked for")
    if request.image.made_here:
        yield Part(("--pull", "never"), "it is on this machine: nobody else's image of that name is taken")
