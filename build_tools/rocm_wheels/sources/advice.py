"""What to do about failures that git reports in its own words, whatever was being done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rocm_wheels.errors import SourceError

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


def advice(said: str, damaged: str = "") -> str | None:
    """Return what to do about a failure, where git's words tell; those of a server say nothing of us.

    ``damaged``: what it is that words about broken files are about (empty: nothing of ours).
    """
    here = "\n".join(line for line in said.splitlines() if not line.lstrip(" |").startswith("remote:"))
    if damaged and _DAMAGE.search(here):
        return (
            f"{damaged} is damaged; `git fsck` says more. Move it away, "
            "or check out into another folder with --checkout-dir"
        )
    return next((tip for words, tip in _ADVICE if words.search(here)), None)


@contextmanager
def advised(damaged: str = "") -> Iterator[None]:
    """Give a failure of git the tip that its words call for, where there is one (see ``advice``)."""
    try:
        yield
    except SourceError as failure:
        failure.tip = advice(failure.message, damaged) or failure.tip
        raise
