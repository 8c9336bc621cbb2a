"""Run a command in a container: the request, the engine's command word for word, and its end.

Each word of the command has a reason. The exit code of the command comes out, and signals end what is
inside.
"""

from __future__ import annotations

import re
import secrets
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.ci import container_engine, container_host
from rocm_wheels.core import errors, log, process, shell
from rocm_wheels.core.machine import IMAGE_VARIABLE
from rocm_wheels.models import ci

STOP_SECONDS = 10
GROUP_PLACEHOLDER = "group-of:"  # before a path: the group that owns it where the line is run
_ASSUMED_GROUP_OWNERS = ("/dev/kfd", "/dev/dri/renderD128")
_SOFT_FILES = 65536
_SHARED_FOLDERS = (Path("/home"), Path("/opt"), Path("/srv"), Path("/tmp"))


@dataclass(frozen=True)
class ContainerRequest:
    """What is to run in a container, and what it may see.

    ``gpu``: devices of the GPUs, () for none. ``shared_memory``: size of /dev/shm as engines read it,
    else that of the machine (with GPUs) or the engine's own. ``stdin`` passes standard input on.
    """

    image: container_engine.ChosenImage
    command: tuple[str, ...]
    name: str
    folder: Path
    mounts: tuple[container_host.ContainerMount, ...]
    variables: tuple[container_host.ContainerVariable, ...] = ()
    gpu: tuple[container_host.GpuDevice, ...] = ()
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


def compose_command(
    engine: container_engine.Engine, machine: container_host.ContainerHost, request: ContainerRequest
) -> list[CommandPart]:
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


def _user_parts(
    engine: container_engine.Engine, machine: container_host.ContainerHost
) -> Iterator[CommandPart]:
    """Map the user so that files are ours on both sides: rootless engines have numbers of their own."""
    if engine.name == "podman" and engine.rootless:
        yield CommandPart(
            ("--userns", "keep-id"), "rootless podman: files belong to the same user on both sides"
        )
    elif engine.rootless:
        yield CommandPart(("--user", "0:0"), "rootless docker: root inside is you outside")
    elif machine.uid is not None:
        yield CommandPart(("--user", f"{machine.uid}:{machine.gid}"), "files belong to you, not to root")


