"""Compare two locks: what changed, the commits in between, and a report for people and programs.

A manifest of another tool leaves things out: what is not in it is never taken for a change. Commits come from
a checkout or a mirror that has both ends and all of its history; no server is asked: where neither has them,
the page of the host that compares them is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocm_wheels.core import errors, log, shell, tables
from rocm_wheels.models.lock import Lock, LockedProject, LockedSubmodule
from rocm_wheels.sources.git import Git
from rocm_wheels.sources.mirrors import locate_mirror

Document = dict[str, Any]
"""What ``lock diff --json`` prints; keys are added, never renamed.

same, manifest (one is a manifest, so that less is compared), fields: [{what, old, new}],
tools: [{python, group, name, old, new}], unchanged: [project],
projects: {project: {change (added, removed, changed), old, new, fields, history, submodules}}; submodules are
by path, each with the same keys.
history: null where none is due; {complete: true, source, added: {count, commits}, dropped}, newest first (a
branch that was pushed with force drops commits); or {complete: false, compare: page that compares, or null}.
"""

_MOST_COMMITS = 20  # commits of a project and direction that are listed
_LOCK_FIELDS = ("platform", "line", "rocm", "targets", "pythons", "local_version", "named_torch")
_FIELDS = ("origin", "ref", "commit", "version", "tree", "patches")  # of a project; some of a submodule
_Locked = LockedProject | LockedSubmodule


def compare_locks(a: Lock, b: Lock) -> Document:
    """Return what changed from ``a`` to ``b``, without histories. Who asked for a ref is no difference."""
    manifest = any(
        all(p.tree is None and p.submodules is None for p in lock.projects.values()) for lock in (a, b)
    )
    old, new = (
        {what: getattr(lock, what) for what in _LOCK_FIELDS} | {"tools": tuple(lock.tools)} for lock in (a, b)
    )
    fields = _compare_fields(old, new, manifest=manifest)
    projects = _compare_all(a.projects, b.projects, manifest=manifest)
    changed = {name: project for name, project in projects.items() if _is_changed(project)}
    pythons = [python for python in a.tools if python in b.tools]
    olds, news = _list_tools(a, pythons), _list_tools(b, pythons)
    tools = [
        {"python": python, "group": group, "name": name, "old": olds.get(key), "new": news.get(key)}
        for key in sorted({*olds, *news})
        if olds.get(key) != news.get(key)
        for python, group, name in [key]
    ]
    return {
        "same": not (fields or tools or changed),
        "manifest": manifest,
        "fields": fields,
        "tools": tools,
        "unchanged": [name for name in projects if name not in changed],
        "projects": changed,
    }


def _list_tools(lock: Lock, pythons: Sequence[str]) -> dict[tuple[str, str, str], Document]:
    return {
        (python, group, name): package.model_dump()
        for python in pythons
        for tools in [lock.tools[python]]
        for group, packages in {"rocm": tools.rocm, **tools.projects, "backends": tools.backends}.items()
        for name, package in packages.items()
    }


def _compare_fields(old: Document, new: Document, *, manifest: bool) -> list[Document]:
    """Return the fields that differ; what is empty in a manifest, and each ref there, says nothing."""
    return [
        {"what": what, "old": old[what], "new": new[what]}
        for what in old
        if old[what] != new[what]
        if not manifest or (what != "ref" and old[what] and new[what])
    ]


def _compare_all(
    olds: Mapping[str, _Locked], news: Mapping[str, _Locked], *, manifest: bool
) -> dict[str, Document]:
    """Return what became of projects, or of the submodules of one."""
    moves: dict[str, Document] = {}
    for name in sorted({*olds, *news}):
        sides = [side.get(name) for side in (olds, news)]
        old, new = (
            None
            if locked is None
            else locked.model_dump(mode="json", include={*_FIELDS})
            | {"origin": shell.hide_credentials(locked.origin)}
            for locked in sides
        )
        change = "added" if old is None else "removed" if new is None else "changed"
        move: Document = {"change": change, "old": old, "new": new, "fields": [], "submodules": {}}
        if old is not None and new is not None:
            fields = _compare_fields(old, new, manifest=manifest)
            # where the commits differ, so do the trees; else one of the locks is wrong
            same_commit = old["commit"] == new["commit"]
            move["fields"] = [field for field in fields if same_commit or field["what"] != "tree"]
            before, after = (getattr(locked, "submodules", None) for locked in sides)
            if before is not None and after is not None:
                modules = _compare_all(before, after, manifest=manifest)
                move["submodules"] = {path: module for path, module in modules.items() if _is_changed(module)}
        moves[name] = {**move, "history": None}
    return moves


def _is_changed(move: Document) -> bool:
    return bool(move["change"] != "changed" or move["fields"] or move["submodules"])


# the forms of origins that lead to a host; a path of this machine is none
_HOSTED = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+)(?::\d+)?[/:](?P<path>.+?)(?:\.git)?/?"
)


def add_histories(diff: Document, *, repos: Path, mirrors: Path | None, env: Mapping[str, str]) -> None:
    """Put into ``diff`` what lies between the commits of every project that has another one.

    ``repos``: the folder of the checkouts. ``mirrors``: theirs. At most 20 commits are listed of a project
    and direction; all are counted.
    """
    for name, move in diff["projects"].items():
        old, new = move["old"], move["new"]
        if old is None or new is None or old["commit"] == new["commit"]:
            continue
        folders = [repos / name]
        if mirrors is not None:
            origins = dict.fromkeys((new["origin"], old["origin"]))
            folders += [locate_mirror(origin, mirrors, env).folder for origin in origins]
        page = make_compare_url(new["origin"], old["commit"], new["commit"])
        move["history"] = {"complete": False, "compare": page or None}
        for folder in folders:
            if (history := _read_range(folder, old["commit"], new["commit"], env)) is not None:
                move["history"] = history
                break


def make_compare_url(origin: str, old: str, new: str) -> str:
    """Return the page of a repository's host that compares two commits; "" for a host that is not known."""
    match = _HOSTED.fullmatch(origin)
    host, path = (match["host"].lower(), match["path"].lstrip("/")) if match else ("", "")
    if "gitlab" in host:
        path += "/-"
    elif host not in {"github.com", "codeberg.org"} and "gitea" not in host:
        return ""
    return f"https://{host}/{path}/compare/{old}...{new}"


