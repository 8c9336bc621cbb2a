"""The boundary between commands and the shell: exit codes, and how errors look."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError, explain
from rocm_wheels.shell import shell_line

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
_STARTED_BY = "ROCM_WHEELS_STARTED_BY"
_OF_A_RUN = "ROCM_WHEELS_RECORD"  # set for the steps of a run, which says itself that it was interrupted
_FULL = "free some space and run the same command again; what is finished is kept"
_CLOSED = "make it writable, or choose another folder"
_NO_FOLDER = "choose another path"
_DISK_TIPS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.EROFS: _CLOSED,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EISDIR: _NO_FOLDER,
    errno.ENAMETOOLONG: _NO_FOLDER,
}
# a terminal that was closed, a session that was lost: nothing that we started may go on alone
_ENDINGS = ("SIGTERM", "SIGHUP")


def environment() -> dict[str, str]:
    """Return a copy of the process's environment: read here once, handed down from here."""
    return dict(os.environ)


def started_by(env: MutableMapping[str, str]) -> Path:
    """Return the interpreter that a door was started by, which may have changed to another; else our own.

    The door's note of it is taken out of ``env``: it is not for programs that are started from here.
    """
    return Path(env.pop(_STARTED_BY, "") or sys.executable)


def build_environment() -> dict[str, str]:
    """Return a copy of the process's environment, on Windows with Visual Studio's compilers."""
    from rocm_wheels.compile.developer_prompt import with_compilers

    return with_compilers(environment(), sys.platform)


def command_line() -> str:
    """Return the line that people gave, ready for a shell, without credentials."""
    return shell_line([Path(sys.argv[0]).name, *sys.argv[1:]])


def run_command(command: click.Command, argv: list[str] | None = None) -> int:
    """Run a click command and return its exit code; errors are printed, never raised.

    2 usage or data, 10 sources, 11 SDK, 12 build, 14 audit, 16 checks of an installed torch, 17 the user's
    machine, 18 container engines, 130 interrupted; 1 is a bug and shows its traceback.
    """
    log.configure(os.environ)
    _print_whatever_comes()
    previous = _catch_endings()
    try:
        result = command.main(args=argv, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except click.ClickException as wrong:
        log.live("")
        wrong.show()
        return wrong.exit_code
    except RocmWheelsError as known:
        log.live("")
        log.error(explain(known))
        return known.exit_code
    except OSError as failure:
        if (full := as_known(failure)) is None:
            raise
        log.live("")
        log.error(explain(full))
        return full.exit_code
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _print_whatever_comes() -> None:
    """Have stdout show ``?`` for what its encoding has not: in a pipe on Windows, or an old locale."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _catch_endings() -> dict[int, Any]:
    """Turn signals that would end us at once into an interruption; return the handlers to put back.

    SIGHUP stays ignored where the caller ignores it: nohup says that we are to go on.
    """
    numbers = [getattr(signal, name) for name in _ENDINGS if hasattr(signal, name)]
    ignored = [n for n in numbers if n != signal.SIGTERM and signal.getsignal(n) == signal.SIG_IGN]
    return {number: signal.signal(number, _interrupt) for number in numbers if number not in ignored}


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _interrupted() -> int:
    log.live("")
    if _OF_A_RUN not in os.environ:
        log.error("interrupted\ntip: run the same command again; it carries on where it was")
    return INTERRUPTED


def as_known(failure: OSError) -> RocmWheelsError | None:
    """Return what is shown of a disk that is full or closed to us; ``None`` for any other failure."""
    if failure.errno not in _DISK_TIPS:
        return None
    name = failure.filename2 or failure.filename  # of a copy, the second is what was to be written
    where = f" ({name})" if name else ""
    return RocmWheelsError(f"{failure.strerror}{where}", tip=_DISK_TIPS[failure.errno])
