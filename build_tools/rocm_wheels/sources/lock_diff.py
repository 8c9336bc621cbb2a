"""Compare two locks: what changed, the commits in between, and a report for people and programs.

A manifest of another tool leaves things out (``None``). What one of the two does not say is never taken
for a change: it is listed as not compared. Commits come from a checkout or a mirror that has both ends; no
server is asked: where neither has them, the page of the host that compares them is named. A list is given
only when it is whole: what lies behind a cut in the history could be on either side.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.core import errors, log, shell, tables
from rocm_wheels.models import lock
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.mirrors import locate_mirror

ChangeKind = Literal["added", "removed", "changed"]
FieldValue = str | tuple[str, ...] | None


@dataclass(frozen=True)
class FieldChange:
    """One thing by its name in the lock, as it was and as it is; ``None`` where there is none."""

    name: str
    old: FieldValue
    new: FieldValue


@dataclass(frozen=True)
class SubmoduleChange:
    """A submodule by its path from the root; ``old`` or ``new`` is ``None`` where it is not there."""

    path: str
    old: lock.LockedSubmodule | None
    new: lock.LockedSubmodule | None

    @property
    def kind(self) -> ChangeKind:
        """Say what happened to it."""
        return _classify_change(self.old, self.new)


@dataclass(frozen=True)
class ProjectChange:
    """A project; ``fields`` and ``submodules`` are empty unless both locks have it.

    ``not_compared``: what only one of the locks says.
    """

    name: str
    old: lock.LockedProject | None
    new: lock.LockedProject | None
    fields: tuple[FieldChange, ...] = ()
    submodules: tuple[SubmoduleChange, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def kind(self) -> ChangeKind:
        """Say what happened to it."""
        return _classify_change(self.old, self.new)

    @property
    def same(self) -> bool:
        """Tell whether nothing that both locks say differs."""
        return self.old is not None and self.new is not None and not (self.fields or self.submodules)

    @property
    def same_files(self) -> bool:
        """Tell whether the commit is another one and yet holds the same files."""
        old, new = self.old, self.new
        if old is None or new is None or old.commit == new.commit:
            return False
        return old.tree is not None and old.tree == new.tree


@dataclass(frozen=True)
class PackageChange:
    """A package to build with, that both locks may have for a Python: ``group`` is a project, or ``rocm``."""

    python: str
    group: str
    name: str
    old: lock.LockedPackage | None
    new: lock.LockedPackage | None


@dataclass(frozen=True)
class LockDiff:
    """Everything that differs. ``projects`` has every project of either lock, by name.

    ``tools`` has the packages that differ for Pythons that both locks have tools for.
    """

    fields: tuple[FieldChange, ...]
    projects: tuple[ProjectChange, ...]
    not_compared: tuple[str, ...] = ()
    tools: tuple[PackageChange, ...] = ()

    @property
    def same(self) -> bool:
        """Tell whether nothing that both locks say differs."""
        return not (self.fields or self.tools) and all(project.same for project in self.projects)

    @property
    def complete(self) -> bool:
        """Tell whether both locks say everything that either says."""
        return not self.not_compared and not any(project.not_compared for project in self.projects)


def compare_locks(a: lock.Lock, b: lock.Lock) -> LockDiff:
    """Return what changed from ``a`` to ``b``. Who asked for a ref is no difference."""
    brief = _is_brief(*a.projects.values()), _is_brief(*b.projects.values())
    comparison = _FieldComparison()
    comparison.compare_field("platform", a.platform, b.platform)
    for field_name in ("line", "rocm", "targets", "pythons", "local_version", "named_torch"):
        old, new = getattr(a, field_name), getattr(b, field_name)
        comparison.compare_field(field_name, old, new, unsaid=(brief[0] and not old, brief[1] and not new))
    unsaid = brief[0] and not a.tools, brief[1] and not b.tools
    comparison.compare_field("tools", tuple(a.tools), tuple(b.tools), unsaid=unsaid)
    names = sorted(a.projects.keys() | b.projects.keys())
    projects = tuple(_compare_projects(name, a.projects.get(name), b.projects.get(name)) for name in names)
    return LockDiff(tuple(comparison.fields), projects, tuple(comparison.unsaid), tuple(_compare_tools(a, b)))


def _compare_tools(a: lock.Lock, b: lock.Lock) -> Iterator[PackageChange]:
    for python in a.tools:
        if python not in b.tools:
            continue
        old_groups, new_groups = _group_packages(a.tools[python]), _group_packages(b.tools[python])
        for group in dict.fromkeys([*old_groups, *new_groups]):
            old, new = old_groups.get(group, {}), new_groups.get(group, {})
            for name in sorted(old.keys() | new.keys()):
                if old.get(name) != new.get(name):
                    yield PackageChange(python, group, name, old.get(name), new.get(name))


def _group_packages(tools: lock.LockedTools) -> dict[str, Mapping[str, lock.LockedPackage]]:
    return {"rocm": tools.rocm, **tools.projects, "backends": tools.backends}


@dataclass
class _FieldComparison:
    """What differs, and what only one of two says."""

    fields: list[FieldChange] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)

    def compare_field(
        self, name: str, old: FieldValue, new: FieldValue, *, unsaid: tuple[bool, bool] = (False, False)
    ) -> None:
        """Compare one thing; ``unsaid`` tells for each lock whether it does not say it."""
        if old == new or all(unsaid):
            return
        if any(unsaid):
            self.unsaid.append(name)
        else:
            self.fields.append(FieldChange(name, old, new))


def _compare_projects(
    name: str, old: lock.LockedProject | None, new: lock.LockedProject | None
) -> ProjectChange:
    if old is None or new is None:
        return ProjectChange(name, old, new)
    brief = _is_brief(old), _is_brief(new)
    comparison = _FieldComparison()
    comparison.compare_field("origin", old.origin, new.origin)
    # for a pin of which it names no branch, a manifest has the commit alone
    unsaid = brief[0] and old.ref == old.commit, brief[1] and new.ref == new.commit
    comparison.compare_field("ref", old.ref, new.ref, unsaid=unsaid)
    comparison.compare_field("commit", old.commit, new.commit)
    comparison.compare_field(
        "version", old.version, new.version, unsaid=(old.version is None, new.version is None)
    )
    if old.commit == new.commit:  # else the trees are other ones; here one of the locks is wrong
        comparison.compare_field("tree", old.tree, new.tree, unsaid=(old.tree is None, new.tree is None))
    unsaid = brief[0] and old.patches is None, brief[1] and new.patches is None
    comparison.compare_field("patches", _identify_patches(old), _identify_patches(new), unsaid=unsaid)
    submodules: tuple[SubmoduleChange, ...] = ()
    if old.submodules is not None and new.submodules is not None:
        submodules = tuple(_compare_submodules(old.submodules, new.submodules))
    elif old.submodules is not None or new.submodules is not None:
        comparison.unsaid.append("submodules")
    return ProjectChange(name, old, new, tuple(comparison.fields), submodules, tuple(comparison.unsaid))


def _is_brief(*projects: lock.LockedProject) -> bool:
    """Tell whether projects come from a manifest, which leaves out what is not in its schema."""
    return all(project.tree is None and project.submodules is None for project in projects)


def _identify_patches(project: lock.LockedProject) -> tuple[str, ...]:
    return () if project.patches is None else (project.patches.name, project.patches.digest)


def _compare_submodules(
    old: Mapping[str, lock.LockedSubmodule], new: Mapping[str, lock.LockedSubmodule]
) -> Iterator[SubmoduleChange]:
    for path in sorted(old.keys() | new.keys()):
        change = SubmoduleChange(path, old.get(path), new.get(path))
        if change.old is None or change.new is None or not _is_same_submodule(change.old, change.new):
            yield change


def _is_same_submodule(old: lock.LockedSubmodule, new: lock.LockedSubmodule) -> bool:
    trees = {old.tree, new.tree} - {None}
    return (old.origin, old.commit) == (new.origin, new.commit) and len(trees) < 2


def _classify_change(old: object, new: object) -> ChangeKind:
    if old is None:
        return "added"
    return "removed" if new is None else "changed"


ProjectPath = tuple[str, str]  # a project and the path of a submodule in it, "" for the project itself

# the forms of origins that lead to a host; a path of this machine is none
_HOSTED = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+)(?::\d+)?[/:](?P<path>.+?)(?:\.git)?/?"
)
# `git rev-list` reads no setting of `git log`; of what it does read, these would change the answer
_UNCHANGED_HISTORY = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}


@dataclass(frozen=True)
class HistoryCommit:
    """A commit and the first line of its message, in letters that a terminal can be given."""

    id: str
    subject: str


@dataclass(frozen=True)
class CommitRange:
    """What ``new`` has and ``old`` lacks (``added``) and the reverse (``dropped``), newest first.

    A branch that was pushed with force drops commits. ``source``: the repository that was read.
    """

    added: tuple[HistoryCommit, ...]
    dropped: tuple[HistoryCommit, ...]
    source: str


Histories = Mapping[ProjectPath, CommitRange | str]  # the address of a page that compares, "" for none


def read_histories(
    diff: LockDiff, *, repos: Path, submodules: bool, mirrors: Path | None, env: Mapping[str, str]
) -> dict[ProjectPath, CommitRange | str]:
    """Return what lies between the commits of every project that has another one, or where that is shown.

    ``repos``: the folder of the checkouts. ``submodules``: theirs too. ``mirrors``: their folder.
    """
    histories: dict[ProjectPath, CommitRange | str] = {}
    for project in diff.projects:
        moves: list[tuple[str, ProjectChange | SubmoduleChange]] = [("", project)]
        if submodules:
            moves += [(entry.path, entry) for entry in project.submodules]
        for path, move in moves:
            old, new = move.old, move.new
            if old is None or new is None or old.commit == new.commit:
                continue
            folders = [repos / project.name / path]
            if mirrors is not None:
                origins = dict.fromkeys((new.origin, old.origin))
                folders += [locate_mirror(origin, mirrors, env).folder for origin in origins]
            ranges = (_read_local_range(folder, old.commit, new.commit, env) for folder in folders)
            histories[project.name, path] = next(
                (between for between in ranges if between is not None),
                make_compare_url(new.origin, old.commit, new.commit),
            )
    return histories


def make_compare_url(origin: str, old: str, new: str) -> str:
    """Return the page of a repository's host that compares two commits; "" for a host that is not known."""
    match = _HOSTED.fullmatch(origin)
    if match is None:
        return ""
    host, path = match["host"].lower(), match["path"].lstrip("/")
    if "gitlab" in host:
        path += "/-"
    elif host not in {"github.com", "codeberg.org"} and "gitea" not in host:
        return ""
    return f"https://{host}/{path}/compare/{old}...{new}"


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
        return _read_range(git, old, new, str(folder))
    except errors.SourceError as error:
        reason = make_readable(str(error).splitlines()[0])
        log.log_note(f"{folder} has both commits, but not the history between ({reason})")
        return None


