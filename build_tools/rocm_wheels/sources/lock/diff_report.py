"""The differences of two locks for people, in short aligned lines, and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rocm_wheels.errors import SourceError
from rocm_wheels.model.lock import LockedProject, LockedSubmodule
from rocm_wheels.shell import hide_credentials
from rocm_wheels.sources.lock.diff import FieldChange, LockDiff, ProjectChange, SubmoduleChange, Value
from rocm_wheels.sources.lock.history import Between, Commit, Where, readable, reason

Histories = Mapping[Where, Between | SourceError]

_SHORT = 12
_SUBJECT = 100  # letters of a subject that are shown
_SHOWN = {"origin", "ref", "commit", "tree", "version", "patches"}  # in JSON, of a project or a submodule
_NOTHING = {"targets": "left open", "pythons": "left open", "rocm": "left open"}


def report_lines(diff: LockDiff, histories: Histories, *, most: int) -> list[str]:
    """Return what a person reads; ``most``: commits listed a repository and direction, the rest counted."""
    lines = [f"{change.what:9} {_values(change)}" for change in diff.fields]
    changed = [project for project in diff.projects if not project.same]
    rows = [_row(project, histories) for project in changed]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if lines and rows:
        lines.append("")
    for project, row in zip(changed, rows, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        details = [f"    {line}" for line in _details(project, histories, most)]
        lines += ["  ".join(cells).rstrip(), *details, *([""] if details else [])]
    if lines and lines[-1]:
        lines.append("")
    unchanged = [project.name for project in diff.projects if project.same]
    if diff.same:
        words = "the locks are the same" if diff.complete else "nothing differs that both locks say"
        lines.append(f"{words}: {', '.join(unchanged)}")
    elif unchanged:
        lines.append(f"unchanged: {', '.join(unchanged)}")
    lines += _not_compared(diff)
    return lines if lines[-1] else lines[:-1]


def as_json(diff: LockDiff, histories: Histories, *, most: int) -> dict[str, Any]:
    """Return what a program reads; ``history`` is null where none is due. Keys are added, never renamed."""
    return {
        "same": diff.same,
        "fields": [_field(change) for change in diff.fields],
        "not_compared": list(diff.not_compared),
        "unchanged": [project.name for project in diff.projects if project.same],
        "projects": {
            project.name: {
                "change": project.kind,
                "old": _shown(project.old),
                "new": _shown(project.new),
                "fields": [_field(change) for change in project.fields],
                "not_compared": list(project.not_compared),
                "history": _history(histories.get((project.name, "")), most),
                "submodules": {
                    one.path: {
                        "change": one.kind,
                        "old": _shown(one.old),
                        "new": _shown(one.new),
                        "history": _history(histories.get((project.name, one.path)), most),
                    }
                    for one in project.submodules
                },
            }
            for project in diff.projects
            if not project.same or project.not_compared
        },
    }


def _row(project: ProjectChange, histories: Histories) -> list[str]:
    """Return name, ref, commit, version and what lies between."""
    old, new = project.old, project.new
    if old is None or new is None:
        one = new or old
        assert one is not None
        commit = f"{project.kind}, {'was ' if new is None else ''}{one.commit[:_SHORT]}"
        return [project.name, readable(one.ref), commit, one.version or "", ""]
    history = _count(histories.get((project.name, "")))
    return [
        project.name,
        _arrow(*(_short_ref(one) for one in (old, new))),
        _arrow(old.commit[:_SHORT], new.commit[:_SHORT]),
        _arrow(old.version or "?", new.version or "?") if old.version or new.version else "",
        f"{history} (the same files)".lstrip() if project.same_files else history,
    ]


def _details(project: ProjectChange, histories: Histories, most: int) -> Iterator[str]:
    for change in project.fields:
        if change.what in ("origin", "patches", "tree"):
            yield f"{change.what}  {_values(change)}"
    yield from _commits(histories.get((project.name, "")), most)
    width = max((len(readable(one.path)) for one in project.submodules), default=0)
    for one in project.submodules:
        between = histories.get((project.name, one.path))
        yield f"{readable(one.path):{width}}  {_submodule(one)}  {_count(between)}".rstrip()
        yield from (f"    {line}" for line in _commits(between, most))


def _submodule(one: SubmoduleChange) -> str:
    if one.old is None or one.new is None:
        there = one.new or one.old
        assert there is not None
        return f"{one.kind}, {'was ' if one.new is None else ''}{there.commit[:_SHORT]}"
    commits = _arrow(one.old.commit[:_SHORT], one.new.commit[:_SHORT])
    if one.old.origin != one.new.origin:
        return f"{commits}  from {_arrow(_origin(one.old.origin), _origin(one.new.origin))}"
    if one.old.commit == one.new.commit:  # one of the locks is wrong
        return f"{commits}  tree {one.old.tree} → {one.new.tree}"
    return commits


def _commits(between: Between | SourceError | None, most: int) -> Iterator[str]:
    """List commits, the dropped ones last: they are few, and what one must look at stands at the end."""
    if not isinstance(between, Between):
        return
    for mark, commits in (("+", between.added), ("-", between.dropped)):
        for commit in commits[:most]:
            yield f"{mark} {commit.id[:_SHORT]} {_cut(commit.subject)}".rstrip()
        if 0 < most < len(commits):
            yield f"{mark} … {len(commits) - most} more"


def _count(between: Between | SourceError | None) -> str:
    if between is None:
        return ""
    if isinstance(between, SourceError):
        return "history not known"
    if not between.complete:
        return "history not known: too far apart"
    said = [_many(between.added, "")] if between.added else []
    said += [_many(between.dropped, " dropped")] if between.dropped else []
    return ", ".join(said)


def _many(commits: Sequence[Commit], how: str) -> str:
    return f"{len(commits)} commit{'s' if len(commits) > 1 else ''}{how}"


def _not_compared(diff: LockDiff) -> list[str]:
    """Name what only one of the locks says, thing by thing."""
    unsaid: dict[str, list[str]] = {what: [] for what in diff.not_compared}
    for project in diff.projects:
        for what in project.not_compared:
            unsaid.setdefault(what, []).append(project.name)
    if not unsaid:
        return []
    words = [f"{what} of {', '.join(names)}" if names else what for what, names in unsaid.items()]
    return [f"not compared, for only one of the locks says it: {'; '.join(words)}"]


def _values(change: FieldChange) -> str:
    old, new = change.old, change.new
    if change.what == "patches":
        return _arrow(_patches(old), _patches(new))
    if change.what == "origin":
        return _arrow(_origin(str(old)), _origin(str(new)))
    if isinstance(old, tuple) and isinstance(new, tuple) and old and new:
        parts = [f"+ {one}" for one in new if one not in old] + [f"- {one}" for one in old if one not in new]
        return "  ".join(parts) or f"{_plain(old, '')} → {_plain(new, '')} (another order)"
    nothing = _NOTHING.get(change.what, "none")
    return _arrow(_plain(old, nothing), _plain(new, nothing))


def _plain(value: Value, nothing: str) -> str:
    if not value:
        return nothing
    return readable(value if isinstance(value, str) else ", ".join(value))


def _patches(value: Value) -> str:
    return f"{value[0]} ({value[1][:_SHORT]})" if value else "none"


def _origin(origin: str) -> str:
    return readable(hide_credentials(origin))


def _short_ref(project: LockedProject) -> str:
    return project.ref[:_SHORT] if project.ref == project.commit else readable(project.ref)


def _arrow(old: str, new: str) -> str:
    return old if old == new else f"{old} → {new}"


def _cut(subject: str) -> str:
    return subject if len(subject) <= _SUBJECT else subject[: _SUBJECT - 1] + "…"


def _field(change: FieldChange) -> dict[str, Any]:
    if change.what == "patches":
        old, new = ({"name": one[0], "digest": one[1]} if one else None for one in (change.old, change.new))
        return {"what": change.what, "old": old, "new": new}
    if change.what == "origin":
        return {
            "what": change.what,
            "old": hide_credentials(str(change.old)),
            "new": hide_credentials(str(change.new)),
        }
    return {"what": change.what, "old": change.old, "new": change.new}


def _shown(one: LockedProject | LockedSubmodule | None) -> dict[str, Any] | None:
    if one is None:
        return None
    found = one.model_dump(mode="json", include=_SHOWN)
    return {**found, "origin": hide_credentials(one.origin)}


def _history(between: Between | SourceError | None, most: int) -> dict[str, Any] | None:
    if between is None:
        return None
    if isinstance(between, SourceError):
        return {"complete": False, "why": reason(between)}
    if not between.complete:
        return {"complete": False, "why": "too far apart", "source": between.source}
    sides = {"added": between.added, "dropped": between.dropped}
    return {
        "complete": True,
        "source": between.source,
        **{
            name: {
                "count": len(commits),
                "commits": [{"commit": one.id, "subject": one.subject} for one in commits[:most]],
            }
            for name, commits in sides.items()
        },
    }
