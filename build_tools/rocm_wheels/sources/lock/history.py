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
from rocm_wheels.sources.network.mirrors import mirror_of
from rocm_wheels.sources.network.remote import origin_of
from rocm_wheels.sources.network.transport import Transport, tried

DEPTHS = (64, 512, 4096)  # commits from each end; a release is some thousand commits long

Where = tuple[str, str]  # a project and the path of a submodule in it, "" for the project itself

_NOT_THERE = re.compile(r"(?:not our ref|unadvertised object) (?P<commit>[0-9a-f]{40})")
# what git adds to every failure of ssh and of local paths
_ADVICE = {"Please make sure you have the correct access rights", "and the repository exists."}
_OLD, _NEW = "refs/rocm-wheels/old", "refs/rocm-wheels/new"
# `git rev-list` reads no setting of `git log`; of what it does read, these would change the answer
_AS_IT_IS = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}


@dataclass(frozen=True)
class Place:
    """A commit and the repository that gives it out.

    ``trusted``: the user chose the origin; one that a repository names may only be a server, as for git
    itself (``GIT_PROTOCOL_FROM_USER``).
    """

    origin: str
    commit: str
    trusted: bool = True


@dataclass(frozen=True)
class Commit:
    """A commit and the first line of its message, in letters that a terminal can be given."""

    id: str
    subject: str


@dataclass(frozen=True)
class Between:
    """What ``new`` has and ``old`` lacks (``added``) and the reverse (``dropped``), newest first.

    Both are empty unless ``complete``; a branch that was pushed with force drops commits. ``source``: where
    the history was found.
    """

    added: tuple[Commit, ...]
    dropped: tuple[Commit, ...]
    complete: bool
    source: str


def commits_between(
    old: Place, new: Place, *, near: Iterable[Path], transport: Transport, env: Mapping[str, str]
) -> Between:
    """Return the commits between two places of one repository (or of a fork and its origin).

    ``near``: checkouts to look into first; then come mirrors, then the servers. Raises SourceError when a
    server cannot be reached or no longer has one of the commits.
    """
    mirrors = (
        {mirror_of(place.origin, transport.mirrors, env).folder for place in (old, new)}
        if transport.mirrors
        else ()
    )
    for folder in [*near, *sorted(mirrors)]:
        if found := _in_repository(folder, old.commit, new.commit, env):
            return found
    return _fetched(old, new, transport, env)


def histories(
    diff: LockDiff, *, repos: Path, submodules: bool, transport: Transport, env: Mapping[str, str]
) -> dict[Where, Between | SourceError]:
    """Return what lies between the commits of every project that has another one, or why that is not known.

    ``repos``: the folder of the checkouts. ``submodules``: theirs too. Repositories are asked side by side;
    one that two projects have at the same commits is asked once.
    """
    moves: dict[tuple[Place, Place], list[Where]] = {}
    for project in diff.projects:
        if project.old is None or project.new is None:
            continue
        trusted = [origin_of(one.origin, Path("/"))[1] for one in (project.old, project.new)]
        inner = [(one.path, one.old, one.new, trusted) for one in project.submodules] if submodules else []
        for path, old, new, free in [("", project.old, project.new, [True, True]), *inner]:
            if old is not None and new is not None and old.commit != new.commit:
                ends = Place(old.origin, old.commit, free[0]), Place(new.origin, new.commit, free[1])
                moves.setdefault(ends, []).append((project.name, path))

    def ask(item: tuple[tuple[Place, Place], list[Where]]) -> Between:
        ends, wheres = item
        near = [repos / name / path for name, path in wheres]
        with log.prefixed("/".join(part for part in wheres[0] if part)):
            return commits_between(*ends, near=near, transport=transport, env=env)

    found: dict[Where, Between | SourceError] = {}
    results = parallel.results_of(ask, moves.items(), jobs=transport.jobs)
    for wheres, result in zip(moves.values(), results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, SourceError):
            raise result
        found.update(dict.fromkeys(wheres, result))
    return found


def readable(text: str) -> str:
    """Return a stranger's text in letters that cannot steer a terminal or change the order of others.

    Bytes that are not UTF-8 become a replacement mark, control and format characters their escapes.
    """
    shown = []
    for letter in text:
        if "\udc80" <= letter <= "\udcff":
            shown.append("\ufffd")
        elif letter.isprintable():
            shown.append(letter)
        elif unicodedata.category(letter) == "Zs":
            shown.append(" ")
        else:
            shown.append(letter.encode("unicode_escape").decode("ascii"))
    return "".join(shown)


