"""The differences of two locks for people, in short aligned lines, and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rocm_wheels.errors import SourceError
from rocm_wheels.model.lock import LockedProject, LockedSubmodule
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.lock.diff import FieldChange, LockDiff, ProjectChange, SubmoduleChange, FieldValue
from rocm_wheels.sources.lock.history import (
    CommitRange,
    HistoryCommit,
    ProjectPath,
    make_readable,
    explain_failure,
)

Histories = Mapping[ProjectPath, CommitRange | SourceError]

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
    lines = [f"{change.name:9} {_describe_values(change)}" for change in diff.fields]
    changed = [project for project in diff.projects if not project.same]
    rows = [_format_row(project, histories) for project in changed]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if lines and rows:
        lines.append("")
    for project, row in zip(changed, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        details = [f"    {line}" for line in _format_details(project, histories, limit)]
        lines += ["  ".join(cells).rstrip(), *details, *([""] if details else [])]
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
    width = max((len(make_readable(submodule.path)) for submodule in project.submodules), default=0)
    for submodule in project.submodules:
        between = histories.get((project.name, submodule.path))
        yield f"{make_readable(submodule.path):{width}}  {_describe_submodule(submodule)}  {_describe_count(between)}".rstrip()
        yield from (f"    {line}" for line in _format_commits(between, limit))


def _describe_submodule(change: SubmoduleChange) -> str:
    if change.old is None or change.new is None:
        locked = change.new or change.old
        assert locked is not None
        return f"{change.kind}, {'was ' if change.new is None else ''}{locked.commit[:_SHORT_ID]}"
    commits = _format_change(change.old.commit[:_SHORT_ID], change.new.commit[:_SHORT_ID])
    if change.old.origin != change.new.origin:
        return f"{commits}  from {_format_change(_show_origin(change.old.origin), _show_origin(change.new.origin))}"
    if change.old.commit == change.new.commit:  # one of the locks is wrong
        return f"{commits}  tree {change.old.tree} → {change.new.tree}"
    return commits


def _format_commits(between: CommitRange | SourceError | None, limit: int) -> Iterator[str]:
    """List commits, the dropped ones last: they are few, and what one must look at stands at the end."""
    if not isinstance(between, CommitRange):
        return
    for mark, commits in (("+", between.added), ("-", between.dropped)):
        for commit in commits[:limit]:
            yield f"{mark} {commit.id[:_SHORT_ID]} {_shorten_subject(commit.subject)}".rstrip()
        if 0 < limit < len(commits):
            yield f"{mark} … {len(commits) - limit} more"


def _describe_count(between: CommitRange | SourceError | None) -> str:
    if between is None:
        return ""
    if isinstance(between, SourceError):
        return "history not known"
    if not between.complete:
        return "history not known: too far apart"
    parts = [_count_commits(between.added, "")] if between.added else []
    parts += [_count_commits(between.dropped, " dropped")] if between.dropped else []
    return ", ".join(parts)


def _count_commits(commits: Sequence[HistoryCommit], how: str) -> str:
    return f"{len(commits)} commit{'s' if len(commits) > 1 else ''}{how}"


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
    return make_readable(hide_credentials(origin))


def _shorten_ref(project: LockedProject) -> str:
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
            "old": hide_credentials(str(change.old)),
            "new": hide_credentials(str(change.new)),
        }
    return {"what": change.name, "old": change.old, "new": change.new}


def _dump_locked(locked: LockedProject | LockedSubmodule | None) -> dict[str, Any] | None:
    if locked is None:
        return None
    data = locked.model_dump(mode="json", include=_JSON_FIELDS)
    return {**data, "origin": hide_credentials(locked.origin)}


def _dump_history(between: CommitRange | SourceError | None, limit: int) -> dict[str, Any] | None:
    if between is None:
        return None
    if isinstance(between, SourceError):
        return {"complete": False, "why": explain_failure(between)}
    if not between.complete:
        return {"complete": False, "why": "too far apart", "source": between.source}
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
