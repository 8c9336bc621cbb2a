"""Wheels that are in an index: taken out, yanked, and no longer yanked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import UsageError
from rocm_wheels.index.changing import PATIENCE, Change, changing
from rocm_wheels.index.entries import SDIST_SUFFIX, Entry, name_parts
from rocm_wheels.index.views import View, families

_EXAMPLE = "name a wheel's file, or a release: torch==2.9.1+rocm7.1.0"


def remove_wheels(
    root: Path, what: Sequence[str], *, family: str = "", patience: float = PATIENCE
) -> list[str]:
    """Take wheels out of an index: first from its pages, then the files; return their names.

    A wheel that lies elsewhere (``--files-url``) is only taken from the pages.
    """
    removed = []
    with changing(root, what="index remove", patience=patience) as change:
        for project, names in _named(change, root, what, family).items():
            view = View(root, family)
            entries = change.read(view, project)
            for entry in [entries.pop(name) for name in names]:
                removed.append(entry.name)
                files = (view.file_of(project, entry), view.sidecar_of(project, entry))
                for file in files:
                    if file is not None and file.exists():
                        change.remove(file)
            change.settle(view, project, entries)
    return removed


def yank_wheels(
    root: Path, what: Sequence[str], *, reason: str | None, family: str = "", patience: float = PATIENCE
) -> list[str]:
    """Yank wheels (PEP 592) with a ``reason`` ("" for none); None takes it back. Return what changed."""
    changed = []
    with changing(root, what="index yank", patience=patience) as change:
        for project, names in _named(change, root, what, family).items():
            view = View(root, family)
            entries = change.read(view, project)
            for name in names:
                if entries[name].yanked != reason:
                    entries[name] = replace(entries[name], yanked=reason)
                    changed.append(name)
            change.settle(view, project, entries)
    return changed


def _named(change: Change, root: Path, what: Sequence[str], family: str) -> dict[str, list[str]]:
    """Return the file names that are meant, by project; UsageError for one that is not there."""
    if family and family not in families(root):
        listed = families(root)
        raise UsageError(f"--family {family}: the index has {', '.join(listed) or 'no families'}")
    view = View(root, family)
    found: dict[str, list[str]] = {}
    for word in what:
        project, version = _parsed(word)
        entries = change.read(view, project)
        names = [name for name, entry in entries.items() if _is_meant(entry, word, version)]
        if not names:
            from rocm_wheels.records import did_you_mean

            near = did_you_mean(word, list(entries)) if entries else ""
            where = f"{root / family}" if family else f"{root}"
            raise UsageError(f"{where} has no {word}{near}", tip=_EXAMPLE)
        found.setdefault(project, [])
        found[project] += [name for name in names if name not in found[project]]
    return found


def _is_meant(entry: Entry, word: str, version: Version | None) -> bool:
    return entry.name == word if version is None else entry.version == version


def _parsed(word: str) -> tuple[str, Version | None]:
    if word.endswith((".whl", SDIST_SUFFIX)):
        return name_parts(word)[0], None
    name, equals, version = word.partition("==")
    try:
        if equals:
            return canonicalize_name(name.strip()), Version(version.strip())
    except InvalidVersion:
        raise UsageError(f"{word}: {version!r} is not a version", tip=_EXAMPLE) from None
    raise UsageError(f"{word} is neither a wheel nor a release", tip=_EXAMPLE)
