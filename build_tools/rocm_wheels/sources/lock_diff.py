"""Compare two locks: what changed, the commits in between, and a report for people and programs.

A manifest of another tool leaves things out. What one of the two does not say is never taken for a change: it
is listed as not compared. Commits come from a checkout or a mirror that has both ends and all of its history;
no server is asked: where neither has them, the page of the host that compares them is named.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, shell, tables
from rocm_wheels.models import lock
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.mirrors import locate_mirror

Document = dict[str, Any]
"""What ``lock diff --json`` prints; keys are added, never renamed.

same, fields: [{what, old, new}], not_compared: [what], tools: [{python, group, name, old, new}],
unchanged: [project], projects: {project: {change (added, removed, changed), old, new, fields, not_compared,
history, submodules: {path: {change, old, new, history}}}}.
history: null where none is due; {complete: true, source, added: {count, commits}, dropped}, newest first (a
branch that was pushed with force drops commits); or {complete: false, compare: page that compares, or null}.
"""

_SHOWN_FIELDS = {"origin", "ref", "commit", "tree", "version", "patches"}  # of a project or a submodule


_Row = tuple[
    str, Any, Any, tuple[bool, bool]
]  # what, old, new, and for each whether its lock does not say it


def compare_locks(a: lock.Lock, b: lock.Lock) -> Document:
    """Return what changed from ``a`` to ``b``, without histories. Who asked for a ref is no difference."""
    brief_a, brief_b = (all(map(_is_brief, side.projects.values())) for side in (a, b))
    rows: list[_Row] = []
    for what in ("platform", "line", "rocm", "targets", "pythons", "local_version", "named_torch", "tools"):
        old, new = getattr(a, what), getattr(b, what)
        if what == "tools":
            old, new = tuple(old), tuple(new)  # the Pythons that there are some for
        rows.append((what, old, new, (brief_a and not old, brief_b and not new)))
    fields, not_compared = _list_changes(rows)
    tools = list(_compare_tools(a, b))
    names = sorted(a.projects.keys() | b.projects.keys())
    projects = {name: _compare_projects(a.projects.get(name), b.projects.get(name)) for name in names}
    unchanged = [
        name
        for name, project in projects.items()
        if project["change"] == "changed" and not project["fields"] and not project["submodules"]
    ]
    shown = [name for name in names if name not in unchanged or projects[name]["not_compared"]]
    return {
        "same": not (fields or tools) and len(unchanged) == len(projects),
        "fields": fields,
        "not_compared": not_compared,
        "tools": tools,
        "unchanged": unchanged,
        "projects": {name: projects[name] for name in shown},
    }


def _is_brief(project: lock.LockedProject) -> bool:
    """Tell whether a project comes from a manifest, which leaves out what is not in its schema."""
    return project.tree is None and project.submodules is None


def _list_changes(rows: list[_Row]) -> tuple[list[Document], list[str]]:
    """Return the rows that differ, and the names of those that only one of the locks says."""
    differing = [row for row in rows if row[1] != row[2] and not all(row[3])]
    fields = [
        {"what": what, "old": _dump(old), "new": _dump(new)}
        for what, old, new, unsaid in differing
        if not any(unsaid)
    ]
    return fields, [what for what, _, _, unsaid in differing if any(unsaid)]


def _dump(value: Any) -> Any:
    if isinstance(value, str):
        return shell.hide_credentials(value)
    return value.model_dump(mode="json") if isinstance(value, lock.LockedPatches) else value


def _compare_tools(a: lock.Lock, b: lock.Lock) -> Iterator[Document]:
    """Yield the packages to build with that differ, for Pythons that both locks have tools for."""
    for python in [python for python in a.tools if python in b.tools]:
        old_groups, new_groups = (
            {"rocm": tools.rocm, **tools.projects, "backends": tools.backends}
            for tools in (a.tools[python], b.tools[python])
        )
        for group in dict.fromkeys([*old_groups, *new_groups]):
            before, after = old_groups.get(group, {}), new_groups.get(group, {})
            for name in sorted(before.keys() | after.keys()):
                old, new = before.get(name), after.get(name)
                if old != new:
                    dumped = {"old": old and old.model_dump(), "new": new and new.model_dump()}
                    yield {"python": python, "group": group, "name": name, **dumped}


def _compare_projects(old: lock.LockedProject | None, new: lock.LockedProject | None) -> Document:
    fields: list[Document] = []
    not_compared: list[str] = []
    submodules: Document = {}
    if old is not None and new is not None:
        rows: list[_Row] = []
        for what in ("origin", "ref", "commit", "version", "tree", "patches"):
            if what == "tree" and old.commit != new.commit:
                continue  # then the trees are other ones, too; else one of the locks is wrong
            unsaid = (_is_unsaid(old, what), _is_unsaid(new, what))
            rows.append((what, getattr(old, what), getattr(new, what), unsaid))
        fields, not_compared = _list_changes(rows)
        if (old.submodules is None) != (new.submodules is None):
            not_compared.append("submodules")
        elif old.submodules is not None and new.submodules is not None:
            for path in sorted(old.submodules.keys() | new.submodules.keys()):
                before, after = old.submodules.get(path), new.submodules.get(path)
                if before is None or after is None or not _is_same_submodule(before, after):
                    submodules[path] = {**_dump_both(before, after), "history": None}
    found = {"fields": fields, "not_compared": not_compared, "history": None, "submodules": submodules}
    return {**_dump_both(old, new), **found}


def _is_unsaid(project: lock.LockedProject, what: str) -> bool:
    """Tell whether a lock says nothing; a manifest has of a pin without a branch the commit alone."""
    value = project.commit if what == "ref" else None
    return getattr(project, what) == value and (what not in ("ref", "patches") or _is_brief(project))


def _is_same_submodule(old: lock.LockedSubmodule, new: lock.LockedSubmodule) -> bool:
    trees = {old.tree, new.tree} - {None}
    return (old.origin, old.commit) == (new.origin, new.commit) and len(trees) < 2


def _dump_both(
    old: lock.LockedProject | lock.LockedSubmodule | None,
    new: lock.LockedProject | lock.LockedSubmodule | None,
) -> Document:
    dumped: Document = {"change": "added" if old is None else "removed" if new is None else "changed"}
    for side, locked in (("old", old), ("new", new)):
        dumped[side] = locked and {
            **locked.model_dump(mode="json", include=_SHOWN_FIELDS),
            "origin": shell.hide_credentials(locked.origin),
        }
    return dumped


# the forms of origins that lead to a host; a path of this machine is none
_HOSTED = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+)(?::\d+)?[/:](?P<path>.+?)(?:\.git)?/?"
)
# `git rev-list` reads no setting of `git log`; of what it does read, these would change the answer
_UNCHANGED_HISTORY = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}


def add_histories(
    diff: Document,
    *,
    repos: Path,
    submodules: bool,
    mirrors: Path | None,
    limit: int,
    env: Mapping[str, str],
) -> None:
    """Put into ``diff`` what lies between the commits of every project that has another one.

    ``repos``: the folder of the checkouts. ``submodules``: theirs too. ``mirrors``: their folder. ``limit``:
    commits listed of a repository and direction; all are counted.
    """
    for name, project in diff["projects"].items():
        moves = {"": project, **(project["submodules"] if submodules else {})}
        for path, move in moves.items():
            old, new = move["old"], move["new"]
            if old is None or new is None or old["commit"] == new["commit"]:
                continue
            folders = [repos / name / path]
            if mirrors is not None:
                origins = dict.fromkeys((new["origin"], old["origin"]))
                folders += [locate_mirror(origin, mirrors, env).folder for origin in origins]
            ranges = (_read_range(folder, old["commit"], new["commit"], limit, env) for folder in folders)
            page = make_compare_url(new["origin"], old["commit"], new["commit"])
            unknown = {"complete": False, "compare": page or None}
            move["history"] = next((between for between in ranges if between is not None), unknown)


def make_compare_url(origin: str, old: str, new: str) -> str:
    """Return the page of a repository's host that compares two commits; "" for a host that is not known."""
    match = _HOSTED.fullmatch(origin)
    host, path = (match["host"].lower(), match["path"].lstrip("/")) if match else ("", "")
    if "gitlab" in host:
        path += "/-"
    elif host not in {"github.com", "codeberg.org"} and "gitea" not in host:
        return ""
    return f"https://{host}/{path}/compare/{old}...{new}"


