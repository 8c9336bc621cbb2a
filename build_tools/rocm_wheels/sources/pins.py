"""Choose which repository and ref a project is checked out from, and say why.

An option goes before a pin in the torch checkout, a pin before the release line (``--line``),
and where no line is given, a pin before the recipe's default. A pin goes before the line because it
is one commit that was tried with this torch, and the line's branch moves on; but a torch
tree of another line has nothing to say. What was chosen is always said, and so is a pin that
was looked for and is not there.

Pins are in ``related_commits`` of a torch tree (one row a line, six fields:
``os|source|project|branch|commit|origin``) and in small files in ``.github/ci_commit_pins`` and
``.ci/docker``. What cannot be understood is an error with file and line, never a default.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rocm_wheels.core import errors, log

if TYPE_CHECKING:
    from rocm_wheels.models import project_names, release_lines
    from rocm_wheels.models.project import Project, ProjectSource

REF_OPTION = "--ref"
RELATED_COMMITS_FILE = "related_commits"
_FIELDS = "os|source|project|branch|commit|origin"
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")
# a URL, host:path as for ssh, an absolute path; in none of them a blank
_ORIGIN = re.compile(r"(?!-)([\w.+-]+://|[\w.@+-]+:|/)[^\s\x00-\x1f\x7f]*")
_MOST_LETTERS = 160  # letters of a line that cannot be understood


class TreeFiles(Protocol):
    """The files of a source tree, wherever it is."""

    def read_text(self, path: str) -> str | None:
        """Return what a file holds, ``None`` when there is none. Raises DataError when it is no text."""

    def label(self, path: str = "") -> str:
        """Return what a file, or the tree, is called in messages."""


@dataclass(frozen=True)
class FolderFiles:
    """The files of a tree in a folder here."""

    folder: Path

    def read_text(self, path: str) -> str | None:
        """Read UTF-8, with or without a byte order mark; a dangling link is a file that cannot be read."""
        file, tip = self.folder / path, "is it a torch tree? Correct the file, or name another torch tree"
        try:
            return file.read_bytes().decode("utf-8-sig") if os.path.lexists(file) else None
        except OSError as cause:
            raise errors.DataError(f"cannot read {file}: {cause.strerror}", tip=tip) from cause
        except UnicodeDecodeError as cause:
            raise errors.DataError(f"{file} is not UTF-8 text", tip=tip) from cause

    def label(self, path: str = "") -> str:
        """Return a path."""
        return str(self.folder / path)


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…")


def parse_pin_commit(text: str, *, name: str, option: str = REF_OPTION) -> str:
    """Return the one commit of a pin file, in lower case.

    ``name`` stands for the file in messages, ``option`` is the one that names a ref instead.
    """
    fault = "a pin must be a commit of 40 hex digits, not"
    return _read_one_line(text, _COMMIT, name, option, ("commit", fault))[0].lower()


def parse_pin_version(text: str, *, name: str, option: str = REF_OPTION) -> tuple[str, str]:
    """Return major and minor of the one version (``3.7`` or ``3.7.0``) that a file holds."""
    fault = "a version of a release is like 3.7.0, this is"
    match = _read_one_line(text, _VERSION, name, option, ("version", fault))
    return match[1], match[2]


def _list_lines(text: str) -> list[tuple[int, str]]:
    """List the lines, with their numbers, that are neither blank nor a comment."""
    lines = enumerate(map(str.strip, text.split("\n")), start=1)
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def _read_one_line(
    text: str, form: re.Pattern[str], name: str, option: str, words: tuple[str, str]
) -> re.Match[str]:
    """Return what the only line is; ``words``: the noun for it, and what is said before another one."""
    noun, fault = words
    lines = _list_lines(text)
    match = form.fullmatch(lines[0][1]) if lines else None
    if len(lines) == 1 and match is not None:
        return match
    if not lines:
        found = f": there is no {noun} in it"
    elif len(lines) > 1:
        found = f":{lines[1][0]}: a second {noun}; line {lines[0][0]} has one already"
    else:
        found = f":{lines[0][0]}: {fault} {_quote(lines[0][1])}"
    raise errors.DataError(
        f"{name}{found}", tip=f"correct the file, or name the ref that you want with {option}"
    )


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


def parse_related_commits(text: str, *, name: str) -> dict[str, Pin]:
    """Return project → pin; ``name`` stands for the file in messages.

    Blank lines, ``#`` comments, CRLF and blanks around fields are fine; so are rows of any
    operating system and project. Raises DataError with ``file:line`` for a row that is not
    six fields, a commit that is not 40 hex digits, and rows of a project that disagree.
    """
    pins: dict[str, Pin] = {}
    for number, line in _list_lines(text):
        fields = [field.strip() for field in line.split("|")]
        project, branch, commit, origin = fields[2:6] if len(fields) == 6 else ("", "", "", "")
        why = f"{name} line {number}, branch {branch}"
        first = pins.setdefault(project, Pin(origin, commit.lower(), why, pinned=True))
        fault = ""
        if len(fields) != 6:
            fault = f"a row has 6 fields ({_FIELDS}), this one has {len(fields)}: {_quote(line)}"
        elif not project:
            fault = f"no project is named: {_quote(line)}"
        elif not _COMMIT.fullmatch(commit):
            fault = f"the commit of {project} must be 40 hex digits, not {_quote(commit)}"
        elif not _ORIGIN.fullmatch(origin):
            fault = f"the origin of {project} is not a repository: {_quote(origin)}"
        elif (first.ref, _strip_end(first.origin)) != (commit.lower(), _strip_end(origin)):
            fault = (
                f"{project} is {commit} of {origin} here, but {first.ref} of {first.origin} in {first.why}"
            )
        if fault:
            raise errors.DataError(
                f"{name}:{number}: {fault}", tip="correct the row; an unreadable row pins nothing"
            )
    return pins


def _strip_end(origin: str) -> str:
    """Return an origin without what makes no difference to git hosts: a last slash, ``.git``."""
    return origin.rstrip("/").removesuffix(".git")


@dataclass(frozen=True)
class OptionNames:
    """What the options of a command are called, for its tips; ``torch``: how to give it a torch tree.

    ``origin`` is empty where no option names one.
    """

    ref: str = REF_OPTION
    origin: str = "--origin"
    folder: str = "--checkout-dir"
    torch: str = "check out torch first (--pytorch-dir says where it is)"


ONE_PROJECT_OPTIONS = OptionNames()
SEVERAL_PROJECTS_OPTIONS = OptionNames(
    folder="--source-dir", torch="check out torch first (it is looked for under --source-dir)"
)
LOCKED_PROJECTS_OPTIONS = replace(SEVERAL_PROJECTS_OPTIONS, ref="--lock", origin="")


def choose_pin(
    project: Project,
    *,
    platform: project_names.Platform = "linux",
    origin: str | None = None,
    ref: str | None = None,
    torch_dir: Path | TreeFiles | None = None,
    release: bool = False,
    line: release_lines.TorchLine | None = None,
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
    source, option = project.source.get_platform_source(platform), option_names.ref
    torch = FolderFiles(torch_dir) if isinstance(torch_dir, Path) else torch_dir
    tip = f"{option_names.torch}, or name the commit with {option}"
    if release and (ref is not None or line is not None):
        other = "--line" if ref is None else option
        raise errors.UsageError(f"--release and {other} exclude each other", tip="give one of them")
    # what is checked out without option and pin: an empty ref where there is no such thing
    default = Pin(source.origin, source.ref or "", f"recipe {project.name}.yaml")
    if source is not project.source:
        default = replace(default, why=f"{default.why}, windows")
    if line is not None:
        if ref is not None and origin is not None:
            raise errors.UsageError(
                f"--line {line.name} would have no effect: {option} and {option_names.origin} say everything",
                tip="leave one of the three out",
            )
        default = replace(default, ref="")
        released = line.get_checkout(project, platform)
        if released is not None and released.origin is not None:
            believed = ", believed" if released.kind == "believed" else ""
            default = Pin(released.origin, released.ref or "", f"release line {line.name}{believed}")
    if ref is not None:
        why = "options" if origin is not None else f"{option}; origin: {default.why}"
        return Pin(origin or default.origin, ref, why)
    if release:
        pin = _choose_release_branch(project, platform, torch, option, tip)
    else:
        found, missing = find_pin(source, torch, option=option)
        if found is not None and line is not None and torch is not None:
            _check_line(torch, line)
        if found is None and missing is not None and (require_related_commit or not (default.ref or line)):
            raise errors.SourceError(f"{project.name} must be pinned, and {missing}", tip=tip)
        if found is None and not default.ref and line is not None:
            because = f", and {missing}" if missing else ""
            raise errors.SourceError(
                f"release line {line.name} names no ref of {project.name} for {platform}{because}",
                tip=f"name it with {option}; see `rocm-wheels compat show lines {line.name}`",
            )
        if found is None and missing is not None:
            owner = "the recipe's default" if line is None else f"release line {line.name}'s"
            log.log_warning(f"{project.name} is not pinned: {missing}; {owner} {default.ref} is used")
        pin = found or default
    return (
        pin
        if origin is None
        else replace(pin, origin=origin, why=f"{pin.why}; origin: {option_names.origin}")
    )


def _check_line(torch: TreeFiles, line: release_lines.TorchLine) -> None:
    """Raise SourceError when the torch tree, which pins, is not of the line that was asked for."""
    from packaging.version import Version

    from rocm_wheels.models import versions

    name, content = torch.label("version.txt"), torch.read_text("version.txt")
    tip = f"check out torch with --line {line.name} first, or leave --line out to take its pins"
    if content is None:
        raise errors.DataError(f"there is no {name}, which says what torch this is", tip=tip)
    version = Version(text := versions.parse_base_version(content, name=name))
    fits = version.is_prerelease if line.torch is None else f"{version.major}.{version.minor}" == line.torch
    if not fits:
        message = f"{torch.label()} is torch {text}: its pins are not those of release line {line.name}"
        raise errors.SourceError(message, tip=tip)


def find_pin(
    source: ProjectSource, torch: TreeFiles | None, *, option: str = REF_OPTION
) -> tuple[Pin | None, str | None]:
    """Return the pin in a torch tree, or why there is none; neither where the recipe knows no pin."""
    key, missing = source.related_commits, []
    if key is None and not source.pin_files:
        return None, None
    if torch is None:
        return None, "no torch checkout was named"
    if key is not None:
        name, text = torch.label(RELATED_COMMITS_FILE), torch.read_text(RELATED_COMMITS_FILE)
        rows = parse_related_commits(text or "", name=name)
        if key in rows:
            return rows[key], None
        known = ", ".join(sorted(rows)) or "none at all"
        missing.append(
            f"there is no {name}" if text is None else f"{name} has no row for {key} (it has {known})"
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
    project: Project, platform: project_names.Platform, torch: TreeFiles | None, option: str, tip: str
) -> Pin:
    """Return the release branch that a file of the torch tree stands for."""
    source = project.source.get_platform_source(platform)
    if (release := source.release) is None:
        raise errors.UsageError(
            f"--release: the recipe of {project.name} names no release branches for {platform}",
            tip=f"leave it out, or name the branch with {option}",
        )
    name = torch.label(release.version_file) if torch is not None else ""
    text = torch.read_text(release.version_file) if torch is not None else None
    if text is None:
        missing = f"there is no {name}" if name else "no torch checkout was named"
        raise errors.SourceError(f"--release: {missing}", tip=tip)
    major, minor = parse_pin_version(text, name=name, option=option)
    return Pin(source.origin, release.ref.format(major=major, minor=minor), f"--release, {name}")
