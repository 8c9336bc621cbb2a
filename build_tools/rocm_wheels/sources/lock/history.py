"""The commits between two of one repository, from what is nearest: a checkout, a mirror, its server.

From a server come commits alone, no files, a few steps deep at most. A list is given only when it is
known to be whole: what lies behind a cut in the history could be on either side.
"""

from __future__ import annotations

import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log, parallel
from rocm_wheels.errors import SourceError
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.lock.diff import LockDiff
from rocm_wheels.sources.network.mirrors import locate_mirror
from rocm_wheels.sources.network.remote import parse_origin
from rocm_wheels.sources.network.transport import Transport, attempt_with_retries

HISTORY_DEPTHS = (64, 512, 4096)  # commits from each end; a release is some thousand commits long

ProjectPath = tuple[str, str]  # a project and the path of a submodule in it, "" for the project itself

_MISSING_COMMIT = re.compile(r"(?:not our ref|unadvertised object) (?P<commit>[0-9a-f]{40})")
# what git adds to every failure of ssh and of local paths
_ADVICE = {"Please make sure you have the correct access rights", "and the repository exists."}
_OLD, _NEW = "refs/rocm-wheels/old", "refs/rocm-wheels/new"
# `git rev-list` reads no setting of `git log`; of what it does read, these would change the answer
_UNCHANGED_HISTORY = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}


@dataclass(frozen=True)
class CommitSource:
    """A commit and the repository that gives it out.

    ``trusted``: the user chose the origin; one that a repository names may only be a server, as for git
    itself (``GIT_PROTOCOL_FROM_USER``).
    """

    origin: str
    commit: str
    trusted: bool = True


@dataclass(frozen=True)
class HistoryCommit:
    """A commit and the first line of its message, in letters that a terminal can be given."""

    id: str
    subject: str


@dataclass(frozen=True)
class CommitRange:
    """What ``new`` has and ``old`` lacks (``added``) and the reverse (``dropped``), newest first.

    Both are empty unless ``complete``; a branch that was pushed with force drops commits. ``source``: where
    the history was found.
    """

    added: tuple[HistoryCommit, ...]
    dropped: tuple[HistoryCommit, ...]
    complete: bool
    source: str


def find_commits_between(
    old: CommitSource,
    new: CommitSource,
    *,
    checkouts: Iterable[Path],
    transport: Transport,
    env: Mapping[str, str],
) -> CommitRange:
    """Return the commits between two places of one repository (or of a fork and its origin).

    ``checkouts``: checkouts to look into first; then come mirrors, then the servers. Raises SourceError when a
    server cannot be reached or no longer has one of the commits.
    """
    mirrors = (
        {locate_mirror(source.origin, transport.mirrors, env).folder for source in (old, new)}
        if transport.mirrors
        else ()
    )
    for folder in [*checkouts, *sorted(mirrors)]:
        if commit_range := _read_local_range(folder, old.commit, new.commit, env):
            return commit_range
    return _fetch_range(old, new, transport, env)


def read_histories(
    diff: LockDiff, *, repos: Path, submodules: bool, transport: Transport, env: Mapping[str, str]
) -> dict[ProjectPath, CommitRange | SourceError]:
    """Return what lies between the commits of every project that has another one, or why that is not known.

    ``repos``: the folder of the checkouts. ``submodules``: theirs too. Repositories are asked side by side;
    one that two projects have at the same commits is asked once.
    """
    moves: dict[tuple[CommitSource, CommitSource], list[ProjectPath]] = {}
    for project in diff.projects:
        if project.old is None or project.new is None:
            continue
        trusted = [parse_origin(entry.origin, Path("/"))[1] for entry in (project.old, project.new)]
        inner = (
            [(entry.path, entry.old, entry.new, trusted) for entry in project.submodules]
            if submodules
            else []
        )
        for path, old, new, trust in [("", project.old, project.new, [True, True]), *inner]:
            if old is not None and new is not None and old.commit != new.commit:
                sources = (
                    CommitSource(old.origin, old.commit, trust[0]),
                    CommitSource(new.origin, new.commit, trust[1]),
                )
                moves.setdefault(sources, []).append((project.name, path))

    def ask(item: tuple[tuple[CommitSource, CommitSource], list[ProjectPath]]) -> CommitRange:
        sources, project_paths = item
        checkouts = [repos / name / path for name, path in project_paths]
        with log.prefix_log_lines("/".join(part for part in project_paths[0] if part)):
            return find_commits_between(*sources, checkouts=checkouts, transport=transport, env=env)

    ranges: dict[ProjectPath, CommitRange | SourceError] = {}
    results = parallel.try_in_parallel(ask, moves.items(), jobs=transport.jobs)
    for project_paths, result in zip(moves.values(), results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, SourceError):
            raise result
        ranges.update(dict.fromkeys(project_paths, result))
    return ranges