def make_readable(text: str) -> str:
    """Return a stranger's text in letters that cannot steer a terminal or change the order of others.

    Bytes that are not UTF-8 become a replacement mark, control and format characters their escapes.
    """

    def show(letter: str) -> str:
        if "\udc80" <= letter <= "\udcff":
            return "\ufffd"
        if letter.isprintable():
            return letter
        if unicodedata.category(letter) == "Zs":
            return " "
        return letter.encode("unicode_escape").decode("ascii")

    return "".join(map(show, text))


def _read_range(folder: Path, old: str, new: str, limit: int, env: Mapping[str, str]) -> Document | None:
    """Return the history that a repository on this machine has; ``None`` when it has not got it all."""
    if not ((folder / ".git").exists() or (folder / "HEAD").is_file()):
        return None
    git = Git(folder.absolute(), env, variables=_UNCHANGED_HISTORY)
    # not `cat-file -e`: in a partial clone, git before 2.39.4 asks the server for what is missing
    if not all(git.succeeds("rev-list", "--missing=allow-any", "-1", commit, "--") for commit in (old, new)):
        return None
    words = ("--left-right", "--encoding=UTF-8", "--format=%m%H %s")
    try:
        if git.text("rev-parse", "--is-shallow-repository") == "true":
            return None  # what lies behind the cut could be on either side
        lines = git.text("rev-list", *words, f"{old}...{new}", "--").split("\n")
    except errors.SourceError:
        return None  # it is damaged
    sides: dict[str, list[Document]] = {">": [], "<": []}
    for line in lines:
        if line and not line.startswith("commit "):
            commit, _, subject = line[1:].partition(" ")
            sides[line[0]].append({"commit": commit, "subject": make_readable(subject)})
    added, dropped = ({"count": len(side), "commits": side[:limit]} for side in sides.values())
    return {"complete": True, "source": str(folder), "added": added, "dropped": dropped}


