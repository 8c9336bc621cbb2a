"""Reach git servers: origins and refs, the commit behind a ref, and transfers of commits.

A failure is tried again by the one policy of ``core.retry``, but for words that say it will not change: no
such repository or ref, nobody let in, a repository that is damaged, a full disk. A transfer is cut when
nothing comes any more.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rocm_wheels.core import errors, log, process, retry, shell, tables
from rocm_wheels.sources import checkout_state, trees
from rocm_wheels.sources.git import Git, add_advice, find_objects_folder

_T = TypeVar("_T")

_SLOW_BYTES = 1000  # a second; less than this for the whole time counts as standing still

# What git, curl and ssh say (git 2.28 to 2.51: http.c, connect.c, upload-pack.c, zlib.c), and what helps
BY_NAME_ONLY = re.compile(r"(?i)unadvertised object")  # a server that gives out branches and tags only
_ADVICE = (
    (
        re.compile(
            r"(?i)authentication failed|could not read (username|password)|permission denied \(|error: 40[13]"
        ),
        "let git know how to log in there (credential helper, ~/.netrc, SSH key); locks hold no passwords",
    ),
    (
        re.compile(r"(?i)repository corruption on the remote side|inflate(: data stream error| returned)"),
        "the repository that was asked is damaged (`git fsck` there says more): have it repaired, "
        "or take another",
    ),
)
_NO_REPOSITORY = re.compile(
    r"repository .* (not found|does not exist)|does not appear to be a git repository"
)
_LASTING = re.compile(
    r"""(?xi) not\ (found|allowed|our\ ref|support|a\ git) | does\ not\ (exist|appear) | find\ remote\ ref
    | denied | read-only | no\ (space|path|version|git\ that) | is\ too\ old | file\ exists | invalid\ gitfile
    | bad\ (\w+\ )?config | unsupported | algorithms | error:\ 4(00|04|10) | certificate | host\ key
    | blocked"""
)


@dataclass(frozen=True)
class Transport:
    """``retries`` after a failure that may pass; ``timeout``: seconds that a transfer may stand still.

    ``mirrors``: the folder of bare repositories that checkouts share (``None``: none).
    ``jobs``: transfers at a time, of all repositories that are fetched with this record.
    """

    retries: int = 4
    timeout: float = 120.0
    mirrors: Path | None = None
    jobs: int = 8
    _places: threading.Semaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", threading.Semaphore(max(self.jobs, 1)))

    def hold_slot(self) -> AbstractContextManager[bool]:
        """Wait until one of the ``jobs`` places is free, and hold it for one transfer."""
        return self._places

    @property
    def settings(self) -> tuple[str, ...]:
        """Configuration (``key=value``) with which git itself gives up on a slow HTTP transfer."""
        return f"http.lowSpeedLimit={_SLOW_BYTES}", f"http.lowSpeedTime={max(1, round(self.timeout))}"


def is_transient(failure: Exception) -> bool:
    """Tell whether a failure is worth another attempt: git's, and no words of it say that it will last."""
    lasting = (_LASTING, BY_NAME_ONLY, *(words for words, _ in _ADVICE))
    return isinstance(failure, errors.SourceError) and not any(w.search(str(failure)) for w in lasting)


def attempt_with_retries(attempt: Callable[[], _T], *, transport: Transport, activity: str) -> _T:
    """Return what ``attempt`` returns; after a failure that may pass it is made again, and that is said.

    Raises the last SourceError, with the tip that its words call for.
    """

    def warn_of_retry(failure: Exception, number: int, seconds: float) -> None:
        reason = str(failure).strip().splitlines()[-1].lstrip(" |")
        wait = f"{tables.format_duration(round(seconds))} ({number} of {transport.retries})"
        log.log_warning(f"{activity}: {reason}; trying again in {wait}")

    policy = retry.RetryPolicy(transport.retries)
    try:
        return retry.run_with_retries(
            attempt, policy=policy, is_transient=is_transient, on_retry=warn_of_retry
        )
    except errors.SourceError as failure:
        failure.tip = next((tip for words, tip in _ADVICE if words.search(str(failure))), failure.tip)
        raise


