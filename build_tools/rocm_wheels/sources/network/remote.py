"""Origins and refs: what may be asked for, and the commit behind a ref, which only its server knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels import process, shell
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.sources.advice import add_advice
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.network.transport import Transport, attempt_with_retries

_COMMIT = re.compile(r"[0-9a-fA-F]{40}\Z")
_LONG_ID = re.compile(r"[0-9a-f]{64}\Z")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|\A[-/]|//|/\Z|\.\Z|\.lock\Z")  # git-check-ref-format
_FILE_URL = re.compile(r"file://", re.IGNORECASE)
# what anybody's .gitmodules may name (git-config(1), protocol.allow); the rest only who is trusted
_SERVER = re.compile(r"(https?|ssh|git|git\+ssh|ssh\+git)://|[^/:]+:(?!//|:)", re.IGNORECASE)
_HTTP = re.compile(r"(?P<scheme>https?://)[^/\s]+@", re.IGNORECASE)
_PASSWORD = re.compile(r"(?P<user>\A[\w.+-]+://[^/\s:@]*):[^/\s]*@")
_URL = re.compile(r"[a-zA-Z][\w+.-]*://|[^/]*:")  # a scheme, or host:path as for ssh


def parse_origin(text: str, base: Path) -> tuple[str, bool]:
    """Return an origin as git can use it from anywhere, and whether it is on this machine.

    A path becomes absolute from ``base``. Raises UsageError for text that is no repository.
    """
    if not text or text.startswith("-") or any(letter in text for letter in "\n\r\0"):
        raise UsageError(f"{text!r} is not a repository", tip="give a URL or a folder")
    if _FILE_URL.match(text):
        return text, True
    if _URL.match(text) and not (base / text).exists():
        return text, False
    return str((base / text).resolve()), True


def strip_credentials(origin: str) -> str:
    """Return an origin that may be shown to everybody: no user in a web address, nowhere a password."""
    return _PASSWORD.sub(r"\g<user>@", _HTTP.sub(r"\g<scheme>", origin, count=1))


def is_server(origin: str) -> bool:
    """Tell whether git lets a foreign repository name an origin: it is neither a folder nor a program."""
    return bool(_SERVER.match(origin))


def check_ref(ref: str) -> None:
    """Raise UsageError for what cannot name a branch, a tag or a commit."""
    if not ref or _NO_REF.search(ref):
        raise UsageError(
            f"{ref!r} is not a ref", tip="give a branch, a tag, refs/pull/N/head or all 40 digits of a commit"
        )
    if _LONG_ID.match(ref):
        raise make_sha256_error(f"{ref} is a commit of a repository that")


def make_sha256_error(subject: str) -> SourceError:
    """Return the error for ``subject`` (a subject), which names its objects by SHA-256."""
    return SourceError(
        f"{subject} uses SHA-256 object ids, and only SHA-1 repositories can be checked out",
        tip="diffbase tags, locks and patches name commits by 40 digits; ask for a SHA-1 repository",
    )


def is_commit(ref: str) -> bool:
    """Tell whether a ref is a whole commit id."""
    return bool(_COMMIT.match(ref))


def resolve_ref(
    git: Git,
    origin: str,
    ref: str,
    *,
    transport: Transport,
    options: tuple[str, str] = ("--gitrepo-origin", "--repo-hashtag"),
) -> tuple[str, str]:
    """Ask ``origin`` what ``ref`` is; return (commit, what to fetch). A commit id is not asked for.

    No mirror answers for a branch or a tag: it would give an older one. ``options`` are those that name
    an origin and a ref, for what is said. Raises SourceError when there
    is no such ref, or a branch and a tag of that name differ.
    """
    if is_commit(ref):
        return ref.lower(), ref.lower()
    origin_name = shell.hide_credentials(origin)
    with add_advice(git.directory), _explain_mirrors(transport, options[1]):
        refs = _list_refs(git, origin, ref, transport=transport, option=options[0])
    return _select_ref(ref, refs, origin_name)


def _list_refs(git: Git, origin: str, ref: str, *, transport: Transport, option: str) -> dict[str, str]:
    """Return the refs of ``origin`` that end like ``ref``, with their commits; a tag with what it is of."""
    asking, activity = (
        git.with_settings(*transport.settings),
        f"asking {shell.hide_credentials(origin)} for {ref}",
    )
    output = attempt_with_retries(
        lambda: process.capture_output(
            asking.command(["ls-remote", "--quiet", "--", origin, ref, f"{ref}^{{}}"]),
            env=asking.environment(),
            cwd=asking.directory,
            timeout=transport.timeout,
            check=SourceError,
            description=activity,
            tip=f"check {option} and the network; nothing was changed",
        ),
        transport=transport,
        activity=activity,
    )
    return {name: commit for commit, name in (line.split("\t", 1) for line in output.splitlines())}


def _select_ref(ref: str, refs: Mapping[str, str], origin_name: str) -> tuple[str, str]:
    """Return which of the refs that were ``refs`` is meant: its commit, and its name. Raises SourceError."""
    names = [ref, f"refs/{ref}", f"refs/heads/{ref}", f"refs/tags/{ref}"]
    if ref in refs and (ref == "HEAD" or ref.startswith("refs/")):
        names = [ref]  # a whole name, whatever else ends like it
    names = [name for name in names if name in refs]
    if not names:
        raise SourceError(
            f"{origin_name} has no branch, tag or ref {ref}",
            tip="a commit needs all 40 digits"
            if re.fullmatch("[0-9a-fA-F]{7,}", ref)
            else "see `git ls-remote`; a pull request is refs/pull/N/head",
        )
    if any(_LONG_ID.match(commit) for commit in refs.values()):
        raise make_sha256_error(origin_name)
    commits = {name: refs.get(f"{name}^{{}}", refs[name]) for name in names}
    if len(set(commits.values())) > 1:
        raise SourceError(
            f"{ref} of {origin_name} is ambiguous: "
            + ", ".join(f"{n} is {c[:12]}" for n, c in commits.items()),
            tip=f"give the whole name, {' or '.join(commits)}",
        )
    return commits[names[0]], names[0]


@contextmanager
def _explain_mirrors(transport: Transport, option: str) -> Iterator[None]:
    """Say of a server that cannot be asked that a mirror does not stand in for it."""
    try:
        yield
    except SourceError as failure:
        if transport.mirrors is not None:
            hint = f"A mirror never answers for a branch or tag; it does for a commit ({option})"
            failure.tip = f"{failure.tip}. {hint}"
        raise