_SHORT_ID = 12
_MOST_LETTERS = 100  # letters of a subject that are shown


def format_diff_report(diff: Document) -> list[str]:
    """Return what a person reads."""
    blocks = [tables.align_rows([(change["what"], _describe_values(change)) for change in diff["fields"]])]
    blocks.append(_format_tools(diff["tools"]))
    changed = {name: project for name, project in diff["projects"].items() if name not in diff["unchanged"]}
    rows = [_format_row(name, project) for name, project in changed.items()]
    lines: list[str] = []
    for project, row in zip(changed.values(), tables.align_rows(rows), strict=True):
        details = [f"    {detail}" for detail in _format_details(project)]
        lines += [row, *details, *([""] if details else [])]
    blocks.append(lines if not lines or lines[-1] else lines[:-1])
    unsaid: dict[str, list[str]] = {name: [] for name in diff["not_compared"]}
    for name, project in diff["projects"].items():
        for what in project["not_compared"]:
            unsaid.setdefault(what, []).append(name)
    end = []
    if diff["same"]:
        words = "nothing differs that both locks say" if unsaid else "the locks are the same"
        end.append(f"{words}: {', '.join(diff['unchanged'])}")
    elif diff["unchanged"]:
        end.append(f"unchanged: {', '.join(diff['unchanged'])}")
    if unsaid:
        names = [f"{what} of {', '.join(of)}" if of else what for what, of in unsaid.items()]
        end.append(f"not compared, for only one of the locks says it: {'; '.join(names)}")
    blocks.append(end)
    return [line for block in blocks if block for line in (*block, "")][:-1]


def _format_tools(changes: list[Document]) -> list[str]:
    """Return a line for each change of a package, with the projects and the Pythons that it is for."""
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    for change in changes:
        old, new = ((change[side] or {}).get("version") for side in ("old", "new"))
        words = f"{old} → {new}" if old != new else f"{old}, other files"
        if old is None or new is None:
            words = f"added, {new}" if old is None else f"removed, was {old}"
        groups = places.setdefault((change["name"], words), {})
        groups.setdefault(change["group"], []).append(change["python"])
    rows = []
    for (name, words), groups in places.items():
        where = "; ".join(f"{group} ({', '.join(pythons)})" for group, pythons in groups.items())
        rows.append(("tool", name, words, where))
    return tables.align_rows(rows)