def _read_range(git: Git, old: str, new: str, source: str) -> CommitRange | None:
    """Walk both ways at once; ``None`` where history is cut. Raises SourceError when commits are missing."""
    words = ["--left-right", "--encoding=UTF-8", "--format=%m%H %ct %s"]
    sides: dict[str, list[HistoryCommit]] = {"<": [], ">": []}
    times = []
    for line in git.text("rev-list", *words, f"{old}...{new}", "--").split("\n"):
        if line and not line.startswith("commit "):
            commit, time, subject = line[1:].split(" ", 2)
            times.append(int(time))
            sides[line[0]].append(HistoryCommit(commit, make_readable(subject)))
    if times and min(times) <= _find_last_cut(git):
        return None
    return CommitRange(tuple(sides[">"]), tuple(sides["<"]), source=source)


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


_SHORT_ID = 12
_MOST_LETTERS = 100  # letters of a subject that are shown
_JSON_FIELDS = {
    "origin",
    "ref",
    "commit",
    "tree",
    "version",
    "patches",
}  # in JSON, of a project or a submodule
_EMPTY_WORDS = {"targets": "left open", "pythons": "left open", "rocm": "left open"}


def format_diff_report(diff: LockDiff, histories: Histories, *, limit: int) -> list[str]:
    """Return what a person reads; ``limit``: commits listed a repository and direction, the rest counted."""
    lines = tables.align_rows([(change.name, _describe_values(change)) for change in diff.fields])
    changed = [project for project in diff.projects if not project.same]
    rows = [_format_row(project, histories) for project in changed]
    tool_lines = _format_tools(diff.tools)
    if lines and tool_lines:
        lines.append("")
    lines += tool_lines
    if lines and rows:
        lines.append("")
    for project, line in zip(changed, tables.align_rows(rows), strict=True):
        details = [f"    {detail}" for detail in _format_details(project, histories, limit)]
        lines += [line, *details, *([""] if details else [])]
    if lines and lines[-1]:
        lines.append("")
    unchanged = [project.name for project in diff.projects if project.same]
    if diff.same:
        words = "the locks are the same" if diff.complete else "nothing differs that both locks say"
        lines.append(f"{words}: {', '.join(unchanged)}")
    elif unchanged:
        lines.append(f"unchanged: {', '.join(unchanged)}")
    lines += _list_not_compared(diff)
    return lines if lines[-1] else lines[:-1]


