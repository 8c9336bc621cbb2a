"""Which repository and ref a project is checked out from, and why.

An option goes before a pin in the torch checkout, a pin before the release line (``--line``),
and where no line is given, a pin before the recipe's default. A pin goes before the line because it
is one commit that was tried with this torch, and the line's branch moves on; but a torch
tree of another line has nothing to say. What was chosen is always said, and so is a pin that
was looked for and is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.errors import DataError, SourceError, UsageError
from rocm_wheels.model.project import Platform, Project, ProjectSource
from rocm_wheels.sources.pins.files import (
    REF_OPTION,
    FolderFiles,
    TreeFiles,
    parse_pin_commit,
    parse_pin_version,
)
from rocm_wheels.sources.pins.related_commits import RELATED_COMMITS_FILE, parse_related_commits

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import TorchLine


@dataclass(frozen=True)
class OptionNames:
    """What the options of a command are called, for what is said; ``torch``: how to give it a torch tree."""

    ref: str = REF_OPTION
    origin: str = "--gitrepo-origin"
    torch: str = "check out torch first (--torch-dir says where it is)"


ONE_PROJECT_OPTIONS = OptionNames()


@dataclass(frozen=True)
class Pin:
    """A readable ``ref`` of a repository; ``commit`` is what it stood for (empty: not yet resolved).

    ``pinned``: a torch tree says which commit.
    """

    origin: str
    ref: str
    why: str
    commit: str = ""
    pinned: bool = False


def choose_pin(
    project: Project,
    *,
    platform: Platform = "linux",
    origin: str | None = None,
    ref: str | None = None,
    torch_dir: Path | TreeFiles | None = None,
    release: bool = False,
    line: TorchLine | None = None,
    require_related_commit: bool = False,
    option_names: OptionNames = ONE_PROJECT_OPTIONS,
) -> Pin:
    """Choose by option, pin, line, recipe; ``origin`` and ``ref`` are the options' values.

    ``torch_dir`` is the torch tree that pins: its folder, or what reads its files from elsewhere.
    A pin is a commit of a repository: a ref given by option sets it aside as a whole, an
    origin given by option alone is another place for the pinned commit. ``release``: the
    release branch that goes with the torch tree, instead of the pin. Raises SourceError when
    a pin is required and there is none or it is another line's, UsageError where there are no
    release branches or options exclude each other, DataError for a file of pins with a mistake.
    """
    _refuse_conflicts(origin, ref, release, line, option_names)
    torch = FolderFiles(torch_dir) if isinstance(torch_dir, Path) else torch_dir
    source = project.source.get_platform_source(platform)
    default = _choose_default(project, source, platform, line)
    if ref is not None:
        why = "options" if origin is not None else f"{option_names.ref}; origin: {default.why}"
        return Pin(origin or default.origin, ref, why)
    if release:
        pin = _choose_release_branch(project, source, platform, torch, option_names)
    else:
        torch_pin, missing = find_pin(source, torch, option=option_names.ref)
        if torch_pin is not None and line is not None and torch is not None:
            _check_line(torch, line)
        if torch_pin is None and (missing is not None or line is not None):
            required = require_related_commit
            _report_unpinned(
                project, platform, missing, default, line=line, required=required, option_names=option_names
            )
        pin = torch_pin or default
    return (
        pin
        if origin is None
        else replace(pin, origin=origin, why=f"{pin.why}; origin: {option_names.origin}")
    )


def _refuse_conflicts(
    origin: str | None, ref: str | None, release: bool, line: TorchLine | None, option_names: OptionNames
) -> None:
    """Raise UsageError for options of which one would have no effect."""
    if release and ref is not None:
        raise UsageError(f"--release and {option_names.ref} exclude each other", tip="give one of them")
    if release and line is not None:
        raise UsageError("--release and --line exclude each other", tip="give one of them")
    if line is not None and ref is not None and origin is not None:
        raise UsageError(
            f"--line {line.name} would have no effect: {option_names.ref} and {option_names.origin} say everything",
            tip="leave one of the three out",
        )


def _choose_default(
    project: Project, source: ProjectSource, platform: Platform, line: TorchLine | None
) -> Pin:
    """Return what is checked out without option and pin; an empty ref where there is no such thing."""
    if line is None:
        windows = ", windows" if source is not project.source else ""
        return Pin(source.origin, source.ref or "", f"recipe {project.name}.yaml{windows}")
    released = line.get_checkout(project.name, platform)
    if released is None or released.origin is None:
        return Pin(source.origin, "", f"recipe {project.name}.yaml")
    believed = ", believed" if released.kind == "believed" else ""
    return Pin(released.origin, released.ref or "", f"release line {line.name}{believed}")


def _report_unpinned(
    project: Project,
    platform: Platform,
    missing: str | None,
    default: Pin,
    *,
    line: TorchLine | None,
    required: bool,
    option_names: OptionNames,
) -> None:
    """Say that ``default`` is taken for want of a pin, or raise SourceError when it may not or cannot be."""
    if missing is not None and (required or (not default.ref and line is None)):
        raise SourceError(f"{project.name} must be pinned, and {missing}", tip=_suggest_pin(option_names))
    if not default.ref and line is not None:
        because = f", and {missing}" if missing else ""
        raise SourceError(
            f"release line {line.name} names no ref of {project.name} for {platform}{because}",
            tip=f"name it with {option_names.ref}; `rocm-wheels lines {line.name}` says what is known",
        )
    if missing is not None:
        default_owner = "the recipe's default" if line is None else f"release line {line.name}'s"
        log.log_warning(f"{project.name} is not pinned: {missing}; {default_owner} {default.ref} is used")


def _suggest_pin(option_names: OptionNames) -> str:
    return f"{option_names.torch}, or name the commit with {option_names.ref}"


def _check_line(torch: TreeFiles, line: TorchLine) -> None:
    """Raise SourceError when the torch tree, which pins, is not of the line that was asked for."""
    from packaging.version import Version

    from rocm_wheels.model.versions import parse_base_version

    content = torch.read_text("version.txt")
    if content is None:
        raise DataError(
            f"there is no {torch.label('version.txt')}, which says what torch this is",
            tip=f"check out torch with --line {line.name} first, or leave --line out to take its pins",
        )
    text = parse_base_version(content, name=torch.label("version.txt"))
    version = Version(text)
    fits = version.is_prerelease if line.torch is None else f"{version.major}.{version.minor}" == line.torch
    if not fits:
        raise SourceError(
            f"{torch.label()} is torch {text}: its pins are not those of release line {line.name}",
            tip=f"check out torch with --line {line.name} first, or leave --line out to take its pins",
        )


def find_pin(
    source: ProjectSource, torch: TreeFiles | None, *, option: str = REF_OPTION
) -> tuple[Pin | None, str | None]:
    """Return the pin in a torch tree, or why there is none; neither where the recipe knows no pin."""
    key = source.related_commits
    if key is None and not source.pin_files:
        return None, None
    if torch is None:
        return None, "no torch checkout was named"
    missing = []
    if key is not None:
        name, text = torch.label(RELATED_COMMITS_FILE), torch.read_text(RELATED_COMMITS_FILE)
        rows = None if text is None else parse_related_commits(text, name=name)
        if rows is not None and key in rows:
            row = rows[key]
            why = f"{name} line {row.line}, branch {row.branch}"
            return Pin(row.origin, row.commit, why, pinned=True), None
        missing.append(
            f"there is no {name}"
            if rows is None
            else f"{name} has no row for {key} (it has {', '.join(sorted(rows)) or 'none at all'})"
        )
    for file in source.pin_files:
        name, text = torch.label(file.file), torch.read_text(file.file)
        if text is not None:
            commit = parse_pin_commit(text, name=name, option=option)
            return Pin(file.origin or source.origin, commit, name, pinned=True), None
        missing.append(f"no {file.file}" if missing else f"there is no {name}")
    return None, " and ".join(missing)


def list_pin_files(source: ProjectSource) -> list[str]:
    """List the files of a torch tree that may pin a project."""
    related = [RELATED_COMMITS_FILE] if source.related_commits is not None else []
    release = [source.release.version_file] if source.release is not None else []
    return [*related, *(file.file for file in source.pin_files), *release]


def _choose_release_branch(
    project: Project,
    source: ProjectSource,
    platform: Platform,
    torch: TreeFiles | None,
    option_names: OptionNames,
) -> Pin:
    """Return the release branch that a file of the torch tree stands for."""
    release = source.release
    if release is None:
        raise UsageError(
            f"--release: the recipe of {project.name} names no release branches for {platform}",
            tip=f"leave it out, or name the branch with {option_names.ref}",
        )
    text = None if torch is None else torch.read_text(release.version_file)
    if torch is None or text is None:
        missing = (
            "no torch checkout was named"
            if torch is None
            else f"there is no {torch.label(release.version_file)}"
        )
        raise SourceError(f"--release: {missing}", tip=_suggest_pin(option_names))
    name = torch.label(release.version_file)
    major, minor = parse_pin_version(text, name=name, option=option_names.ref)
    return Pin(source.origin, release.ref.format(major=major, minor=minor), f"--release, {name}")
