"""What needs a server: the commit behind a ref, its objects, the submodules."""

from __future__ import annotations

import re
from pathlib import Path

from rocm_wheels import log, process
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.sources.git import LS_REMOTE_SECONDS, Git
from rocm_wheels.sources.state import FETCHED_REF
from rocm_wheels.sources.trees import has_object, repositories

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|\A[-/]|//|/\Z|\.\Z|\.lock\Z")  # git-check-ref-format
_LOCAL = re.compile(r"file://", re.IGNORECASE)
_URL = re.compile(r"[a-zA-Z][\w+.-]*://|[^/]*:")  # a scheme, or host:path as for ssh


def origin_of(text: str, base: Path) -> tuple[str, bool]:
    """Return an origin as git can use it from anywhere, and whether it is on this machine.

    A path becomes absolute from ``base``. Raises UsageError for text that is no repository.
    """
    if not text or text.startswith("-") or any(letter in text for letter in "\n\r\0"):
        raise UsageError(f"{text!r} is not a repository", tip="give a URL or a folder")
    if _LOCAL.match(text):
        return text, True
    if _URL.match(text) and not (base / text).exists():
        return text, False
    return str((base / text).resolve()), True


def check_ref(ref: str) -> None:
    """Raise UsageError for what cannot name a branch, a tag or a commit."""
    if not ref or _NO_REF.search(ref):
        raise UsageError(
            f"{ref!r} is not a ref", tip="give a branch, a tag, refs/pull/N/head or all 40 digits of a commit"
        )


def is_commit(ref: str) -> bool:
    """Tell whether a ref is a whole commit id."""
    return bool(_COMMIT.match(ref))


def resolve(git: Git, origin: str, ref: str) -> tuple[str, str]:
    """Ask ``origin`` what ``ref`` is; return (commit, what to fetch). A commit id is not asked for.

    Raises SourceError when there is no such ref, or a branch and a tag of that name differ.
    """
    if is_commit(ref):
        return ref, ref
    shown = process.hide_credentials(origin)
    said = process.capture(
        git.command(["ls-remote", "--quiet", origin, ref, f"{ref}^{{}}"]),
        env=git.environment(),
        cwd=git.directory,
        timeout=LS_REMOTE_SECONDS,
        check=SourceError,
        what=f"asking {shown} for {ref}",
        tip="check --gitrepo-origin and the network; nothing was changed",
    )
    found = {name: commit for commit, name in (line.split("\t", 1) for line in said.splitlines())}
    names = [name for name in (ref, f"refs/{ref}", f"refs/heads/{ref}", f"refs/tags/{ref}") if name in found]
    if not names:
        raise SourceError(
            f"{shown} has no branch, tag or ref {ref}",
            tip="a commit needs all 40 digits"
            if re.fullmatch("[0-9a-f]{7,39}", ref)
            else "see `git ls-remote`; a pull request is refs/pull/N/head",
        )
    commits = {name: found.get(f"{name}^{{}}", found[name]) for name in names}
    if len(set(commits.values())) > 1:
        raise SourceError(
            f"{ref} of {shown} is ambiguous: " + ", ".join(f"{n} is {c[:12]}" for n, c in commits.items()),
            tip=f"give the whole name, {' or '.join(commits)}",
        )
    return commits[names[0]], names[0]


def fetch(git: Git, origin: str, source: str, *, depth: int | None, jobs: int | None) -> str:
    """Fetch one ref or commit from ``origin`` and return the commit that came."""
    options = [f"--depth={depth}"] if depth is not None else []
    options += [f"--jobs={jobs}"] if jobs is not None else []
    shown = process.hide_credentials(origin)
    log.note(f"fetching {source} of {shown}" + (f", {depth} commits deep" if depth is not None else ""))
    tip = "run the same command again when the network is back; what was fetched is kept"
    if is_commit(source):
        tip = (
            "the server may not have this commit, or may give out commits only by branch or tag: "
            "name one that holds it with --repo-hashtag"
        )
    git.network(
        "fetch",
        "--no-tags",
        "--no-recurse-submodules",
        "--force",
        *options,
        origin,  # not the remote of that name: a fetch that fails leaves the configuration as it was
        f"+{source}:{FETCHED_REF}",
        what=f"fetching {source} of {shown}",
        tip=tip,
    )
    return git.text("rev-parse", f"{FETCHED_REF}^{{commit}}")


def is_shallow(git: Git) -> bool:
    """Tell whether history was cut."""
    return git.text("rev-parse", "--is-shallow-repository") == "true"


def update_submodules(git: Git, *, depth: int | None, jobs: int | None) -> None:
    """Put every submodule, recursively, at the commit that its parent names.

    With ``depth`` a server may not give out a commit that is no branch's tip; then history
    is fetched whole, and that is said. Raises SourceError with git's own words.
    """
    many = [f"--jobs={jobs}"] if jobs is not None else []
    base = ["submodule", "update", "--init", "--recursive", "--force", *many]
    tip = "run the same command again; finished submodules are kept"
    what = f"updating the submodules of {git.directory}"
    git.text("submodule", "--quiet", "sync", "--recursive")
    if depth is not None:
        try:
            git.network(*base, f"--depth={depth}", what=what)
        except SourceError as refused:
            log.warn(f"{refused}\nfetching the submodules again with their whole history")
            for part in repositories(git)[1:]:
                if not has_object(part.git, part.link) and is_shallow(part.git):
                    part.git.network(
                        "fetch",
                        "--unshallow",
                        "--no-recurse-submodules",
                        what=f"fetching {part.path}",
                        tip=tip,
                    )
        else:
            return
    git.network(*base, what=what, tip=tip)
