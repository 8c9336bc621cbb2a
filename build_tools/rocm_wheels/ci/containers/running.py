"""Start a container and see it to its end: its exit code comes out, and signals end what is inside."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rocm_wheels import log
from rocm_wheels.ci.containers.command import STOP_SECONDS
from rocm_wheels.ci.containers.engine import Engine, find_advice
from rocm_wheels.errors import EngineError
from rocm_wheels.process import run_on_terminal, capture_output

_REMOVE_TRIES = 5  # an engine that is removing a container refuses to do it again, and lists it until then
# exit codes of `docker run` and `podman run` of their own (docs of both); a command may use them, too
_ENGINE_EXIT_CODES = {
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
        code = run_on_terminal(
            argv, env=env, stdin=stdin, end=lambda: _stop_container(engine, name, env), error=EngineError
        )
    except BaseException:
        _remove_container(engine, name, env)  # also one that was not there yet when it was to be stopped
        raise
    if code < 0:
        _remove_container(engine, name, env)
        raise EngineError(f"{engine.program} was killed by signal {-code}; its container was ended")
    if (why := _ENGINE_EXIT_CODES.get(code)) is not None:
        log.log_note(f"exit code {code}: {why}; or the command itself ended with {code}")
    return code


def _stop_container(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    log.log_note(f"ending the container {name}; the command inside has {STOP_SECONDS} seconds")
    with _ignore_signals():
        _try_engine(engine, ["stop", "-t", str(STOP_SECONDS), name], env)


def _remove_container(engine: Engine, name: str, env: Mapping[str, str]) -> None:
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


def require_image(engine: Engine, reference: str, env: Mapping[str, str], *, how: str) -> None:
    """Raise EngineError when an image that is made here is not; ``how`` says how to make it."""
    argv = [engine.program, "image", "inspect", "--format", "{{.Id}}", reference]
    try:
        capture_output(
            argv, env=env, timeout=60, check=EngineError, description=f"`{engine.name} image inspect`"
        )
    except EngineError as missing:
        raise EngineError(
            f"there is no image {reference} here", tip=find_advice(missing.message) or how
        ) from None


def _try_engine(engine: Engine, words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what an engine printed, ``None`` when it failed: there may be nothing left to stop."""
    try:
        return capture_output(
            [engine.program, *words], env=env, timeout=STOP_SECONDS + 20.0, check=EngineError
        )
    except EngineError:
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