def _read_range(folder: Path, old: str, new: str, env: Mapping[str, str]) -> Document | None:
    """Return the history that a repository on this machine has; ``None`` when it has not got it all."""
    if not ((folder / ".git").exists() or (folder / "HEAD").is_file()):
        return None
    # a partial clone would ask its server for what is missing; replaced commits are not the locked ones
    git = Git(folder.absolute(), env, ("protocol.allow=never",), {"GIT_NO_REPLACE_OBJECTS": "1"})
    # unlike `git log`, it reads no setting of the user's but that of the encoding
    words = ("--left-right", "--encoding=UTF-8", "--format=%m%H %s")
    try:
        if git.text("rev-parse", "--is-shallow-repository") == "true":
            return None  # what lies behind the cut could be on either side
        lines = git.text("rev-list", *words, f"{old}...{new}", "--").split("\n")
    except errors.SourceError:
        return None  # it has not both, or is damaged
    sides: dict[str, list[Document]] = {">": [], "<": []}
    for line in lines:
        if line and not line.startswith("commit "):
            commit, _, subject = line[1:].partition(" ")
            sides[line[0]].append({"commit": commit, "subject": _make_readable(subject)})
    added, dropped = ({"count": len(side), "commits": side[:_MOST_COMMITS]} for side in sides.values())
    return {"complete": True, "source": str(folder), "added": added, "dropped": dropped}


