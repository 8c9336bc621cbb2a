"""Start a container and see it to its end: its exit code comes out, and signals end what is inside."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rocm_wheels import log
from rocm_wheels.ci.containers.command import STOP_SECONDS
from rocm_wheels.ci.containers.engine import Engine, advice
from rocm_wheels.errors import EngineError
from rocm_wheels.process import attach, capture

_TRIES = 5  # an engine that is removing a container refuses to do it again, and lists it until then
# exit codes of `docker run` and `podman run` of their own (docs of both); a command may use them, too
_OF_THE_ENGINE = {
    125: "the engine could not start the container, as it says above (without container-init or docker-init,"
    " that is the package catatonit for podman, tini or docker-init for docker)",
    126: "the command is there and could not be started, as the engine says above",
    127: "the image has no such command",
}


def run_container(
    engine: Engine, argv: Sequence[str], name: str, env: Mapping[str, str], *, stdin: bool
) -> int:
    """Run the composed command on our terminal and return its exit code.

    At an interruption the container is stopped: politely, after 10 seconds by force. Then it goes on.
    """
    try:
        code = attach(argv, env=env, stdin=stdin, end=lambda: _stop(engine, name, env), error=EngineError)
    except BaseException:
        _remove(engine, name, env)  # also one that was not there yet when it was to be stopped
        raise
    if code < 0:
        _remove(engine, name, env)
        raise EngineError(f"{engine.program} was killed by signal {-code}; its container was ended")
    if (why := _OF_THE_ENGINE.get(code)) is not None:
        log.note(f"exit code {code}: {why}; or the command itself ended with {code}")
    return code


def _stop(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    log.note(f"ending the container {name}; the command inside has {STOP_SECONDS} seconds")
    with _deaf():
        _try(engine, ["stop", "-t", str(STOP_SECONDS), name], env)


def _remove(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    """Remove a container, whatever state it is in; warn of one that is still there afterwards."""
    with _deaf():
        for _ in range(_TRIES):
            _try(engine, ["rm", "--force", name], env)
            left = _try(engine, ["ps", "--all", "--quiet", "--filter", f"name=^{name}$"], env)
            if left == "":
                return
            time.sleep(0.3)
    log.warn(f"the container {name} may still be running: `{engine.program} rm --force {name}` ends it")


def require_image(engine: Engine, reference: str, env: Mapping[str, str], *, how: str) -> None:
    """Raise EngineError when an image that is made here is not; ``how`` says how to make it."""
    argv = [engine.program, "image", "inspect", "--format", "{{.Id}}", reference]
    try:
        capture(argv, env=env, timeout=60, check=EngineError, what=f"`{engine.name} image inspect`")
    except EngineError as missing:
        raise EngineError(f"there is no image {reference} here", tip=advice(missing.message) or how) from None


def _try(engine: Engine, words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what an engine printed, ``None`` when it failed: there may be nothing left to stop."""
    try:
        return capture([engine.program, *words], env=env, timeout=STOP_SECONDS + 20.0, check=EngineError)
    except EngineError:
        return None


@contextmanager
def _deaf() -> Iterator[None]:
    """Let no second interruption cut the ending short: the container would go on alone."""
    numbers = [getattr(signal, one) for one in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, one)]
    before = {one: signal.signal(one, signal.SIG_IGN) for one in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
