"""The boundary between commands and the shell: exit codes, and how errors look."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from rocm_wheels import log
from rocm_wheels.errors import RocmWheelsError, explain

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
_FULL = "free some space and run the same command again; what is finished is kept"
_CLOSED = "make it writable, or choose another folder"
_DISK_TIPS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.EROFS: _CLOSED,
}


def environment() -> dict[str, str]:
    """Return a copy of the process's environment: read here once, handed down from here."""
    return dict(os.environ)


def run_command(command: click.Command, argv: list[str] | None = None) -> int:
    """Run a click command and return its exit code; errors are printed, never raised.

    2 usage or data, 10 sources, 11 SDK, 12 build, 13 package, 14 audit, 15 release,
    16 tests, 130 interrupted; 1 is a bug and shows its traceback.
    """
    log.configure(os.environ)
    previous = signal.signal(signal.SIGTERM, _interrupt)
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
    except BrokenPipeError:
        # the reader of our output left (`| head`); nothing more to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as failure:
        if failure.errno not in _DISK_TIPS:
            raise
        log.live("")
        log.error(explain(_as_known(failure)))
        return RocmWheelsError.exit_code
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _interrupted() -> int:
    log.live("")
    log.error("interrupted\ntip: run the same command again; it carries on where it was")
    return INTERRUPTED


def _as_known(failure: OSError) -> RocmWheelsError:
    where = f" ({failure.filename})" if failure.filename else ""
    return RocmWheelsError(f"{failure.strerror}{where}", tip=_DISK_TIPS[failure.errno or 0])