def format_diff_json(diff: LockDiff, histories: Histories, *, limit: int) -> dict[str, Any]:
    """Return what a program reads; ``history`` is null where none is due. Keys are added, never renamed."""
    return {
        "same": diff.same,
        "fields": [_dump_field(change) for change in diff.fields],
        "not_compared": list(diff.not_compared),
        "tools": [
            {
                "python": change.python,
                "group": change.group,
                "name": change.name,
                "old": change.old and change.old.model_dump(),
                "new": change.new and change.new.model_dump(),
            }
            for change in diff.tools
        ],
        "unchanged": [project.name for project in diff.projects if project.same],
        "projects": {
            project.name: {
                "change": project.kind,
                "old": _dump_locked(project.old),
                "new": _dump_locked(project.new),
                "fields": [_dump_field(change) for change in project.fields],
                "not_compared": list(project.not_compared),
                "history": _dump_history(histories.get((project.name, "")), limit),
                "submodules": {
                    submodule.path: {
                        "change": submodule.kind,
                        "old": _dump_locked(submodule.old),
                        "new": _dump_locked(submodule.new),
                        "history": _dump_history(histories.get((project.name, submodule.path)), limit),
                    }
                    for submodule in project.submodules
                },
            }
            for project in diff.projects
            if not project.same or project.not_compared
        },
    }


