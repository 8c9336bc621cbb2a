"""Errors that commands end with, each with an exit code and a tip; findings, of which there can be many.

A message says what went wrong and where; ``tip`` says what to do about it. Chain
with ``raise … from cause`` and the whole chain is printed as "X because Y".
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal


class RocmWheelsError(Exception):
    """Root of the errors that are shown without a traceback.

    ``exit_code`` is what the command returns to the shell; 1 is kept for bugs.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, tip: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.tip = tip


class UsageError(RocmWheelsError):
    """An option or argument cannot be used as given."""


class MissingExtraError(UsageError):
    """A part of rocm-wheels is needed that was not installed: the libraries of one of its extras."""


class DataError(RocmWheelsError):
    """A file that we read (recipe, table, wheel, device code) is not what it must be."""


class SourceError(RocmWheelsError):
    """A source tree cannot be checked out, patched or hipified."""

    exit_code = 10


class SdkError(RocmWheelsError):
    """The ROCm packages cannot be installed, asked or made."""

    exit_code = 11


class BuildError(RocmWheelsError):
    """A project's own build failed."""

    exit_code = 12


class PackageError(RocmWheelsError):
    """What was asked cannot be done to a finished wheel, or what is said of how it was made is wrong."""

    exit_code = 13


class AuditError(RocmWheelsError):
    """A finished wheel is not what was asked for."""

    exit_code = 14


class ReleaseError(RocmWheelsError):
    """A set of wheels cannot be staged, is held by its gate, or cannot be promoted."""

    exit_code = 15


class ChecksError(RocmWheelsError):
    """A check of an installed torch failed."""

    exit_code = 16


class HostError(RocmWheelsError):
    """The user's machine cannot be served, an installation failed, or something is wrong with it."""

    exit_code = 17


class EngineError(RocmWheelsError):
    """No container engine can be used here, or it could not do what was asked."""

    exit_code = 18


class InternalError(RocmWheelsError):
    """A bug of ours in another process, which has shown its traceback."""

    exit_code = 1


class InterruptedRunError(RocmWheelsError):
    """Another process of ours was interrupted."""

    exit_code = 130


def get_error_class(code: int) -> type[RocmWheelsError]:
    """Return the class of error that a process of ours ended with."""
    error_classes = RocmWheelsError.__subclasses__()
    return next((kind for kind in error_classes if kind.exit_code == code), InternalError)


_DISK_FULL_TIP = "free some space and run the same command again; what is finished is kept"
_NOT_WRITABLE_TIP = "make it writable, or choose another folder"
_NO_FOLDER_TIP = "choose another path"
DISK_TIPS = {
    errno.ENOSPC: _DISK_FULL_TIP,
    errno.EDQUOT: _DISK_FULL_TIP,
    errno.EFBIG: "raise `ulimit -f` (FAT takes 4 GiB), or free some space, then run the same command again",
    errno.EACCES: _NOT_WRITABLE_TIP,
    errno.EPERM: _NOT_WRITABLE_TIP,
    errno.EROFS: _NOT_WRITABLE_TIP,
    errno.ENOTDIR: _NO_FOLDER_TIP,
    errno.EISDIR: _NO_FOLDER_TIP,
    errno.ENAMETOOLONG: _NO_FOLDER_TIP,
}
"""What to do about a disk that is full or closed to us, by the number of the error."""


@contextmanager
def name_failed_file(path: Path) -> Iterator[None]:
    """Have failures of the disk name the file that they are about, where they do not: writes do not."""
    try:
        yield
    except OSError as failure:
        if failure.filename is None:
            failure.filename = str(path)
        raise


def explain_error(error: BaseException) -> str:
    """Return what an error and its causes say, then the innermost tip on its own line."""
    message, tip = split_explanation(error)
    return f"{message}\ntip: {tip}" if tip else message


def split_explanation(error: BaseException) -> tuple[str, str | None]:
    """Join an error and its causes as "X because Y"; return that and the innermost tip.

    Causes that only repeat what is already said are left out.
    """
    messages: list[str] = []
    tip: str | None = None
    current: BaseException | None = error
    while current is not None:
        text = str(current).strip() or type(current).__name__
        if not any(text in earlier for earlier in messages):
            messages.append(text)
        tip = getattr(current, "tip", None) or tip
        current = current.__cause__
    return "\n  because ".join(messages), tip


Severity = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What one check says.

    ``tip`` is what to do: a sentence, a command, or a line to paste. ``subject`` is what it is about (a
    member of a wheel, a row of a table, a URL), "" for the whole. ``source`` says who says so, "" where it
    was read here. ``check`` is its name and ``group`` what it is listed under; whoever runs the check fills
    them in.
    """

    severity: Severity
    message: str
    tip: str = ""
    subject: str = ""
    check: str = ""
    source: str = ""
    group: str = ""


def find_errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that make what was checked fail."""
    return tuple(finding for finding in findings if finding.severity == "error")


def format_finding(finding: Finding) -> str:
    """Return a finding as one line: ``device-code: torch/lib/x.so: holds …``; without how bad it is."""
    return ": ".join(filter(None, (finding.group, finding.check, finding.subject, finding.message)))
