"""Wheels that are in an index: taken out, yanked, and no longer yanked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import UsageError
from rocm_wheels.index.changing import LOCK_PATIENCE, IndexChange, change_index
from rocm_wheels.index.entries import SDIST_SUFFIX, IndexEntry, parse_file_name
from rocm_wheels.index.views import IndexFolder, list_families

_NAME_TIP = "name a wheel's file, or a release: torch==2.9.1+rocm7.1.0"


def remove_wheels(
    root: Path, words: Sequence[str], *, family: str = "", patience: float = LOCK_PATIENCE
) -> list[str]:
    """Take wheels out of an index: first from its pages, then the files; return their names.

    A wheel that lies elsewhere (``--files-url``) is only taken from the pages.
    """
    removed = []
    with change_index(root, action="index remove", patience=patience) as change:
        for project, names in _find_names(change, root, words, family).items():
            view = IndexFolder(root, family)
            entries = change.read_entries(view, project)
            for entry in [entries.pop(name) for name in names]:
                removed.append(entry.name)
                files = (view.file_of(project, entry), view.sidecar_of(project, entry))
                for file in files:
                    if file is not None and file.exists():
                        change.remove_file(file)
            change.set_entries(view, project, entries)
    return removed


def yank_wheels(
    root: Path, words: Sequence[str], *, reason: str | None, family: str = "", patience: float = LOCK_PATIENCE
) -> list[str]:
    """Yank wheels (PEP 592) with a ``reason`` ("" for none); None takes it back. Return what changed."""
    changed = []
    with change_index(root, action="index yank", patience=patience) as change:
        for project, names in _find_names(change, root, words, family).items():
            view = IndexFolder(root, family)
            entries = change.read_entries(view, project)
            for name in names:
                if entries[name].yanked != reason:
                    entries[name] = replace(entries[name], yanked=reason)
                    changed.append(name)
            change.set_entries(view, project, entries)
    return changed


def _find_names(change: IndexChange, root: Path, words: Sequence[str], family: str) -> dict[str, list[str]]:
    """Return the file names that are meant, by project; UsageError for one that is not there."""
    if family and family not in list_families(root):
        listed = list_families(root)
        raise UsageError(f"--family {family}: the index has {', '.join(listed) or 'no families'}")
    view = IndexFolder(root, family)
    names_by_project: dict[str, list[str]] = {}
    for word in words:
        project, version = _parse_name(word)
        entries = change.read_entries(view, project)
        names = [name for name, entry in entries.items() if _is_meant(entry, word, version)]
        if not names:
            from rocm_wheels.records import suggest_name

            near = suggest_name(word, list(entries)) if entries else ""
            where = f"{root / family}" if family else f"{root}"
            raise UsageError(f"{where} has no {word}{near}", tip=_NAME_TIP)
        names_by_project.setdefault(project, [])
        names_by_project[project] += [name for name in names if name not in names_by_project[project]]
    return names_by_project


def _is_meant(entry: IndexEntry, word: str, version: Version | None) -> bool:
    return entry.name == word if version is None else entry.version == version


def _parse_name(word: str) -> tuple[str, Version | None]:
    if word.endswith((".whl", SDIST_SUFFIX)):
        return parse_file_name(word)[0], None
    name, equals, version = word.partition("==")
    try:
        if equals:
            return canonicalize_name(name.strip()), Version(version.strip())
    except InvalidVersion:
        raise UsageError(f"{word}: {version!r} is not a version", tip=_NAME_TIP) from None
    raise UsageError(f"{word} is neither a wheel nor a release", tip=_NAME_TIP)