def _format_tools(changes: Sequence[PackageChange]) -> list[str]:
    """Return a line for each change of a package, with the Pythons and the projects that it is for."""
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    for change in changes:
        groups = places.setdefault((change.name, _describe_package_change(change)), {})
        groups.setdefault(change.group, []).append(change.python)
    rows = []
    for (name, words), groups in places.items():
        by_pythons: dict[str, list[str]] = {}
        for group, pythons in groups.items():
            by_pythons.setdefault(", ".join(pythons), []).append(group)
        where = [f"{', '.join(names)} ({pythons})" for pythons, names in by_pythons.items()]
        rows.append(("tool", name, words, "; ".join(where)))
    return tables.align_rows(rows)


def _describe_package_change(change: PackageChange) -> str:
    old, new = change.old, change.new
    if old is None or new is None:
        version = (new or old or lock.LockedPackage(version="", files={})).version
        return f"added, {version}" if old is None else f"removed, was {version}"
    return f"{old.version} → {new.version}" if old.version != new.version else f"{old.version}, other files"


def _format_row(project: ProjectChange, histories: Histories) -> list[str]:
    """Return name, ref, commit, version and what lies between."""
    old, new = project.old, project.new
    if old is None or new is None:
        locked = new or old
        assert locked is not None
        commit = f"{project.kind}, {'was ' if new is None else ''}{locked.commit[:_SHORT_ID]}"
        return [project.name, make_readable(locked.ref), commit, locked.version or "", ""]
    history = _describe_count(histories.get((project.name, "")))
    return [
        project.name,
        _format_change(*(_shorten_ref(locked) for locked in (old, new))),
        _format_change(old.commit[:_SHORT_ID], new.commit[:_SHORT_ID]),
        _format_change(old.version or "?", new.version or "?") if old.version or new.version else "",
        f"{history} (the same files)".lstrip() if project.same_files else history,
    ]


def _format_details(project: ProjectChange, histories: Histories, limit: int) -> Iterator[str]:
    for change in project.fields:
        if change.name in ("origin", "patches", "tree"):
            yield f"{change.name}  {_describe_values(change)}"
    yield from _format_commits(histories.get((project.name, "")), limit)
    rows = []
    for submodule in project.submodules:
        count = _describe_count(histories.get((project.name, submodule.path)))
        change_text = f"{_describe_submodule(submodule)}  {count}".rstrip()
        rows.append((make_readable(submodule.path), change_text))
    for submodule, line in zip(project.submodules, tables.align_rows(rows), strict=True):
        between = histories.get((project.name, submodule.path))
        yield line
        yield from (f"    {line}" for line in _format_commits(between, limit))


def _describe_submodule(change: SubmoduleChange) -> str:
    if change.old is None or change.new is None:
        locked = change.new or change.old
        assert locked is not None
        return f"{change.kind}, {'was ' if change.new is None else ''}{locked.commit[:_SHORT_ID]}"
    commits = _format_change(change.old.commit[:_SHORT_ID], change.new.commit[:_SHORT_ID])
    if change.old.origin != change.new.origin:
        return (
            f"{commits}  from "
            f"{_format_change(_show_origin(change.old.origin), _show_origin(change.new.origin))}"
        )
    if change.old.commit == change.new.commit:  # one of the locks is wrong
        return f"{commits}  tree {change.old.tree} → {change.new.tree}"
    return commits


