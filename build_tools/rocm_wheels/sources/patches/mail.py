"""A patch file and a commit: one made from the other, with nothing that differs between days or people.

Files are what `git am` takes. Committer and date of a commit are ours and its author's, so a
patch on the same commit is the same commit, made by anybody.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import SourceError
from rocm_wheels.sources.git import OUR_EMAIL, OUR_NAME, Git
from rocm_wheels.sources.patches.sets import Patch
from rocm_wheels.sources.trees import temporary_index

_DATE = re.compile(r"(?:\w{3}, )?\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\Z")
_BASE = re.compile(rb"^base-commit: ([0-9a-f]{40})$", re.MULTILINE)
_FROM = re.compile(rb"\AFrom ([0-9a-f]{40}) ")
_HUNK = re.compile(rb"^(@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@).*$", re.MULTILINE)
_DIFF = re.compile(rb"^diff --git ", re.MULTILINE)
# Whatever a user may have configured (format.*, diff.*), a file comes out the same. No renames: which
# git finds depends on its version. No names of functions after @@: so do they.
_FORMAT_OPTIONS = (
    "--always",
    "--binary",
    "--encode-email-headers",
    "--full-index",
    "--ignore-submodules=all",
    "--indent-heuristic",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--dst-prefix=b/",
    "--no-attach",
    "--no-base",
    "--no-color",
    "--no-cover-letter",
    "--no-ext-diff",
    "--no-from",
    "--no-notes",
    "--no-numbered",
    "--no-relative",
    "--no-renames",
    "--no-signature",
    "--no-signoff",
    "--no-stat",
    "--no-textconv",
    "--no-thread",
    "--no-to",
    "--no-cc",
    "--no-add-header",
    "--src-prefix=a/",
    "--subject-prefix=PATCH",
    "--suffix=.patch",
    "--unified=3",
    "--zero-commit",
)
_FORMAT_SETTINGS = (
    "core.abbrev=40",
    "core.compression=9",
    "core.quotePath=true",
    f"diff.orderFile={os.devnull}",
    "diff.suppressBlankEmpty=false",
    "format.filenameMaxLength=64",
    "format.forceInBodyFrom=false",
    "format.mboxrd=false",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
)


class PatchRefusedError(SourceError):
    """A patch cannot be applied; the message names it and what it was made for."""


@dataclass(frozen=True)
class PatchMail:
    """What a patch says of itself: author, date (RFC 2822), message, and the changes."""

    author: str
    email: str
    date: str
    message: bytes
    changes: bytes


def describe_base(patch: Patch, where: str = "") -> str:
    """Say which commit a patch was made for, as far as it tells; ``where`` names the one that is there."""
    if base := _BASE.search(patch.data):
        commit = base[1].decode()
        return f"it needs commit {commit}" + (
            ", which is there; a patch before it, or hipify, gives something else now"
            if commit[:12] in where
            else ""
        )
    parent = _FROM.match(patch.data)
    if parent and int(parent[1], 16):
        return f"it was made from commit {parent[1].decode()}, and needs the one before"
    return "it does not say which commit it needs (no base-commit line)"


def read_patch_mail(git: Git, patch: Patch) -> PatchMail:
    """Take a patch file apart as `git am` does. Raises PatchRefused for one without author or date."""
    if not patch.data.strip():
        raise PatchRefusedError(f"{patch.name} is empty", tip="take it out of the set, or write it again")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder:
        message, changes = Path(folder, "message"), Path(folder, "changes")
        output = git.text(
            "mailinfo",
            "-b",
            "--encoding=UTF-8",
            "--no-scissors",
            str(message),
            str(changes),
            stdin=patch.data,
            activity=f"reading {patch.name}",
        )
        facts = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
        body, diff = message.read_bytes().strip(b"\n"), changes.read_bytes()
    if not facts.get("Author") or not facts.get("Email") or not _DATE.match(facts.get("Date", "")):
        raise PatchRefusedError(
            f"{patch.name} has no author and date",
            tip="commit the change and make the file with `save-patches`",
        )
    subject = facts.get("Subject", "").encode("utf-8", "surrogateescape")
    whole = (subject + b"\n\n" + body if body else subject).rstrip() + b"\n"
    return PatchMail(facts["Author"], facts["Email"], facts["Date"], whole, diff)


def commit_series(git: Git, start: str, patches: Sequence[Patch], *, where: str) -> tuple[list[str], str]:
    """Store a commit for each patch, on top of ``start``; return them, and the tree of the last.

    No file and no ref is touched. ``where`` says in messages what ``start`` is. Raises PatchRefused with
    the patch's name.
    """
    commits: list[str] = []
    head, tree = start, ""
    with temporary_index(git, None, keep=True) as index_git:
        index_git.text("read-tree", start)
        for patch in patches:
            mail = read_patch_mail(git, patch)
            if _DIFF.search(mail.changes):
                _apply_patch(index_git, patch, mail, where)
            elif b"\n@@ -" in mail.changes:
                raise PatchRefusedError(f"{patch.name} is not a git diff", tip="make it with `save-patches`")
            tree = index_git.text("write-tree")
            head = _commit_patch(index_git, tree, head, mail, patch)
            commits.append(head)
    return commits, tree


def format_patch(git: Git, commit: str, number: int, upstream: str) -> Patch:
    """Return a commit as a patch file that says it needs ``upstream``; submodules' commits are left out."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as folder:
        quiet = git.with_settings(*_FORMAT_SETTINGS)
        quiet.text("format-patch", *_FORMAT_OPTIONS, f"--start-number={number}", "-o", folder, "-1", commit)
        (file,) = Path(folder).iterdir()
        data = file.read_bytes()
    match = _DIFF.search(data)
    head, diff = (data[: match.start()], data[match.start() :]) if match else (data, b"")
    head = head.rstrip(b"\n")
    base = b"\n" if b"\n\n" in head else b"\n\n"  # a line without text ends the headers
    base += f"---\nbase-commit: {upstream}\n".encode("ascii")
    return Patch(file.name, head + base + (b"\n" + _HUNK.sub(rb"\1", diff) if diff else b""))


def _apply_patch(index_git: Git, patch: Patch, mail: PatchMail, where: str) -> None:
    strict = index_git.with_settings("apply.ignoreWhitespace=no", "apply.whitespace=nowarn")
    try:
        strict.text(
            "apply",
            "--cached",
            "--binary",
            "--whitespace=nowarn",
            "-",
            stdin=mail.changes,
            activity="git apply",
        )
    except SourceError as cause:
        raise PatchRefusedError(
            f"{patch.name} does not apply to {where}: {describe_base(patch, where)}",
            tip="check that commit out with this patch set, move the patch to the new one (`git rebase`) and "
            "use `save-patches`; or take it out of the set, or use --no-patch",
        ) from cause


def _commit_patch(git: Git, tree: str, parent: str, mail: PatchMail, patch: Patch) -> str:
    return git.with_variables(
        GIT_AUTHOR_NAME=mail.author,
        GIT_AUTHOR_EMAIL=mail.email,
        GIT_AUTHOR_DATE=mail.date,
        GIT_COMMITTER_NAME=OUR_NAME,
        GIT_COMMITTER_EMAIL=OUR_EMAIL,
        GIT_COMMITTER_DATE=mail.date,
    ).text("commit-tree", tree, "-p", parent, stdin=mail.message, activity=f"the commit of {patch.name}")