_COMMIT = re.compile(r"[0-9a-fA-F]{40}\Z")
_LONG_ID = re.compile(r"[0-9a-f]{64}\Z")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|\A[-/]|//|/\Z|\.\Z|\.lock\Z")  # git-check-ref-format
_FILE_URL = re.compile(r"(?i)file://")
# what anybody's .gitmodules may name (git-config(1), protocol.allow); the rest only who is trusted
_SERVER = re.compile(r"(?i)(https?|ssh|git|git\+ssh|ssh\+git)://|[^/:]+:(?!//|:)")
_HTTP = re.compile(r"(?i)(?P<scheme>https?://)([^/\s]+@)?")
_PASSWORD = re.compile(r"(?P<user>\A[\w.+-]+://[^/\s:@]*):[^/\s]*@")
_URL = re.compile(r"[a-zA-Z][\w+.-]*://|[^/]*:")  # a scheme, or host:path as for ssh


def parse_origin(text: str, base: Path) -> tuple[str, bool]:
    """Return an origin as git can use it from anywhere, and whether it is on this machine.

    A path becomes absolute from ``base``. Raises UsageError for text that is no repository.
    """
    if not text or text.startswith("-") or any(letter in text for letter in "\n\r\0"):
        raise errors.UsageError(f"{text!r} is not a repository", tip="give a URL or a folder")
    if _FILE_URL.match(text):
        return text, True
    if _URL.match(text) and not (base / text).exists():
        return text, False
    return str((base / text).resolve()), True


def strip_credentials(origin: str) -> str:
    """Return an origin for everybody: no user in a web address, nowhere a password, no token in a query."""
    origin = shell.drop_query_secrets(origin) if _HTTP.match(origin) else origin
    return _PASSWORD.sub(r"\g<user>@", _HTTP.sub(r"\g<scheme>", origin, count=1))


def is_server(origin: str) -> bool:
    """Tell whether git lets a foreign repository name an origin: it is neither a folder nor a program."""
    return bool(_SERVER.match(origin))


def check_ref(ref: str) -> None:
    """Raise UsageError for what cannot name a branch, a tag or a commit."""
    if not ref or _NO_REF.search(ref):
        raise errors.UsageError(
            f"{ref!r} is not a ref", tip="give a branch, a tag, refs/pull/N/head or all 40 digits of a commit"
        )
    if _LONG_ID.match(ref):
        raise make_sha256_error(f"{ref} is a commit of a repository that")


def make_sha256_error(subject: str) -> errors.SourceError:
    """Return the error for ``subject`` (a subject), which names its objects by SHA-256."""
    return errors.SourceError(
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
    options: tuple[str, str] = ("--origin", "--ref"),
) -> tuple[str, str]:
    """Ask ``origin`` what ``ref`` is; return (commit, what to fetch). A commit id is not asked for.

    No mirror answers for a branch or a tag: it would give an older one. ``options`` are those that name
    an origin and a ref, for what is said. Raises SourceError when there
    is no such ref, or a branch and a tag of that name differ.
    """
    if is_commit(ref):
        return ref.lower(), ref.lower()
    origin_name = shell.hide_credentials(origin)
    asking, activity = git.with_settings(*transport.settings), f"asking {origin_name} for {ref}"
    tip = f"check {options[0] or 'the origin in the recipe'} and the network; nothing was changed"

    def ask() -> str:
        with add_advice(git.directory):
            return process.capture_output(
                asking.command(["ls-remote", "--quiet", "--", origin, ref, f"{ref}^{{}}"]),
                env=asking.environment(), cwd=asking.directory, timeout=transport.timeout,
                check=errors.SourceError, description=activity, tip=tip,
            )  # fmt: skip

    try:
        output = attempt_with_retries(ask, transport=transport, activity=activity)
    except errors.SourceError as failure:
        if transport.mirrors is not None:
            hint = f"A mirror never answers for a branch or tag; it does for a commit ({options[1]})"
            failure.tip = f"{failure.tip}. {hint}"
        raise
    refs = {name: commit for commit, name in (line.split("\t", 1) for line in output.splitlines())}
    if any(map(_LONG_ID.match, refs.values())):
        raise make_sha256_error(origin_name)
    whole = ref in refs and (ref == "HEAD" or ref.startswith("refs/"))  # whatever else ends like it
    names = [ref] if whole else [ref, f"refs/{ref}", f"refs/heads/{ref}", f"refs/tags/{ref}"]
    commits = {name: refs.get(f"{name}^{{}}", refs[name]) for name in names if name in refs}
    if not commits:
        tip = "see `git ls-remote`; a pull request is refs/pull/N/head"
        if re.fullmatch("[0-9a-fA-F]{7,}", ref):
            tip = "a commit needs all 40 digits"
        raise errors.SourceError(f"{origin_name} has no branch, tag or ref {ref}", tip=tip)
    if len(set(commits.values())) > 1:
        meanings = ", ".join(f"{name} is {commit[:12]}" for name, commit in commits.items())
        raise errors.SourceError(
            f"{ref} of {origin_name} is ambiguous: {meanings}",
            tip=f"give the whole name, {' or '.join(commits)}",
        )
    name, commit = next(iter(commits.items()))
    return commit, name