def _in_repository(folder: Path, old: str, new: str, env: Mapping[str, str]) -> Between | None:
    """Return what a repository on this machine says; ``None`` when it has not got it all."""
    if not ((folder / ".git").exists() or (folder / "HEAD").is_file()):
        return None
    git = Git(folder.absolute(), env, variables=_AS_IT_IS)
    # not `cat-file -e`: in a partial clone, git before 2.39.4 asks the server for what is missing
    if not all(git.succeeds("rev-list", "--missing=allow-any", "-1", commit, "--") for commit in (old, new)):
        return None
    try:
        found = _between(git, old, new, str(folder))
    except SourceError as damaged:
        log.note(f"{folder} has both commits, but not what lies between ({reason(damaged)}); looking further")
        return None
    return found if found.complete else None


def _fetched(old: Place, new: Place, transport: Transport, env: Mapping[str, str]) -> Between:
    """Fetch commits without their files into a repository that is thrown away, deeper step by step."""
    wanted: dict[tuple[str, bool], list[str]] = {}
    for place, ref in ((old, _OLD), (new, _NEW)):
        wanted.setdefault((place.origin, place.trusted), []).append(f"+{place.commit}:{ref}")
    origins = " and ".join(hide_credentials(origin) for origin in dict.fromkeys((old.origin, new.origin)))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-history-") as folder:
        git = Git(Path(folder), env, settings=transport.settings, variables=_AS_IT_IS)
        git.text("init", "--quiet", "--bare", ".")
        log.note(f"fetching the commits between {old.commit[:12]} and {new.commit[:12]} of {origins}")
        for depth in DEPTHS:
            for (origin, trusted), refspecs in wanted.items():
                asking = git if trusted else git.using(GIT_PROTOCOL_FROM_USER="0")
                _fetch(asking, origin, refspecs, depth, transport)
            found = _between(git, old.commit, new.commit, origins)
            if found.complete:
                return found
    return Between((), (), complete=False, source=origins)


def _fetch(git: Git, origin: str, refspecs: Sequence[str], depth: int, transport: Transport) -> None:
    shown = hide_credentials(origin)
    what = f"fetching commits of {shown}"
    words = ["--progress", "--no-tags", "--no-prune", "--no-recurse-submodules"]
    words += ["--filter=tree:0", f"--depth={depth}"]

    def attempt() -> None:
        with transport.turn():
            git.network("fetch", *words, "--", origin, *refspecs, what=what, silence=transport.timeout)

    try:
        tried(attempt, transport=transport, what=what)
    except SourceError as refused:
        if missing := _NOT_THERE.search(str(refused)):
            raise SourceError(f"{shown} has no commit {missing['commit']} (any more)") from refused
        raise


def _between(git: Git, old: str, new: str, source: str) -> Between:
    """Walk both ways at once. Raises SourceError when commits are missing."""
    words = ["--left-right", "--encoding=UTF-8", "--format=%m%H %ct %s"]
    sides: dict[str, list[Commit]] = {"<": [], ">": []}
    times = []
    for line in git.text("rev-list", *words, f"{old}...{new}", "--").split("\n"):
        if line and not line.startswith("commit "):
            commit, time, subject = line[1:].split(" ", 2)
            times.append(int(time))
            sides[line[0]].append(Commit(commit, readable(subject)))
    if times and min(times) <= _last_cut(git):
        return Between((), (), complete=False, source=source)
    return Between(tuple(sides[">"]), tuple(sides["<"]), complete=True, source=source)


def _last_cut(git: Git) -> int:
    """Return the time of the youngest commit behind which history is cut off, -1 where none is.

    A cut between the two ends hides what is behind it; one in what they share hides that they share
    more, which then seems to belong to one of them. All of that is older than the cut itself: a walk in
    which everything is younger has met neither.
    """
    path = Path(git.directory, git.text("rev-parse", "--git-path", "shallow"))
    if not path.is_file():
        return -1
    words = ["--no-walk", "--ignore-missing", "--format=%ct", "--stdin"]
    said = git.text("rev-list", *words, stdin=path.read_bytes())
    return max((int(line) for line in said.split("\n") if line.isdecimal()), default=-1)


def reason(failure: SourceError) -> str:
    """Return in one line why something failed: what git said where git said something."""
    message, *said = [line.strip(" |") for line in str(failure).splitlines()]
    return readable("; ".join(line for line in said if line and line not in _ADVICE) or message)
