"""What to do about failures that git reports in its own words, whatever was being done."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.errors import SourceError

_DISK_FULL = 2**18  # bytes
# What git says (seen of 2.39; the words are older and have stayed).
_ADVICE = (
    (
        re.compile(r"\.lock': File exists|could not lock config file"),
        "another git is at work in that repository: wait for it to end; if none is, remove the .lock file",
    ),
    (
        re.compile(r"bad (numeric |boolean )?config"),
        "correct git's configuration there (`git config --show-origin --list` names the files)",
    ),
    (
        re.compile(r"Permission denied(?! \()|Read-only file system"),  # ssh says why in brackets
        "have it readable and writable for you, or choose another folder",
    ),
)
_DAMAGE = re.compile(
    r"\bis corrupt\b|bad object (HEAD|refs/)|unable to (unpack|read) |index file (smaller|corrupt)"
    r"|bad index file|bad signature|not a git repository|invalid gitfile|does not match index"
)


def find_advice(output: str, damaged: str = "") -> str | None:
    """Return what to do about a failure, where git's words tell; those of a server say nothing of us.

    ``damaged``: what it is that words about broken files are about (empty: nothing of ours).
    """
    local_output = "\n".join(
        line for line in output.splitlines() if not line.lstrip(" |").startswith("remote:")
    )
    if damaged and _DAMAGE.search(local_output):
        return (
            f"{damaged} is damaged; `git fsck` says more. Move it away, "
            "or check out into another folder with --checkout-dir"
        )
    return next((tip for words, tip in _ADVICE if words.search(local_output)), None)


@contextmanager
def add_advice(folder: Path, damaged: str = "") -> Iterator[None]:
    """Give a failure of git the tip that its words call for, where there is one (see ``find_advice``).

    When the disk of ``folder`` is full, that is the tip: git does not always say so.
    """
    try:
        yield
    except SourceError as failure:
        if folder.exists() and shutil.disk_usage(folder).free < _DISK_FULL:
            failure.tip = "free some space, then run the same command again"
        else:
            failure.tip = find_advice(failure.message, damaged) or failure.tip
        raise
