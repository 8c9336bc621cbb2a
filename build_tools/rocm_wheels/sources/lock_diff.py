"""Compare two locks: what changed, the commits in between, and a report for people and programs.

A manifest of another tool leaves things out. What one of the two does not say is never taken for a change: it
is listed as not compared. Commits come from a checkout or a mirror that has both ends; no server is asked:
where neither has them, the page of the host that compares them is named. A list is given only when it is
whole: what lies behind a cut in the history could be on either side.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.core import errors, log, shell, tables
from rocm_wheels.models import lock
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.mirrors import locate_mirror

ChangeKind = Literal["added", "removed", "changed"]
Document = dict[str, Any]
"""What ``lock diff --json`` prints; keys are added, never renamed.

same, fields: [{what, old, new}], not_compared: [what], tools: [{python, group, name, old, new}],
unchanged: [project], projects: {project: {change, old, new, fields, not_compared, history,
submodules: {path: {change, old, new, history}}}}.
history: null where none is due; {complete: true, source, added: {count, commits}, dropped}, newest first (a
branch that was pushed with force drops commits); or {complete: false, compare: page that compares, or null}.
"""

_Row = tuple[str, Any, Any, bool, bool]  # what, old, new, and for each whether its lock does not say it
_SHOWN_FIELDS = {"origin", "ref", "commit", "tree", "version", "patches"}  # of a project or a submodule


def compare_locks(a: lock.Lock, b: lock.Lock) -> Document:
    """Return what changed from ``a`` to ``b``, without histories. Who asked for a ref is no difference."""
    brief_a, brief_b = _is_brief(*a.projects.values()), _is_brief(*b.projects.values())
    rows: list[_Row] = [("platform", a.platform, b.platform, False, False)]
    for name in ("line", "rocm", "targets", "pythons", "local_version", "named_torch", "tools"):
        old, new = getattr(a, name), getattr(b, name)
        if name == "tools":
            old, new = tuple(old), tuple(new)  # the Pythons that there are tools for
        rows.append((name, old, new, brief_a and not old, brief_b and not new))
    fields, not_compared = _list_changes(rows)
    tools = list(_compare_tools(a, b))
    names = sorted(a.projects.keys() | b.projects.keys())
    projects = {name: _compare_projects(a.projects.get(name), b.projects.get(name)) for name in names}
    unchanged = [name for name, project in projects.items() if _is_same(project)]
    return {
        "same": not (fields or tools) and len(unchanged) == len(projects),
        "fields": fields,
        "not_compared": not_compared,
        "tools": tools,
        "unchanged": unchanged,
        "projects": {
            name: project
            for name, project in projects.items()
            if name not in unchanged or project["not_compared"]
        },
    }


def _list_changes(rows: Iterable[_Row]) -> tuple[list[Document], list[str]]:
    """Return the rows that differ, and the names of those that only one of the locks says."""
    fields, not_compared = [], []
    for what, old, new, old_unsaid, new_unsaid in rows:
        if old == new or (old_unsaid and new_unsaid):
            continue
        if old_unsaid or new_unsaid:
            not_compared.append(what)
        else:
            fields.append({"what": what, "old": _dump(old), "new": _dump(new)})
    return fields, not_compared


def _dump(value: Any) -> Any:
    if isinstance(value, str):
        return shell.hide_credentials(value)
    return value.model_dump(mode="json") if isinstance(value, lock.LockedPatches) else value


def _compare_tools(a: lock.Lock, b: lock.Lock) -> Iterator[Document]:
    """Yield the packages to build with that differ, for Pythons that both locks have tools for."""
    for python in a.tools:
        if python not in b.tools:
            continue
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
        brief_old, brief_new = _is_brief(old), _is_brief(new)
        # for a pin of which it names no branch, a manifest has the commit alone
        rows: list[_Row] = [
            ("origin", old.origin, new.origin, False, False),
            (
                "ref",
                old.ref,
                new.ref,
                brief_old and old.ref == old.commit,
                brief_new and new.ref == new.commit,
            ),
            ("commit", old.commit, new.commit, False, False),
            ("version", old.version, new.version, old.version is None, new.version is None),
        ]
        if old.commit == new.commit:  # else the trees are other ones; here one of the locks is wrong
            rows.append(("tree", old.tree, new.tree, old.tree is None, new.tree is None))
        unsaid = brief_old and old.patches is None, brief_new and new.patches is None
        fields, not_compared = _list_changes([*rows, ("patches", old.patches, new.patches, *unsaid)])
        if old.submodules is not None and new.submodules is not None:
            for path in sorted(old.submodules.keys() | new.submodules.keys()):
                before, after = old.submodules.get(path), new.submodules.get(path)
                if before is None or after is None or not _is_same_submodule(before, after):
                    submodules[path] = {**_dump_both(before, after), "history": None}
        elif old.submodules is not None or new.submodules is not None:
            not_compared.append("submodules")
    return {
        **_dump_both(old, new),
        "fields": fields,
        "not_compared": not_compared,
        "history": None,
        "submodules": submodules,
    }


def _is_brief(*projects: lock.LockedProject) -> bool:
    """Tell whether projects come from a manifest, which leaves out what is not in its schema."""
    return all(project.tree is None and project.submodules is None for project in projects)


def _is_same_submodule(old: lock.LockedSubmodule, new: lock.LockedSubmodule) -> bool:
    trees = {old.tree, new.tree} - {None}
    return (old.origin, old.commit) == (new.origin, new.commit) and len(trees) < 2


def _is_same(project: Document) -> bool:
    """Tell whether nothing that both locks say of a project differs."""
    return project["change"] == "changed" and not (project["fields"] or project["submodules"])


def _dump_both(
    old: lock.LockedProject | lock.LockedSubmodule | None,
    new: lock.LockedProject | lock.LockedSubmodule | None,
) -> Document:
    change: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
    dumped: Document = {"change": change}
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


def _read_range(folder: Path, old: str, new: str, limit: int, env: Mapping[str, str]) -> Document | None:
    """Return the history that a repository on this machine has; ``None`` when it has not got it all."""
    if not ((folder / ".git").exists() or (folder / "HEAD").is_file()):
        return None
    git = Git(folder.absolute(), env, variables=_UNCHANGED_HISTORY)
    # not `cat-file -e`: in a partial clone, git before 2.39.4 asks the server for what is missing
    if not all(git.succeeds("rev-list", "--missing=allow-any", "-1", commit, "--") for commit in (old, new)):
        return None
    words = ["--left-right", "--encoding=UTF-8", "--format=%m%H %ct %s"]
    try:
        output = git.text("rev-list", *words, f"{old}...{new}", "--")
        last_cut = _find_last_cut(git)
    except errors.SourceError as error:
        reason = make_readable(str(error).splitlines()[0])
        log.log_note(f"{folder} has both commits, but not the history between ({reason})")
        return None
    sides: dict[str, list[Document]] = {">": [], "<": []}  # both ways are walked at once
    for line in output.split("\n"):
        if line and not line.startswith("commit "):
            commit, time, subject = line[1:].split(" ", 2)
            if int(time) <= last_cut:
                return None
            sides[line[0]].append({"commit": commit, "subject": make_readable(subject)})
    added, dropped = ({"count": len(side), "commits": side[:limit]} for side in sides.values())
    return {"complete": True, "source": str(folder), "added": added, "dropped": dropped}


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
_EMPTY_WORDS = {"targets": "left open", "pythons": "left open", "rocm": "left open"}


def format_diff_report(diff: Document) -> list[str]:
    """Return what a person reads."""
    lines = tables.align_rows([(change["what"], _describe_values(change)) for change in diff["fields"]])
    tool_lines = _format_tools(diff["tools"])
    lines += ["", *tool_lines] if lines and tool_lines else tool_lines
    changed = {name: one for name, one in diff["projects"].items() if name not in diff["unchanged"]}
    if lines and changed:
        lines.append("")
    rows = [_format_row(name, project) for name, project in changed.items()]
    for project, line in zip(changed.values(), tables.align_rows(rows), strict=True):
        details = [f"    {detail}" for detail in _format_details(project)]
        lines += [line, *details, *([""] if details else [])]
    if lines and lines[-1]:
        lines.append("")
    unsaid: dict[str, list[str]] = {name: [] for name in diff["not_compared"]}
    for name, project in diff["projects"].items():
        for what in project["not_compared"]:
            unsaid.setdefault(what, []).append(name)
    if diff["same"]:
        words = "nothing differs that both locks say" if unsaid else "the locks are the same"
        lines.append(f"{words}: {', '.join(diff['unchanged'])}")
    elif diff["unchanged"]:
        lines.append(f"unchanged: {', '.join(diff['unchanged'])}")
    if unsaid:
        names = [f"{what} of {', '.join(of)}" if of else what for what, of in unsaid.items()]
        lines.append(f"not compared, for only one of the locks says it: {'; '.join(names)}")
    return lines if lines[-1] else lines[:-1]


def _format_tools(changes: Sequence[Document]) -> list[str]:
    """Return a line for each change of a package, with the Pythons and the projects that it is for."""
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    for change in changes:
        old, new = ((change[side] or {}).get("version") for side in ("old", "new"))
        if old is None or new is None:
            words = f"added, {new}" if old is None else f"removed, was {old}"
        else:
            words = f"{old} → {new}" if old != new else f"{old}, other files"
        groups = places.setdefault((change["name"], words), {})
        groups.setdefault(change["group"], []).append(change["python"])
    rows = []
    for (name, words), groups in places.items():
        by_pythons: dict[str, list[str]] = {}
        for group, pythons in groups.items():
            by_pythons.setdefault(", ".join(pythons), []).append(group)
        where = [f"{', '.join(names)} ({pythons})" for pythons, names in by_pythons.items()]
        rows.append(("tool", name, words, "; ".join(where)))
    return tables.align_rows(rows)


def _format_row(name: str, project: Document) -> list[str]:
    """Return name, ref, commit, version and what lies between."""
    old, new = project["old"], project["new"]
    if old is None or new is None:
        locked = new or old
        return [name, make_readable(locked["ref"]), _describe_commits(project), locked["version"] or "", ""]
    refs = (_shorten_ref(locked) for locked in (old, new))
    versions = (
        (old["version"] or "?", new["version"] or "?") if old["version"] or new["version"] else ("", "")
    )
    history = _describe_count(project["history"])
    if old["commit"] != new["commit"] and old["tree"] is not None and old["tree"] == new["tree"]:
        history = f"{history} (the same files)".lstrip()
    return [name, _format_change(*refs), _describe_commits(project), _format_change(*versions), history]


def _format_details(project: Document) -> Iterator[str]:
    for change in project["fields"]:
        if change["what"] in ("origin", "patches", "tree"):
            yield f"{change['what']}  {_describe_values(change)}"
    yield from _format_commits(project["history"])
    rows = []
    for path, move in project["submodules"].items():
        words = _describe_commits(move)
        if move["change"] == "changed":
            old, new = move["old"], move["new"]
            if old["origin"] != new["origin"]:
                words += f"  from {_format_change(*(make_readable(side['origin']) for side in (old, new)))}"
            elif old["commit"] == new["commit"]:  # one of the locks is wrong
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
    for mark, side in (("+", history["added"]), ("-", history["dropped"])):
        for commit in side["commits"]:
            subject = commit["subject"]
            if len(subject) > _MOST_LETTERS:
                subject = subject[: _MOST_LETTERS - 1] + "…"
            yield f"{mark} {commit['commit'][:_SHORT_ID]} {subject}".rstrip()
        if 0 < len(side["commits"]) < side["count"]:
            yield f"{mark} … {side['count'] - len(side['commits'])} more"


def _describe_count(history: Document | None) -> str:
    if history is None or not history["complete"]:
        return "history not known" if history is not None and not history["compare"] else ""
    counts = {"": history["added"]["count"], " dropped": history["dropped"]["count"]}
    return ", ".join(f"{tables.format_count(n, 'commit')}{how}" for how, n in counts.items() if n)


def _describe_values(change: Document) -> str:
    what, old, new = change["what"], change["old"], change["new"]
    if what == "patches":
        return _format_change(
            *(f"{value['name']} ({value['digest'][:_SHORT_ID]})" if value else "none" for value in (old, new))
        )
    nothing = _EMPTY_WORDS.get(what, "none")
    words = _format_change(*(_format_value(value, nothing) for value in (old, new)))
    if isinstance(old, tuple) and isinstance(new, tuple) and old and new:
        parts = [f"+ {value}" for value in new if value not in old]
        parts += [f"- {value}" for value in old if value not in new]
        return "  ".join(parts) or f"{words} (another order)"
    return words


def _format_value(value: Any, nothing: str) -> str:
    return make_readable(value if isinstance(value, str) else ", ".join(value)) if value else nothing


def _shorten_ref(locked: Document) -> str:
    return locked["ref"][:_SHORT_ID] if locked["ref"] == locked["commit"] else make_readable(locked["ref"])


def _format_change(old: str, new: str) -> str:
    return old if old == new else f"{old} → {new}"