def _folder_parts(request: ContainerRequest, machine: container_host.ContainerHost) -> Iterator[CommandPart]:
    relabel = machine.selinux and not request.gpu
    for mount in request.mounts:
        if relabel and mount.ours and mount.path in (machine.home, *_SHARED_FOLDERS):
            raise errors.UsageError(
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


def _device_parts(
    engine: container_engine.Engine, machine: container_host.ContainerHost, request: ContainerRequest
) -> Iterator[CommandPart]:
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
    engine: container_engine.Engine,
    machine: container_host.ContainerHost,
    devices: tuple[container_host.GpuDevice, ...],
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
        raise errors.EngineError(
            f"rootless docker cannot hand on your groups, and {devices[0].path} is open to its group alone",
            tip="use rootless podman (--engine podman), or docker with its daemon",
        )
    elif engine.runtime != "crun":
        raise errors.EngineError(
            f"podman keeps your groups only with crun, and uses {engine.runtime or 'another runtime'}",
            tip='install crun; in ~/.config/containers/containers.conf, below [engine]: runtime = "crun"',
        )
    else:
        yield CommandPart(
            ("--group-add", "keep-groups"), "rootless podman: your own groups stay, which own the devices"
        )


def _limit_parts(
    engine: container_engine.Engine, machine: container_host.ContainerHost
) -> Iterator[CommandPart]:
    """Set limits; podman starts containers itself, and cannot give them more than we have."""
    hard = (
        container_host.MOST_FILES
        if engine.name == "docker" and not engine.rootless
        else min(machine.files, container_host.MOST_FILES)
    )
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
    options: ContainerOptions,
    machine: container_host.ContainerHost,
    env: Mapping[str, str],
    root: Path = Path("/"),
) -> ContainerRequest:
    """Return the request. Raises the errors of what cannot be had, before anything is started or made."""
    image = container_engine.choose_image(
        options.image,
        ci.load_container_table().images,
        options.clone,
        allow_unresolved=options.allow_unresolved,
    )
    _check_options(options)
    if machine.uid == 0 and env.get("SUDO_UID", "0") != "0":
        log.log_warning(
            "by sudo you are root: what the command writes will be root's; a user of the group docker, or of"
            " podman, keeps files"
        )
    extra_variables = container_host.parse_variables(options.variables, env)
    if options.network is None and (local := container_host.find_local_proxies(env)):
        log.log_warning(
            f"{local[0]} is a proxy on this machine, which a container reaches with --network host only"
        )
    mounts = container_host.collect_mounts(
        options.clone,
        options.here,
        options.cache,
        container_host.parse_mounts(options.mounts),
        container_host.find_certificate_paths(env),
    )
    set_here = {
        variable.name: variable
        for variable in (
            *container_host.select_passed_variables(env, tty=options.tty),
            *_make_own_variables(options, machine, image),
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


def _find_gpus(
    options: ContainerOptions, machine: container_host.ContainerHost, root: Path
) -> tuple[container_host.GpuDevice, ...]:
    try:
        return container_host.find_gpu_devices(root)
    except errors.HostError as missing:
        if not options.for_any_machine:
            raise
        asks = ", and asks there who owns them" if machine.uid else ""
        log.log_warning(f"{missing.message}; the line is for a machine that has GPUs{asks}")
        return container_host.assume_gpu_devices()


def _check_options(options: ContainerOptions) -> None:
    """Refuse what engines would refuse, with a page of their help."""
    if options.shared_memory is not None and not _SHM_SIZE.fullmatch(options.shared_memory):
        raise errors.UsageError(
            f"--shm-size {options.shared_memory!r} is no size", tip="a number and a unit: 16g, 512m"
        )
    if options.network is not None and not _NETWORK_NAME.fullmatch(options.network):
        raise errors.UsageError(
            f"--network {options.network!r} is no name of a network", tip="none, host, bridge, a name"
        )
    if options.cache.exists() and not options.cache.is_dir():
        raise errors.UsageError(f"--cache {options.cache} is no folder")


def list_cache_folders(cache: Path) -> list[Path]:
    """Return the folders that must be there before a container is: an engine would make them as root."""
    return [cache / name for name in _CACHE_FOLDERS.values()]


def format_pasteable_line(argv: list[str], cache: Path) -> str:
    """Return the command for a shell; the folders that are missing are made first."""
    if shell.format_command(argv) != shlex.join(argv):
        log.log_warning("the line has *** in place of a secret, and does something else until that is put in")
    missing = [shlex.quote(str(folder)) for folder in list_cache_folders(cache) if not folder.is_dir()]
    mkdir = f"mkdir -p {' '.join(missing)} && " if missing else ""
    return f"{mkdir}{resolve_groups_in_shell(shell.format_command(argv))}"


def resolve_groups_in_shell(line: str) -> str:
    """Return a line for a shell that finds out where it is run what nobody could know here."""
    return re.sub(rf"(--group-add ){GROUP_PLACEHOLDER}(/dev/\S+)", r'\1"$(stat -c %g \2)"', line)


def _make_own_variables(
    options: ContainerOptions, machine: container_host.ContainerHost, image: container_engine.ChosenImage
) -> list[container_host.ContainerVariable]:
    variables = [
        container_host.ContainerVariable(name, str(options.cache / folder))
        for name, folder in _CACHE_FOLDERS.items()
    ]
    variables += [container_host.ContainerVariable(name, machine.user) for name in ("USER", "LOGNAME")]
    variables.append(
        container_host.ContainerVariable(IMAGE_VARIABLE, image.reference)
    )  # statements of wheels name it
    if options.clone is not None:
        variables.append(container_host.ContainerVariable(CHECKOUT_VARIABLE, str(options.clone)))
    return variables


_REMOVE_TRIES = 5  # an engine that is removing a container refuses to do it again, and lists it until then
# exit codes of `docker run` and `podman run` of their own (docs of both); a command may use them, too
_ENGINE_EXIT_CODES = {
    125: "the engine could not start the container, as it says above (without container-init or docker-init,"
    " that is the package catatonit for podman, tini or docker-init for docker)",
    126: "the command is there and could not be started, as the engine says above",
    127: "the image has no such command",
}


def run_container(
    engine: container_engine.Engine, argv: Sequence[str], name: str, env: Mapping[str, str], *, stdin: bool
) -> int:
    """Run the composed command on our terminal and return its exit code.

    At an interruption the container is stopped: politely, after 10 seconds by force. Then it goes on.
    """
    try:
        code = process.run_on_terminal(
            argv,
            env=env,
            stdin=stdin,
            end=lambda: _stop_container(engine, name, env),
            error=errors.EngineError,
        )
    except BaseException:
        _remove_container(engine, name, env)  # also one that was not there yet when it was to be stopped
        raise
    if code < 0:
        _remove_container(engine, name, env)
        raise errors.EngineError(f"{engine.program} was killed by signal {-code}; its container was ended")
    if (why := _ENGINE_EXIT_CODES.get(code)) is not None:
        log.log_note(f"exit code {code}: {why}; or the command itself ended with {code}")
    return code


def _stop_container(engine: container_engine.Engine, name: str, env: Mapping[str, str]) -> None:
    log.log_note(f"ending the container {name}; the command inside has {STOP_SECONDS} seconds")
    with _ignore_signals():
        _try_engine(engine, ["stop", "-t", str(STOP_SECONDS), name], env)


def _remove_container(engine: container_engine.Engine, name: str, env: Mapping[str, str]) -> None:
    """Remove a container, whatever state it is in; warn of one that is still there afterwards."""
    with _ignore_signals():
        for _ in range(_REMOVE_TRIES):
            _try_engine(engine, ["rm", "--force", name], env)
            remaining = _try_engine(engine, ["ps", "--all", "--quiet", "--filter", f"name=^{name}$"], env)
            if remaining == "":
                return
            time.sleep(0.3)
    log.log_warning(
        f"the container {name} may still be running: `{engine.program} rm --force {name}` ends it"
    )


def require_image(
    engine: container_engine.Engine, reference: str, env: Mapping[str, str], *, how: str
) -> None:
    """Raise EngineError when an image that is made here is not; ``how`` says how to make it."""
    argv = [engine.program, "image", "inspect", "--format", "{{.Id}}", reference]
    try:
        process.capture_output(
            argv, env=env, timeout=60, check=errors.EngineError, description=f"`{engine.name} image inspect`"
        )
    except errors.EngineError as missing:
        raise errors.EngineError(
            f"there is no image {reference} here", tip=container_engine.find_advice(missing.message) or how
        ) from None


def _try_engine(engine: container_engine.Engine, words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what an engine printed, ``None`` when it failed: there may be nothing left to stop."""
    try:
        return process.capture_output(
            [engine.program, *words], env=env, timeout=STOP_SECONDS + 20.0, check=errors.EngineError
        )
    except errors.EngineError:
        return None


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Let no second interruption cut the ending short: the container would go on alone."""
    numbers = [
        getattr(signal, signal_id)
        for signal_id in ("SIGINT", "SIGTERM", "SIGHUP")
        if hasattr(signal, signal_id)
    ]
    before = {signal_id: signal.signal(signal_id, signal.SIG_IGN) for signal_id in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
