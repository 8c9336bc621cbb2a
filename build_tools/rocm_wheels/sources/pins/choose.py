"""Which repository and ref a project is checked out from, and why.

An option goes before a pin in the torch checkout, a pin before the release line (``--line``),
and where no line is given, a pin before the recipe's default. A pin goes before the line because it
is one commit that was tried with this torch, and the line's branch moves on; but a torch
checkout of another line has nothing to say. What was chosen is always said, and so is a pin that
was looked for and is not there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from rocm_wheels import log
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.line_facts import Line
from rocm_wheels.model.project import Platform, Project, Source
from rocm_wheels.model.versions import base_version
from rocm_wheels.sources.pins.files import parse_commit, parse_version, read_text
from rocm_wheels.sources.pins.related_commits import FILE_NAME, read_related_commits

_TIP = "check out torch first (--torch-dir says where it is), or name the commit with --repo-hashtag"


@dataclass(frozen=True)
class Pin:
    """A readable ``ref`` of a repository; ``commit`` is what it stood for (empty: not yet resolved)."""

    origin: str
    ref: str
    why: str
    commit: str = ""


def choose_pin(
    project: Project,
    *,
    platform: Platform = "linux",
    origin: str | None = None,
    ref: str | None = None,
    torch_dir: Path | None = None,
    release: bool = False,
    line: Line | None = None,
    require_related_commit: bool = False,
) -> Pin:
    """Choose by option, pin, line, recipe; ``origin`` and ``ref`` are the options' values.

    A pin is a commit of a repository: a ref given by option sets it aside as a whole, an
    origin given by option alone is another place for the pinned commit. ``release``: the
    release branch that goes with the torch tree, instead of the pin. Raises SourceError when
    a pin is required and there is none or it is another line's, UsageError where there are no
    release branches or options exclude each other, DataError for a file of pins with a mistake.
    """
    _agree(origin, ref, release, line)
    source = project.source.on(platform)
    default = _default(project, source, platform, line)
    if ref is not None:
        why = "options" if origin is not None else f"--repo-hashtag; origin: {default.why}"
        return Pin(origin or default.origin, ref, why)
    if release:
        pin = _release_branch(project, source, platform, torch_dir)
    else:
        found, missing = look_for_pin(source, torch_dir)
        if found is not None and line is not None and torch_dir is not None:
            _check_line(torch_dir, line)
        if found is None and (missing is not None or line is not None):
            _not_pinned(project, platform, missing, default, line=line, required=require_related_commit)
        pin = found or default
    return pin if origin is None else replace(pin, origin=origin, why=f"{pin.why}; origin: --gitrepo-origin")


def _agree(origin: str | None, ref: str | None, release: bool, line: Line | None) -> None:
    """Raise UsageError for options of which one would have no effect."""
    if release and ref is not None:
        raise UsageError("--release and --repo-hashtag exclude each other", tip="give one of them")
    if release and line is not None:
        raise UsageError("--release and --line exclude each other", tip="give one of them")
    if line is not None and ref is not None and origin is not None:
        raise UsageError(
            f"--line {line.name} would have no effect: --repo-hashtag and --gitrepo-origin say everything",
            tip="leave one of the three out",
        )


def _default(project: Project, source: Source, platform: Platform, line: Line | None) -> Pin:
    """Return what is checked out without option and pin; an empty ref where there is no such thing."""
    if line is None:
        windows = ", windows" if source is not project.source else ""
        return Pin(source.origin, source.ref or "", f"recipe {project.name}.yaml{windows}")
    place = line.place(project.name, platform)
    if place is None or place.origin is None:
        return Pin(source.origin, "", f"recipe {project.name}.yaml")
    believed = ", believed" if place.kind == "believed" else ""
    return Pin(place.origin, place.ref or "", f"release line {line.name}{believed}")


def _not_pinned(
    project: Project,
    platform: Platform,
    missing: str | None,
    default: Pin,
    *,
    line: Line | None,
    required: bool,
) -> None:
    """Say that ``default`` is taken for want of a pin, or raise SourceError when it may not or cannot be."""
    if missing is not None and (required or (not default.ref and line is None)):
        raise SourceError(f"{project.name} must be pinned, and {missing}", tip=_TIP)
    if not default.ref and line is not None:
        because = f", and {missing}" if missing else ""
        raise SourceError(
            f"release line {line.name} names no ref of {project.name} for {platform}{because}",
            tip=f"name it with --repo-hashtag; `rocm-wheels lines {line.name}` says what is known",
        )
    if missing is not None:
        whose = "the recipe's default" if line is None else f"release line {line.name}'s"
        log.warn(f"{project.name} is not pinned: {missing}; {whose} {default.ref} is used")


def _check_line(torch_dir: Path, line: Line) -> None:
    """Raise SourceError when the torch checkout, which pins, is not of the line that was asked for."""
    text = base_version(torch_dir)
    version = Version(text)
    fits = version.is_prerelease if line.torch is None else f"{version.major}.{version.minor}" == line.torch
    if not fits:
        raise SourceError(
            f"{torch_dir} is torch {text}: its pins are not those of release line {line.name}",
            tip=f"check out torch with --line {line.name} first, or leave --line out to take its pins",
        )


def look_for_pin(source: Source, torch_dir: Path | None) -> tuple[Pin | None, str | None]:
    """Return the pin in a torch checkout, or why there is none; neither where the recipe knows no pin."""
    key = source.related_commits
    if key is None and not source.pin_files:
        return None, None
    if torch_dir is None:
        return None, "no torch checkout was named"
    missing = []
    if key is not None:
        path = torch_dir / FILE_NAME
        rows = read_related_commits(path) if os.path.lexists(path) else None
        if rows is not None and key in rows:
            row = rows[key]
            return Pin(row.origin, row.commit, f"{path} line {row.line}, branch {row.branch}"), None
        missing.append(
            f"there is no {path}"
            if rows is None
            else f"{path} has no row for {key} (it has {', '.join(sorted(rows)) or 'none at all'})"
        )
    for file in source.pin_files:
        path = torch_dir / file.file
        if os.path.lexists(path):
            commit = parse_commit(read_text(path), name=str(path))
            return Pin(file.origin or source.origin, commit, str(path)), None
        missing.append(f"no {file.file}" if missing else f"there is no {path}")
    return None, " and ".join(missing)


def _release_branch(project: Project, source: Source, platform: Platform, torch_dir: Path | None) -> Pin:
    """Return the release branch that a file of the torch checkout stands for."""
    release = source.release
    if release is None:
        raise UsageError(
            f"--release: the recipe of {project.name} names no release branches for {platform}",
            tip="leave it out, or name the branch with --repo-hashtag",
        )
    path = None if torch_dir is None else torch_dir / release.version_file
    if path is None or not os.path.lexists(path):
        raise SourceError(
            "--release: " + ("no torch checkout was named" if path is None else f"there is no {path}"),
            tip=_TIP,
        )
    major, minor = parse_version(read_text(path), name=str(path))
    return Pin(source.origin, release.ref.format(major=major, minor=minor), f"--release, {path}")