def make_readable(text: str) -> str:
    """Return a stranger's text in letters that cannot steer a terminal or change the order of others.

    Bytes that are not UTF-8 become a replacement mark, control and format characters their escapes.
    """
    letters = []
    for letter in text:
        if "\udc80" <= letter <= "\udcff":
            letters.append("\ufffd")
        elif letter.isprintable():
            letters.append(letter)
        elif unicodedata.category(letter) == "Zs":
            letters.append(" ")
        else:
            letters.append(letter.encode("unicode_escape").decode("ascii"))
    return "".join(letters)


def _read_local_range(folder: Path, old: str, new: str, env: Mapping[str, str]) -> CommitRange | None:
    """Return what a repository on this machine says; ``None`` when it has not got it all."""
    if not ((folder / ".git").exists() or (folder / "HEAD").is_file()):
        return None
    git = Git(folder.absolute(), env, variables=_UNCHANGED_HISTORY)
    # not `cat-file -e`: in a partial clone, git before 2.39.4 asks the server for what is missing
    if not all(git.succeeds("rev-list", "--missing=allow-any", "-1", commit, "--") for commit in (old, new)):
        return None
    try:
        commit_range = _read_range(git, old, new, str(folder))
    except SourceError as error:
        log.log_note(
            f"{folder} has both commits, but not what lies between ({explain_failure(error)}); looking further"
        )
        return None
    return commit_range if commit_range.complete else None


def _fetch_range(
    old: CommitSource, new: CommitSource, transport: Transport, env: Mapping[str, str]
) -> CommitRange:
    """Fetch commits without their files into a repository that is thrown away, deeper step by step."""
    by_origin: dict[tuple[str, bool], list[str]] = {}
    for source, ref in ((old, _OLD), (new, _NEW)):
        by_origin.setdefault((source.origin, source.trusted), []).append(f"+{source.commit}:{ref}")
    origins = " and ".join(hide_credentials(origin) for origin in dict.fromkeys((old.origin, new.origin)))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-history-") as folder:
        git = Git(Path(folder), env, settings=transport.settings, variables=_UNCHANGED_HISTORY)
        git.text("init", "--quiet", "--bare", ".")
        log.log_note(f"fetching the commits between {old.commit[:12]} and {new.commit[:12]} of {origins}")
        for depth in HISTORY_DEPTHS:
            for (origin, trusted), refspecs in by_origin.items():
                asking = git if trusted else git.with_variables(GIT_PROTOCOL_FROM_USER="0")
                _fetch_commits(asking, origin, refspecs, depth, transport)
            commit_range = _read_range(git, old.commit, new.commit, origins)
            if commit_range.complete:
                return commit_range
    return CommitRange((), (), complete=False, source=origins)


def _fetch_commits(git: Git, origin: str, refspecs: Sequence[str], depth: int, transport: Transport) -> None:
    origin_name = hide_credentials(origin)
    activity = f"fetching commits of {origin_name}"
    words = ["--progress", "--no-tags", "--no-prune", "--no-recurse-submodules"]
    words += ["--filter=tree:0", f"--depth={depth}"]

    def attempt() -> None:
        with transport.hold_slot():
            git.run_network(
                "fetch", *words, "--", origin, *refspecs, activity=activity, silence=transport.timeout
            )

    try:
        attempt_with_retries(attempt, transport=transport, activity=activity)
    except SourceError as refused:
        if missing := _MISSING_COMMIT.search(str(refused)):
            raise SourceError(f"{origin_name} has no commit {missing['commit']} (any more)") from refused
        raise


def _read_range(git: Git, old: str, new: str, source: str) -> CommitRange:
    """Walk both ways at once. Raises SourceError when commits are missing."""
    words = ["--left-right", "--encoding=UTF-8", "--format=%m%H %ct %s"]
    sides: dict[str, list[HistoryCommit]] = {"<": [], ">": []}
    times = []
    for line in git.text("rev-list", *words, f"{old}...{new}", "--").split("\n"):
        if line and not line.startswith("commit "):
            commit, time, subject = line[1:].split(" ", 2)
            times.append(int(time))
            sides[line[0]].append(HistoryCommit(commit, make_readable(subject)))
    if times and min(times) <= _find_last_cut(git):
        return CommitRange((), (), complete=False, source=source)
    return CommitRange(tuple(sides[">"]), tuple(sides["<"]), complete=True, source=source)


def _find_last_cut(git: Git) -> int:
    """Return the time of the youngest commit behind which history is cut off, -1 where none is.

    A cut between the two ends hides what is behind it; one in what they share hides that they share
    more, which then seems to belong to one of them. All of that is older than the cut itself: a walk in
    which everything is younger has met neither.
    """
    path = Path(git.directory, git.text("rev-parse", "--git-path", "shallow"))
    if not path.is_file():
        return -1
    words = ["--no-walk", "--ignore-missing", "--format=%ct", "--stdin"]
    output = git.text("rev-list", *words, stdin=path.read_bytes())
    return max((int(line) for line in output.split("\n") if line.isdecimal()), default=-1)


def explain_failure(failure: SourceError) -> str:
    """Return in one line why something failed: what git said where git said something."""
    message, *lines = [line.strip(" |") for line in str(failure).splitlines()]
    return make_readable("; ".join(line for line in lines if line and line not in _ADVICE) or message)
