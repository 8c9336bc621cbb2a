"""Servers of sccache: its clients pass each compile to one, which holds the storage and the counts.

A client that finds no server starts one, which stays. So one is started before a build and stopped after
it, on a port of its own, and a step's counts are its own. But two servers on one folder of cached files
harm each other (sccache's page on local storage): with such a storage all steps of a work directory that run
at a time share one, and its counts; and a server of the user's that serves the same folder is used as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import BuildError
from rocm_wheels.process import capture
from rocm_wheels.workspace import write_json

_DEFAULT_PORT = 4226
_IDLE_SECONDS = "3600"  # of a server whose build was killed; one file can compile for half an hour
_ATTEMPTS = 5
# what decides where a server stores, and with which rights; compared as a digest
_STORAGE = ("SCCACHE_", "AWS_", "ACTIONS_", "ALIBABA_CLOUD_", "TENCENTCLOUD_")
_ADDRESS = ("SCCACHE_SERVER_PORT", "SCCACHE_SERVER_UDS")
_OF_A_CLIENT = ("SCCACHE_IDLE_TIMEOUT", "SCCACHE_LOG", "SCCACHE_ERROR_LOG")


@dataclass(frozen=True)
class Server:
    """A server of ours: its port, the storage that it names, and a digest of what it was started with.

    Port 0 stands for the address that the user's variables name.
    """

    port: int
    location: str
    settings: str

    @property
    def local(self) -> bool:
        """Whether it stores on this machine (``Local disk: …``, or a chain of storages with one)."""
        return "disk" in self.location.lower()

    @property
    def variables(self) -> dict[str, str]:
        """What lets clients find it."""
        if not self.port:
            return {}
        return {"SCCACHE_SERVER_PORT": str(self.port), "SCCACHE_IDLE_TIMEOUT": _IDLE_SECONDS}


@contextmanager
def server_of_its_own(program: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Run a server that nobody shares; yield the variables that lead to it."""
    server = _start(program, env)
    try:
        yield server.variables
    finally:
        stop(program, {**env, **server.variables})


@contextmanager
def shared_server(program: Path, env: Mapping[str, str], folder: Path) -> Iterator[Mapping[str, str]]:
    """Use the server of ``folder``, started by the first that comes and stopped by the last that goes.

    With a remote storage each step has its own. Where the user named an address, that is used: a server
    that listens there stays. What a killed run left is used again, or replaced when its settings are others.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    door = FileLock(folder / "sccache.lock")
    place = folder / "sccache.json"
    mine = FileLock(folder / f"sccache-user-{os.getpid()}-{os.urandom(4).hex()}.lock")
    with door:
        server = _find_or_start(program, env, place, alone=not _users(folder))
        mine.acquire()
    try:
        yield server.variables if server is not None else {}
    finally:
        with door:
            mine.release()
            Path(mine.lock_file).unlink(missing_ok=True)
            shared = server is not None and server == _read(place)
            if server is not None and not (shared and _users(folder)):
                stop(program, {**env, **server.variables})
                if shared:
                    place.unlink(missing_ok=True)


def stop(program: Path, env: Mapping[str, str]) -> None:
    """Stop the server that ``env`` leads to; one that has ended by itself is no fault."""
    try:
        capture([program, "--stop-server"], env=env, timeout=60, what="sccache --stop-server")
    except BuildError as cause:
        if is_listening(env):
            raise BuildError("a server of sccache could not be stopped") from cause


def is_listening(env: Mapping[str, str]) -> bool:
    """Tell whether a server answers at the address in ``env`` (else sccache's own), without starting one."""
    place: str | tuple[str, int]
    if path := env.get("SCCACHE_SERVER_UDS"):
        family, place = getattr(socket, "AF_UNIX", socket.AF_INET), path
    else:
        port = env.get("SCCACHE_SERVER_PORT", "")
        family, place = socket.AF_INET, ("127.0.0.1", int(port) if port.isdecimal() else _DEFAULT_PORT)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        with contextlib.suppress(OSError):
            probe.connect(place)
            return True
    return False


def _find_or_start(program: Path, env: Mapping[str, str], place: Path, *, alone: bool) -> Server | None:
    """Return the server of the folder or a new one; ``None`` where one of the user's is to be used."""
    known = _read(place)
    if known is not None and known.location == _location(program, {**env, **known.variables}):
        if known.settings == _settings(env):
            return known
        if not alone:
            raise BuildError(
                "another build in this work directory runs a server of sccache with other settings",
                tip="wait for it, or set the same SCCACHE_ variables for both",
            )
        stop(program, {**env, **known.variables})
    if named := any(env.get(name) for name in _ADDRESS):
        if is_listening(env):
            return None
        _run_server(program, env)
        server = Server(0, _location(program, env), _settings(env))
    else:
        server = _start(program, env)
        if server.local and _location(program, env) == server.location:
            log.note(
                "a server of sccache that serves the same files is running; it is used, and counts for all"
            )
            stop(program, {**env, **server.variables})
            return None
    if server.local or named:
        write_json(place, {"port": server.port, "location": server.location, "settings": server.settings})
    return server


def _start(program: Path, env: Mapping[str, str]) -> Server:
    env = {name: value for name, value in env.items() if name not in _ADDRESS}
    for attempt in range(_ATTEMPTS):
        server = Server(_free_port(), "", _settings(env))
        try:
            _run_server(program, {**env, **server.variables})
            break
        except BuildError:
            if attempt + 1 == _ATTEMPTS or not is_listening(server.variables):
                raise  # not because somebody else took the port
    return Server(server.port, _location(program, {**env, **server.variables}), server.settings)


def _run_server(program: Path, env: Mapping[str, str]) -> None:
    capture(
        [program, "--start-server"],
        env=env,
        timeout=120,
        what="sccache --start-server",
        tip="is the storage that the SCCACHE_ variables name within reach?",
    )


def _location(program: Path, env: Mapping[str, str]) -> str:
    """Return what a server says of its storage; "" where none answers, or something else."""
    if not is_listening(env):
        return ""
    try:
        said = capture([program, "--show-stats", "--stats-format=json"], env=env, timeout=60)
        return str(json.loads(said)["cache_location"])
    except (BuildError, ValueError, KeyError):
        return ""  # another program listens there


def _settings(env: Mapping[str, str]) -> str:
    told = {
        name: value for name, value in env.items() if name.startswith(_STORAGE) and name not in _OF_A_CLIENT
    }
    told |= {name: env.get(name, "") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _users(folder: Path) -> bool:
    """Tell whether somebody uses the server of a folder; the locks of those that were killed go away."""
    from filelock import FileLock, Timeout

    found = False
    for path in folder.glob("sccache-user-*.lock"):
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            found = True
            continue
        lock.release()
        path.unlink(missing_ok=True)
    return found


def _read(place: Path) -> Server | None:
    try:
        return Server(**json.loads(place.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