def _format_row(name: str, project: Document) -> list[str]:
    """Return name, ref, commit, version and what lies between."""
    old, new = project["old"], project["new"]
    if old is None or new is None:
        locked = new or old
        return [name, make_readable(locked["ref"]), _describe_commits(project), locked["version"] or "", ""]
    refs = (
        side["ref"][:_SHORT_ID] if side["ref"] == side["commit"] else make_readable(side["ref"])
        for side in (old, new)
    )
    shown = ""
    if old["version"] or new["version"]:
        shown = _format_change(old["version"] or "?", new["version"] or "?")
    history = _describe_count(project["history"])
    if old["commit"] != new["commit"] and old["tree"] is not None and old["tree"] == new["tree"]:
        history = f"{history} (the same files)".lstrip()
    return [name, _format_change(*refs), _describe_commits(project), shown, history]


def _format_details(project: Document) -> Iterator[str]:
    for change in project["fields"]:
        if change["what"] in ("origin", "patches", "tree"):
            yield f"{change['what']}  {_describe_values(change)}"
    yield from _format_commits(project["history"])
    rows = []
    for path, move in project["submodules"].items():
        words, old, new = _describe_commits(move), move["old"], move["new"]
        if old and new and old["origin"] != new["origin"]:
            words += f"  from {_format_change(*map(make_readable, (old['origin'], new['origin'])))}"
        elif old and new and old["commit"] == new["commit"]:  # one of the locks is wrong
            words += f"  tree {old['tree']} → {new['tree']}"
        rows.append((make_readable(path), f"{words}  {_describe_count(move['history'])}".rstrip()))
    for move, line in zip(project["submodules"].values(), tables.align_rows(rows), strict=True):
        yield line
        yield from (f"    {line}" for line in _format_commits(move["history"]))


def _describe_commits(move: Document) -> str:
    """Say where a project or a submodule went."""
    commits = [side["commit"][:_SHORT_ID] for side in (move["old"], move["new"]) if side is not None]
    if len(commits) == 2:
        return _format_change(*commits)
    return f"added, {commits[0]}" if move["old"] is None else f"removed, was {commits[0]}"


def _format_commits(history: Document | None) -> Iterator[str]:
    """List commits, the dropped ones last: they are few, and what one must look at stands at the end."""
    if history is None or not history["complete"]:
        if history is not None and history["compare"]:
            yield make_readable(history["compare"])
        return
    for mark, side in (("+", "added"), ("-", "dropped")):
        commits, count = history[side]["commits"], history[side]["count"]
        for commit in commits:
            subject = commit["subject"]
            if len(subject) > _MOST_LETTERS:
                subject = f"{subject[: _MOST_LETTERS - 1]}…"
            yield f"{mark} {commit['commit'][:_SHORT_ID]} {subject}".rstrip()
        if 0 < len(commits) < count:
            yield f"{mark} … {count - len(commits)} more"


def _describe_count(history: Document | None) -> str:
    if history is None or not history["complete"]:
        return "history not known" if history is not None and not history["compare"] else ""
    counts = {"": history["added"]["count"], " dropped": history["dropped"]["count"]}
    return ", ".join(f"{tables.format_count(n, 'commit')}{how}" for how, n in counts.items() if n)


def _describe_values(change: Document) -> str:
    what, values = change["what"], (change["old"], change["new"])
    words = ["left open" if what in ("targets", "pythons", "rocm") else "none"] * 2
    for side, value in enumerate(values):
        if value and what == "patches":
            words[side] = f"{value['name']} ({value['digest'][:_SHORT_ID]})"
        elif value:
            words[side] = make_readable(value if isinstance(value, str) else ", ".join(value))
    if all(value and isinstance(value, tuple) for value in values):
        parts = [f"+ {value}" for value in values[1] if value not in values[0]]
        parts += [f"- {value}" for value in values[0] if value not in values[1]]
        return "  ".join(parts) or f"{_format_change(*words)} (another order)"
    return _format_change(*words)


def _format_change(old: str, new: str) -> str:
    return old if old == new else f"{old} → {new}"
