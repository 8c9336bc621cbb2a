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
from rocm_wheels.process import capture_output
from rocm_wheels.workspace import write_json_file

_DEFAULT_PORT = 4226
_IDLE_SECONDS = "3600"  # of a server whose build was killed; one file can compile for half an hour
_START_ATTEMPTS = 5
# what decides where a server stores, and with which rights; compared as a digest
_STORAGE_PREFIXES = ("SCCACHE_", "AWS_", "ACTIONS_", "ALIBABA_CLOUD_", "TENCENTCLOUD_")
_ADDRESS_VARIABLES = ("SCCACHE_SERVER_PORT", "SCCACHE_SERVER_UDS")
_CLIENT_VARIABLES = ("SCCACHE_IDLE_TIMEOUT", "SCCACHE_LOG", "SCCACHE_ERROR_LOG")


@dataclass(frozen=True)
class SccacheServer:
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
def run_own_server(program: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Run a server that nobody shares; yield the variables that lead to it."""
    server = _start_server(program, env)
    try:
        yield server.variables
    finally:
        stop_server(program, {**env, **server.variables})


@contextmanager
def share_server(program: Path, env: Mapping[str, str], folder: Path) -> Iterator[Mapping[str, str]]:
    """Use the server of ``folder``, started by the first that comes and stopped by the last that goes.

    With a remote storage each step has its own. Where the user named an address, that is used: a server
    that listens there stays. What a killed run left is used again, or replaced when its settings are others.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    state_lock = FileLock(folder / "sccache.lock")
    record_path = folder / "sccache.json"
    user_lock = FileLock(folder / f"sccache-user-{os.getpid()}-{os.urandom(4).hex()}.lock")
    with state_lock:
        server = _find_or_start_server(program, env, record_path, alone=not _has_users(folder))
        user_lock.acquire()
    try:
        yield server.variables if server is not None else {}
    finally:
        with state_lock:
            user_lock.release()
            Path(user_lock.lock_file).unlink(missing_ok=True)
            shared = server is not None and server == _read_server(record_path)
            if server is not None and not (shared and _has_users(folder)):
                stop_server(program, {**env, **server.variables})
                if shared:
                    record_path.unlink(missing_ok=True)


def stop_server(program: Path, env: Mapping[str, str]) -> None:
    """Stop the server that ``env`` leads to; one that has ended by itself is no fault."""
    try:
        capture_output([program, "--stop-server"], env=env, timeout=60, description="sccache --stop-server")
    except BuildError as cause:
        if is_listening(env):
            raise BuildError("a server of sccache could not be stopped") from cause


def is_listening(env: Mapping[str, str]) -> bool:
    """Tell whether a server answers at the address in ``env`` (else sccache's own), without starting one."""
    address: str | tuple[str, int]
    if path := env.get("SCCACHE_SERVER_UDS"):
        family, address = getattr(socket, "AF_UNIX", socket.AF_INET), path
    else:
        port = env.get("SCCACHE_SERVER_PORT", "")
        family, address = socket.AF_INET, ("127.0.0.1", int(port) if port.isdecimal() else _DEFAULT_PORT)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        with contextlib.suppress(OSError):
            probe.connect(address)
            return True
    return False


def _find_or_start_server(
    program: Path, env: Mapping[str, str], record_path: Path, *, alone: bool
) -> SccacheServer | None:
    """Return the server of the folder or a new one; ``None`` where one of the user's is to be used."""
    recorded = _read_server(record_path)
    if recorded is not None and recorded.location == _read_location(program, {**env, **recorded.variables}):
        if recorded.settings == _digest_settings(env):
            return recorded
        if not alone:
            raise BuildError(
                "another build in this work directory runs a server of sccache with other settings",
                tip="wait for it, or set the same SCCACHE_ variables for both",
            )
        stop_server(program, {**env, **recorded.variables})
    if named := any(env.get(name) for name in _ADDRESS_VARIABLES):
        if is_listening(env):
            return None
        _launch_server(program, env)
        server = SccacheServer(0, _read_location(program, env), _digest_settings(env))
    else:
        server = _start_server(program, env)
        if server.local and _read_location(program, env) == server.location:
            log.log_note(
                "a server of sccache that serves the same files is running; it is used, and counts for all"
            )
            stop_server(program, {**env, **server.variables})
            return None
    if server.local or named:
        write_json_file(
            record_path, {"port": server.port, "location": server.location, "settings": server.settings}
        )
    return server


def _start_server(program: Path, env: Mapping[str, str]) -> SccacheServer:
    env = {name: value for name, value in env.items() if name not in _ADDRESS_VARIABLES}
    for attempt in range(_START_ATTEMPTS):
        server = SccacheServer(_find_free_port(), "", _digest_settings(env))
        try:
            _launch_server(program, {**env, **server.variables})
            break
        except BuildError:
            if attempt + 1 == _START_ATTEMPTS or not is_listening(server.variables):
                raise  # not because somebody else took the port
    return SccacheServer(server.port, _read_location(program, {**env, **server.variables}), server.settings)


def _launch_server(program: Path, env: Mapping[str, str]) -> None:
    capture_output(
        [program, "--start-server"],
        env=env,
        timeout=120,
        description="sccache --start-server",
        tip="is the storage that the SCCACHE_ variables name within reach?",
    )


def _read_location(program: Path, env: Mapping[str, str]) -> str:
    """Return what a server says of its storage; "" where none answers, or something else."""
    if not is_listening(env):
        return ""
    try:
        output = capture_output([program, "--show-stats", "--stats-format=json"], env=env, timeout=60)
        return str(json.loads(output)["cache_location"])
    except (BuildError, ValueError, KeyError):
        return ""  # another program listens there


def _digest_settings(env: Mapping[str, str]) -> str:
    settings = {
        name: value
        for name, value in env.items()
        if name.startswith(_STORAGE_PREFIXES) and name not in _CLIENT_VARIABLES
    }
    settings |= {name: env.get(name, "") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _has_users(folder: Path) -> bool:
    """Tell whether somebody uses the server of a folder; the locks of those that were killed go away."""
    from filelock import FileLock, Timeout

    in_use = False
    for path in folder.glob("sccache-user-*.lock"):
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            in_use = True
            continue
        lock.release()
        path.unlink(missing_ok=True)
    return in_use


def _read_server(record_path: Path) -> SccacheServer | None:
    try:
        return SccacheServer(**json.loads(record_path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _find_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
