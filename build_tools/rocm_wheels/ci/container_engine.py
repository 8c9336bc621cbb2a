"""The program that runs containers: which one, does it answer, and what to do when it does not."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rocm_wheels.core import EngineError, capture_output, log_note

EngineName = Literal["docker", "podman"]
ENGINES: tuple[EngineName, ...] = ("docker", "podman")
_PATIENCE_SECONDS = 60.0
_OTHER_MACHINE = re.compile(r"(?:tcp|ssh|https?)://", re.IGNORECASE)
INSTALL_TIP = (
    "install podman (`apt-get install podman`, `dnf install podman`) or docker "
    "(https://docs.docker.com/engine/install)"
)

# What engines say when they cannot (docker 20 to 29, podman 3 to 5: their sources and issues), and what to do
_ADVICE = (
    (
        r"permission denied while trying to connect to the docker|docker\.sock: connect: permission denied",
        "your user is not in the group docker: `sudo usermod -aG docker $USER`, then log in again; "
        "or use rootless podman: --engine podman",
    ),
    (
        r"cannot connect to the docker daemon|failed to connect to the docker api"
        r"|is the docker daemon running|error during connect",
        "the daemon is not running: `sudo systemctl start docker`; or use podman, which has none: "
        "--engine podman",
    ),
    (
        r"no subuid ranges found|no subgid ranges found|not enough ids available"
        r"|cannot find uid/gid for user",
        "your user has no numbers for rootless containers: `sudo usermod --add-subuids 100000-165535 "
        "--add-subgids 100000-165535 $USER`, then `podman system migrate`",
    ),
    (
        r'new[ug]idmap"?: executable file not found|required for rootless mode with multiple ids',
        "rootless containers need newuidmap and newgidmap: install uidmap (Debian, Ubuntu) or shadow-utils",
    ),
    (
        r"user namespaces are not enabled in|cannot clone: (?:operation not permitted|no space left)"
        r"|cannot re-exec process",
        "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=28633`, on Ubuntu also "
        "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    (
        r"connect to podman",
        "podman's service does not answer: `systemctl --user start podman.socket`, or `podman machine start`",
    ),
)


@dataclass(frozen=True)
class Engine:
    """An engine that answers. ``runtime`` is what starts podman's containers: crun or runc.

    ``program`` is what it is called on PATH: podman may be there as docker.
    """

    name: EngineName
    program: str
    version: str
    rootless: bool = False
    runtime: str = ""


def find_engine(preferred: EngineName | None, env: Mapping[str, str]) -> Engine:
    """Return the engine that was asked for, else the first that answers: docker, podman.

    Raises EngineError, which says of each that is installed why it cannot be used.
    """
    refused: list[EngineError] = []
    for name in (preferred,) if preferred else ENGINES:
        if shutil.which(name, path=env.get("PATH")) is None:
            continue
        try:
            engine = _query_engine(name, env)
        except EngineError as refusal:
            refused.append(refusal)
            continue
        for error in refused:
            log_note(f"{name} is used, because {_join_first_lines(error)}")
        return engine
    if not refused:
        raise EngineError(f"there is no {preferred or 'docker and no podman'} on PATH", tip=INSTALL_TIP)
    tips = [error.tip for error in refused if error.tip]
    raise EngineError("; ".join(error.message for error in refused), tip=tips[0] if tips else None)


def assume_engine(preferred: EngineName | None) -> Engine:
    """Return the engine that commands are shown for where none answers."""
    name = preferred or ENGINES[0]
    return Engine(name, name, "", runtime="crun" if name == "podman" else "")


def find_advice(message: str) -> str | None:
    """Return what to do about what an engine said, where that is known."""
    return next((tip for sign, tip in _ADVICE if re.search(sign, message, re.IGNORECASE)), None)


def _query_engine(name: EngineName, env: Mapping[str, str]) -> Engine:
    """Ask an engine what it is. A ``docker`` may be podman under another name (package podman-docker)."""
    _refuse_other_machine(name, env)
    facts = _read_json([name, "info", "--format", "{{json .}}"], env)
    if errors := facts.get("ServerErrors"):
        message = " ".join(str(entry) for entry in errors)
        raise EngineError(f"docker does not answer: {message}", tip=find_advice(message))
    if isinstance(host := facts.get("host"), dict):
        if host.get("serviceIsRemote") and not env.get("CONTAINER_HOST") and sys.platform != "darwin":
            raise _make_other_machine_error(
                "podman's connection (CONTAINER_CONNECTION, containers.conf)", "take it out"
            )
        return Engine(
            "podman",
            name,
            str(facts.get("version", {}).get("Version", "")),
            rootless=bool(host.get("security", {}).get("rootless")),
            runtime=str(host.get("ociRuntime", {}).get("name", "")),
        )
    server = _read_json([name, "version", "--format", "{{json .Server}}"], env)
    if any("podman" in str(entry.get("Name", "")).lower() for entry in server.get("Components") or ()):
        raise EngineError(
            "this docker talks to podman's service, which loses the exit code of a container that is removed",
            tip="use podman itself: --engine podman",
        )
    rootless = any("name=rootless" in str(entry) for entry in facts.get("SecurityOptions") or ())
    return Engine("docker", name, str(facts.get("ServerVersion", "")), rootless=rootless)


def _refuse_other_machine(name: EngineName, env: Mapping[str, str]) -> None:
    """Raise EngineError where a variable or docker's context names another machine, which is not asked."""
    variable = "DOCKER_HOST" if name == "docker" else "CONTAINER_HOST"
    if _OTHER_MACHINE.match(env.get(variable, "")):
        raise _make_other_machine_error(variable, f"unset {variable}")
    if name == "podman" or env.get(variable):
        return
    argv = [name, "context", "inspect", "--format", "{{.Name}} {{.Endpoints.docker.Host}}"]
    try:
        output = capture_output(argv, env=env, timeout=_PATIENCE_SECONDS, check=EngineError).strip()
    except EngineError:
        return  # podman-docker and docker before 19.03 have no contexts; a missing one `info` tells of
    context, _, address = output.partition(" ")
    if _OTHER_MACHINE.match(address):
        raise _make_other_machine_error(
            f"docker's context {context}", "`docker context use default`, and no DOCKER_CONTEXT"
        )


def _make_other_machine_error(setting: str, tip: str) -> EngineError:
    message = f"{setting} names another machine, whose disks are not ours: nothing of here could be mounted"
    return EngineError(message, tip=f"{tip}; or run this command on that machine")


def _read_json(argv: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return what an engine says of itself. Raises EngineError with what to do about its refusal."""
    name = f"`{argv[0]} {argv[1]}`"
    try:
        output = capture_output(argv, env=env, timeout=_PATIENCE_SECONDS, check=EngineError, description=name)
    except EngineError as failure:
        raise EngineError(failure.message, tip=find_advice(failure.message)) from failure.__cause__
    try:
        facts = json.loads(output)
    except ValueError as wrong:
        raise EngineError(f"{name} printed no JSON: {output[:200]!r}") from wrong
    if not isinstance(facts, dict):
        raise EngineError(f"{name} says nothing of itself: {output[:200]!r}", tip=find_advice(output))
    return facts


def _join_first_lines(error: EngineError) -> str:
    lines = [line.strip(" |") for line in error.message.splitlines() if line.strip(" |")]
    return " ".join(lines[:2])