def _make_readable(text: str) -> str:
    """Return a stranger's text in letters that steer no terminal; bytes that are no text are escaped."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return log.make_printable(text.replace("\x1b", "\\x1b"))


_SHORT_ID = 12
_MOST_LETTERS = 100  # letters of a subject that are shown


def format_diff_report(diff: Document) -> list[str]:
    """Return what a person reads."""
    blocks = [tables.align_rows([(change["what"], _format_values(change)) for change in diff["fields"]])]
    places: dict[tuple[str, str], list[str]] = {}
    for tool in diff["tools"]:
        versions = [(tool[side] or {}).get("version", "") for side in ("old", "new")]
        words = f"{versions[0]}, other files" if versions[0] == versions[1] else _format_change(*versions)
        places.setdefault((tool["name"], words), []).append(f"{tool['group']} ({tool['python']})")
    blocks.append(tables.align_rows([("tool", *key, ", ".join(where)) for key, where in places.items()]))
    moves = list(_format_moves(diff["projects"]))
    moved = [line for block in moves for line in (*block, *([""] if len(block) > 1 else []))]
    blocks.append(moved if not moved or moved[-1] else moved[:-1])
    words = "unchanged"
    if diff["same"]:
        words = "nothing differs that both say" if diff["manifest"] else "the locks are the same"
    end = [f"{words}: {', '.join(diff['unchanged'])}"] if diff["unchanged"] else []
    if diff["manifest"]:
        end.append("one of them is a manifest: refs, and what is not in it, are not compared")
    return [line for block in (*blocks, end) if block for line in (*block, "")][:-1]


def _format_moves(moves: Mapping[str, Document]) -> Iterator[list[str]]:
    """Yield the lines of each project or submodule: a row for it, and below it what one may look at."""
    rows = []
    for name, move in moves.items():
        sides = [side for side in (move["old"], move["new"]) if side]
        refs, commits, versions = (
            _format_change(sides[0].get(what) or "", sides[-1].get(what) or "")
            for what in ("ref", "commit", "version")
        )
        rows.append([_make_readable(name), refs, commits, versions, _describe_history(move)])
    for move, row in zip(moves.values(), tables.align_rows(rows), strict=True):
        shown = [change for change in move["fields"] if change["what"] in ("origin", "patches", "tree")]
        lines = [f"{change['what']}  {_format_values(change)}" for change in shown]
        history = move["history"] or {"complete": False, "compare": None}
        if history["complete"]:
            # the dropped ones last: they are few, and what one must look at stands at the end
            for mark, side in (("+", history["added"]), ("-", history["dropped"])):
                for commit in side["commits"]:
                    subject = commit["subject"]
                    if len(subject) > _MOST_LETTERS:
                        subject = f"{subject[: _MOST_LETTERS - 1]}…"
                    lines.append(f"{mark} {commit['commit'][:_SHORT_ID]} {subject}".rstrip())
                if 0 < len(side["commits"]) < side["count"]:
                    lines.append(f"{mark} … {side['count'] - len(side['commits'])} more")
        elif history["compare"]:
            lines.append(_make_readable(history["compare"]))
        for inner in _format_moves(move["submodules"]):
            lines += inner
        yield [row, *(f"    {line}" for line in lines)]


def _describe_history(move: Document) -> str:
    """Return how many commits lie between, where that is known."""
    history, old, new = move["history"], move["old"], move["new"]
    if move["change"] != "changed":
        return str(move["change"])
    words = []
    if history is not None and history["complete"]:
        counts = {"": history["added"]["count"], " dropped": history["dropped"]["count"]}
        words = [f"{tables.format_count(n, 'commit')}{how}" for how, n in counts.items() if n]
    elif history is not None and not history["compare"]:
        words = ["history not known"]
    if old["commit"] != new["commit"] and old["tree"] == new["tree"] is not None:
        words.append("the same files")
    return ", ".join(words)


def _format_values(change: Document) -> str:
    old, new = change["old"], change["new"]
    if isinstance(old, tuple) and set(old) != set(new):
        added = [f"+ {value}" for value in new if value not in old]
        return "  ".join([*added, *(f"- {value}" for value in old if value not in new)])
    words = [f"{v['name']} ({v['digest'][:_SHORT_ID]})" if isinstance(v, dict) else v for v in (old, new)]
    return _format_change(*(", ".join(word) if isinstance(word, tuple) else word or "" for word in words))


def _format_change(old: str, new: str) -> str:
    """Return where something went, commits in short; an empty text is none."""
    old, new = (
        _make_readable(text[:_SHORT_ID] if re.fullmatch("[0-9a-f]{40}", text) else text)
        for text in (old, new)
    )
    return old if old == new else f"{old or 'none'} → {new or 'none'}"