def _format_commits(between: CommitRange | str | None, limit: int) -> Iterator[str]:
    """List commits, the dropped ones last: they are few, and what one must look at stands at the end."""
    if not isinstance(between, CommitRange):
        if between:
            yield make_readable(between)
        return
    for mark, commits in (("+", between.added), ("-", between.dropped)):
        for commit in commits[:limit]:
            yield f"{mark} {commit.id[:_SHORT_ID]} {_shorten_subject(commit.subject)}".rstrip()
        if 0 < limit < len(commits):
            yield f"{mark} … {len(commits) - limit} more"


def _describe_count(between: CommitRange | str | None) -> str:
    if not isinstance(between, CommitRange):
        return "history not known" if between == "" else ""
    parts = [_count_commits(between.added, "")] if between.added else []
    parts += [_count_commits(between.dropped, " dropped")] if between.dropped else []
    return ", ".join(parts)


def _count_commits(commits: Sequence[HistoryCommit], how: str) -> str:
    return f"{tables.format_count(len(commits), 'commit')}{how}"


def _list_not_compared(diff: LockDiff) -> list[str]:
    """Name what only one of the locks says, thing by thing."""
    unsaid: dict[str, list[str]] = {name: [] for name in diff.not_compared}
    for project in diff.projects:
        for name in project.not_compared:
            unsaid.setdefault(name, []).append(project.name)
    if not unsaid:
        return []
    words = [f"{name} of {', '.join(names)}" if names else name for name, names in unsaid.items()]
    return [f"not compared, for only one of the locks says it: {'; '.join(words)}"]


def _describe_values(change: FieldChange) -> str:
    old, new = change.old, change.new
    if change.name == "patches":
        return _format_change(_describe_patches(old), _describe_patches(new))
    if change.name == "origin":
        return _format_change(_show_origin(str(old)), _show_origin(str(new)))
    if isinstance(old, tuple) and isinstance(new, tuple) and old and new:
        parts = [f"+ {value}" for value in new if value not in old] + [
            f"- {value}" for value in old if value not in new
        ]
        return "  ".join(parts) or f"{_format_value(old, '')} → {_format_value(new, '')} (another order)"
    nothing = _EMPTY_WORDS.get(change.name, "none")
    return _format_change(_format_value(old, nothing), _format_value(new, nothing))


def _format_value(value: FieldValue, nothing: str) -> str:
    if not value:
        return nothing
    return make_readable(value if isinstance(value, str) else ", ".join(value))


def _describe_patches(value: FieldValue) -> str:
    return f"{value[0]} ({value[1][:_SHORT_ID]})" if value else "none"


def _show_origin(origin: str) -> str:
    return make_readable(shell.hide_credentials(origin))


def _shorten_ref(project: lock.LockedProject) -> str:
    return project.ref[:_SHORT_ID] if project.ref == project.commit else make_readable(project.ref)


def _format_change(old: str, new: str) -> str:
    return old if old == new else f"{old} → {new}"


def _shorten_subject(subject: str) -> str:
    return subject if len(subject) <= _MOST_LETTERS else subject[: _MOST_LETTERS - 1] + "…"


def _dump_field(change: FieldChange) -> dict[str, Any]:
    if change.name == "patches":
        old, new = (
            {"name": patches[0], "digest": patches[1]} if patches else None
            for patches in (change.old, change.new)
        )
        return {"what": change.name, "old": old, "new": new}
    if change.name == "origin":
        return {
            "what": change.name,
            "old": shell.hide_credentials(str(change.old)),
            "new": shell.hide_credentials(str(change.new)),
        }
    return {"what": change.name, "old": change.old, "new": change.new}


def _dump_locked(locked: lock.LockedProject | lock.LockedSubmodule | None) -> dict[str, Any] | None:
    if locked is None:
        return None
    data = locked.model_dump(mode="json", include=_JSON_FIELDS)
    return {**data, "origin": shell.hide_credentials(locked.origin)}


def _dump_history(between: CommitRange | str | None, limit: int) -> dict[str, Any] | None:
    if between is None:
        return None
    if isinstance(between, str):
        return {"complete": False, "compare": between or None}
    sides = {"added": between.added, "dropped": between.dropped}
    return {
        "complete": True,
        "source": between.source,
        **{
            name: {
                "count": len(commits),
                "commits": [{"commit": commit.id, "subject": commit.subject} for commit in commits[:limit]],
            }
            for name, commits in sides.items()
        },
    }