SERVED_REFS = "refs/rocm-wheels/served"  # all branches and tags of a server that gives out nothing else
# begins the names of folders in OWN_FOLDER that are moved to their place when whole
NEW_FOLDER_PREFIX = "new-"
# in OWN_FOLDER while a repository is written, and no operation on its tree is noted
_FETCHING_MARK = "fetching"


@dataclass(frozen=True)
class CommitRequest:
    """What is to be had: ``source``, a ref or a commit, of ``origin``; ``name`` is a submodule's path.

    ``trusted``: the user chose the origin. What a repository names may only come from a server,
    as for git itself (``GIT_PROTOCOL_FROM_USER``).
    """

    origin: str
    source: str
    name: str = ""
    trusted: bool = True

    @property
    def description(self) -> str:
        """Say it to people, without credentials."""
        source = self.source[:12] if is_commit(self.source) else self.source
        return f"{source} of {shell.hide_credentials(self.origin)}" + (f" ({self.name})" if self.name else "")


def fetch_commit(
    git: Git,
    request: CommitRequest,
    target: str,
    *,
    depth: int | None,
    transport: Transport,
    space: str = SERVED_REFS,
) -> str:
    """Fetch into the ref ``target`` and return the commit that came; no file of a tree is touched.

    A server that gives out commits only by branch or tag gives all of them, below ``space``, which is said.
    Raises SourceError.
    """
    log.log_note(f"fetching {request.description}" + (f", {depth} commits deep" if depth is not None else ""))
    # of a shallow clone a tree takes what there is, as `git clone` does; a mirror has to be whole
    whole = ["--update-shallow"] if space == SERVED_REFS else []
    cut = whole if depth is None else [f"--depth={depth}"]
    try:
        transfer(git, request, [*cut, f"+{request.source}:{target}"], transport)
    except errors.SourceError as refused:
        if not is_commit(request.source) or not BY_NAME_ONLY.search(str(refused)):
            raise
        reason = "the server gives out branches and tags only; fetching all, with whole history"
        log.log_warning(f"{request.description}: {reason}")
        fetch_all_names(git, request, space, transport)
        git.text("update-ref", target, request.source)
    asked = f"{target}^{{}}\n{target}^{{tree}}\n"
    answers = git.text("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked.encode())
    (commit, kind), (_, tree) = (line.split(" ") for line in answers.split("\n"))
    if kind != "commit" or tree == "missing":
        git.text("update-ref", "-d", target)
        fault, tip = f"is a {kind}, not a commit", "name a branch, a commit, or a tag of one"
        if kind == "missing" or (kind == "commit" and tree == "missing"):
            fault, tip = "came without its files", "a shallow clone cannot fill a mirror: name another origin"
        raise errors.SourceError(f"{request.description} {fault}", tip=tip)
    return commit


def fetch_all_names(git: Git, request: CommitRequest, space: str, transport: Transport, *names: str) -> None:
    """Fetch every branch and tag, and further ``names``, below ``space``; whole, for a commit in one of them.

    Raises SourceError when it is in none.
    """
    refspecs = [f"+refs/{kind}/*:{space}/{kind}/*" for kind in ("heads", "tags")]
    deepen = ["--unshallow"] if is_shallow(git) else []
    transfer(git, request, [*deepen, "--prune", *refspecs, *names], transport)
    if not trees.has_object(git, request.source):
        raise errors.SourceError(
            f"no branch or tag of {shell.hide_credentials(request.origin)} holds {request.source}",
            tip="it gives out nothing else: name another commit, a branch that holds it, or another origin",
        )


def is_shallow(git: Git) -> bool:
    """Tell whether history was cut."""
    return git.text("rev-parse", "--is-shallow-repository") == "true"


@contextmanager
def mark_under_way(git_dir: Path) -> Iterator[None]:
    """Mark a repository that is written to; what a killed run left half written is removed first.

    Only for somebody who holds the repository (``lock_folder``).
    """
    if was_interrupted(git_dir):
        remove_leftovers(git_dir)
    mark = git_dir / checkout_state.OWN_FOLDER / _FETCHING_MARK
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def was_interrupted(git_dir: Path) -> bool:
    """Tell whether a run was killed while it wrote into a repository (``mark_under_way``)."""
    return (git_dir / checkout_state.OWN_FOLDER / _FETCHING_MARK).exists()


def transfer(git: Git, request: CommitRequest, words: Sequence[str], transport: Transport) -> None:
    """Run `git fetch` from an origin with options and refspecs; no tag and no submodule comes with it.

    Beginnings of packs that git leaves behind are removed. Raises SourceError.
    """
    # one file, however few objects come: hundreds of files are slow to write, and not synced
    asking = git.with_settings(*transport.settings, "fetch.unpackLimit=1")
    if not request.trusted:
        asking = asking.with_variables(GIT_PROTOCOL_FROM_USER="0")
    packs = find_objects_folder(git) / "pack"
    options = [word for word in words if word.startswith("-")]
    activity = f"fetching {request.description}"
    tip = "run the same command again when the network is back; what was fetched is kept"
    if is_commit(request.source):
        tip = (
            "the server may not have this commit, or may give out commits only by branch or tag: "
            "name a branch or tag that holds it"
        )

    def attempt() -> None:
        before = set(packs.glob("tmp_*"))
        try:
            with transport.hold_slot():
                # by its URL: with a remote's name, a fetch that fails leaves another configuration
                asking.run_network(
                    "fetch", "--progress", "--no-tags", "--no-recurse-submodules", "--force",
                    *options, "--", request.origin, *words[len(options) :],
                    activity=activity, silence=transport.timeout, tip=tip,
                )  # fmt: skip
        finally:
            for scrap in set(packs.glob("tmp_*")) - before:
                scrap.unlink(missing_ok=True)

    try:
        attempt_with_retries(attempt, transport=transport, activity=activity)
    except errors.SourceError as failure:
        if "mismatched algorithms" in str(failure):
            raise make_sha256_error(shell.hide_credentials(request.origin)) from failure
        if _NO_REPOSITORY.search(str(failure)):
            failure.tip = "check the address; a server answers the same when you lack access"
        raise


def remove_leftovers(git_dir: Path) -> None:
    """Remove what a git that was killed left in a repository and those of its submodules.

    These are its lock files, and beginnings of packs and of repositories, which git never uses again.
    """
    own = checkout_state.OWN_FOLDER
    for begun in (git_dir / own).glob(f"{NEW_FOLDER_PREFIX}*"):
        shutil.rmtree(begun)
    for folder, folders, files in os.walk(git_dir):
        scraps = [Path(folder, name) for name in files if name.endswith(".lock")]
        if folder == str(git_dir) or ("HEAD" in files and "objects" in folders):  # elsewhere, parts of a name
            folders[:] = [name for name in folders if name not in ("objects", "worktrees", own)]
            for pattern in ("tmp_*", ".pack-*"):
                scraps += Path(folder, "objects/pack").glob(pattern)
        for scrap in scraps:
            scrap.unlink(missing_ok=True)
