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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rocm_wheels.core import errors, log

if TYPE_CHECKING:
    from rocm_wheels.models import project_names, release_lines
    from rocm_wheels.models.project import Project, ProjectSource

REF_OPTION = "--ref"
_UNREADABLE_TIP = "is it a torch tree? Correct the file, or name another torch tree"
_MOST_LETTERS = 160  # letters of a line that cannot be understood
_PIN_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_PIN_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")


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
        """Read a file; a dangling link is one that cannot be read."""
        file = self.folder / path
        return read_pin_file(file, tip=_UNREADABLE_TIP) if os.path.lexists(file) else None

    def label(self, path: str = "") -> str:
        """Return a path."""
        return str(self.folder / path)


def read_pin_file(path: Path, *, tip: str = "correct the file, or name another one") -> str:
    """Read a UTF-8 file, with or without a byte order mark. Raises DataError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as cause:
        raise errors.DataError(f"cannot read {path}: {cause.strerror}", tip=tip) from cause
    except UnicodeDecodeError as cause:
        raise errors.DataError(f"{path} is not UTF-8 text", tip=tip) from cause


def shorten_line(text: str) -> str:
    """Return what of a file's text is worth repeating in a message."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def parse_pin_commit(text: str, *, name: str, option: str = REF_OPTION) -> str:
    """Return the one commit of a pin file, in lower case.

    ``name`` stands for the file in messages, ``option`` is the one that names a ref instead.
    """
    number, line = _read_one_line(text, name, "commit", option)
    if not _PIN_COMMIT.fullmatch(line):
        raise errors.DataError(
            f"{name}:{number}: a pin must be a commit of 40 hex digits, not {shorten_line(line)!r}",
            tip=f"name the ref that you want with {option}",
        )
    return line.lower()


def parse_pin_version(text: str, *, name: str, option: str = REF_OPTION) -> tuple[str, str]:
    """Return major and minor of the one version (``3.7`` or ``3.7.0``) that a file holds."""
    number, line = _read_one_line(text, name, "version", option)
    match = _PIN_VERSION.fullmatch(line)
    if match is None:
        raise errors.DataError(
            f"{name}:{number}: a version of a release is like 3.7.0, this is {shorten_line(line)!r}",
            tip=f"name the release branch with {option}",
        )
    return match[1], match[2]


def _read_one_line(text: str, name: str, noun: str, option: str) -> tuple[int, str]:
    """Return number and content of the only line that is neither blank nor a comment."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise errors.DataError(
            f"{name}: there is no {noun} in it", tip=f"name the ref that you want with {option}"
        )
    if len(lines) > 1:
        raise errors.DataError(
            f"{name}:{lines[1][0]}: a second {noun}; line {lines[0][0]} has one already",
            tip=f"leave one in the file, or name the ref that you want with {option}",
        )
    return lines[0]


RELATED_COMMITS_FILE = "related_commits"
_ROW_TIP = "correct the row; an unreadable row pins nothing"
_ROW_FIELDS = ("os", "source", "project", "branch", "commit", "origin")
_ROW_COMMIT = re.compile(r"[0-9a-fA-F]{40}\Z")
_ROW_ORIGIN = re.compile(r"[\w.+-]+://|[\w.@+-]+:|/")  # a URL, host:path as for ssh, an absolute path
_UNSAFE_ORIGIN = re.compile(r"[\s\x00-\x1f\x7f]|\A-")


@dataclass(frozen=True)
class RelatedCommit:
    """One pinned project; ``commit`` is 40 lower-case hex digits, ``line`` counts from 1."""

    project: str
    branch: str
    commit: str
    origin: str
    line: int


def parse_related_commits(text: str, *, name: str) -> dict[str, RelatedCommit]:
    """Return project → pin; ``name`` stands for the file in messages.

    Blank lines, ``#`` comments, CRLF and blanks around fields are fine; so are rows of any
    operating system and project. Raises DataError with ``file:line`` for a row that is not
    six fields, a commit that is not 40 hex digits, and rows of a project that disagree.
    """
    pins: dict[str, RelatedCommit] = {}
    for row in _parse_rows(text, name):
        first = pins.setdefault(row.project, row)
        if (row.commit, _normalize_origin(row.origin)) != (first.commit, _normalize_origin(first.origin)):
            raise errors.DataError(
                f"{name}:{row.line}: {row.project} is {row.commit} of {row.origin} here, "
                f"but {first.commit} of {first.origin} in line {first.line}",
                tip="make the rows of a project agree; one commit is built for every system",
            )
    return pins


def _parse_rows(text: str, name: str) -> Iterator[RelatedCommit]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != len(_ROW_FIELDS):
            raise errors.DataError(
                f"{name}:{number}: a row has {len(_ROW_FIELDS)} fields ({'|'.join(_ROW_FIELDS)}), "
                f"this one has {len(fields)}: {shorten_line(line)!r}",
                tip=_ROW_TIP,
            )
        _, _, project, branch, commit, origin = fields
        if not project:
            raise errors.DataError(
                f"{name}:{number}: no project is named: {shorten_line(line)!r}", tip=_ROW_TIP
            )
        if not _ROW_COMMIT.match(commit):
            raise errors.DataError(
                (
                    f"{name}:{number}: the commit of {project} must be 40 hex digits, not "
                    f"{shorten_line(commit)!r}"
                ),
                tip="a pin names one commit; a branch or a shortened commit is none",
            )
        if not _ROW_ORIGIN.match(origin) or _UNSAFE_ORIGIN.search(origin):
            raise errors.DataError(
                f"{name}:{number}: the origin of {project} is not a repository: {shorten_line(origin)!r}",
                tip="give a URL, or a whole path",
            )
        yield RelatedCommit(project, branch, commit.lower(), origin, number)


def _normalize_origin(origin: str) -> str:
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
SEVERAL_PROJECTS_OPTIONS = OptionNames(ref="--lock", origin="", folder="--source-dir")


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
    origin: str | None,
    ref: str | None,
    release: bool,
    line: release_lines.TorchLine | None,
    option_names: OptionNames,
) -> None:
    """Raise UsageError for options of which one would have no effect."""
    if release and ref is not None:
        raise errors.UsageError(
            f"--release and {option_names.ref} exclude each other", tip="give one of them"
        )
    if release and line is not None:
        raise errors.UsageError("--release and --line exclude each other", tip="give one of them")
    if line is not None and ref is not None and origin is not None:
        raise errors.UsageError(
            (
                f"--line {line.name} would have no effect: {option_names.ref} and "
                f"{option_names.origin} say everything"
            ),
            tip="leave one of the three out",
        )


def _choose_default(
    project: Project,
    source: ProjectSource,
    platform: project_names.Platform,
    line: release_lines.TorchLine | None,
) -> Pin:
    """Return what is checked out without option and pin; an empty ref where there is no such thing."""
    if line is None:
        windows = ", windows" if source is not project.source else ""
        return Pin(source.origin, source.ref or "", f"recipe {project.name}.yaml{windows}")
    released = line.get_checkout(project, platform)
    if released is None or released.origin is None:
        return Pin(source.origin, "", f"recipe {project.name}.yaml")
    believed = ", believed" if released.kind == "believed" else ""
    return Pin(released.origin, released.ref or "", f"release line {line.name}{believed}")


def _report_unpinned(
    project: Project,
    platform: project_names.Platform,
    missing: str | None,
    default: Pin,
    *,
    line: release_lines.TorchLine | None,
    required: bool,
    option_names: OptionNames,
) -> None:
    """Say that ``default`` is taken for want of a pin, or raise SourceError when it may not or cannot be."""
    if missing is not None and (required or (not default.ref and line is None)):
        raise errors.SourceError(
            f"{project.name} must be pinned, and {missing}", tip=_suggest_pin(option_names)
        )
    if not default.ref and line is not None:
        because = f", and {missing}" if missing else ""
        raise errors.SourceError(
            f"release line {line.name} names no ref of {project.name} for {platform}{because}",
            tip=(
                f"name it with {option_names.ref}; `rocm-wheels compat show lines {line.name}` says what is "
                "known"
            ),
        )
    if missing is not None:
        default_owner = "the recipe's default" if line is None else f"release line {line.name}'s"
        log.log_warning(f"{project.name} is not pinned: {missing}; {default_owner} {default.ref} is used")


def _suggest_pin(option_names: OptionNames) -> str:
    return f"{option_names.torch}, or name the commit with {option_names.ref}"


def _check_line(torch: TreeFiles, line: release_lines.TorchLine) -> None:
    """Raise SourceError when the torch tree, which pins, is not of the line that was asked for."""
    from packaging.version import Version

    from rocm_wheels.models import versions

    content = torch.read_text("version.txt")
    if content is None:
        raise errors.DataError(
            f"there is no {torch.label('version.txt')}, which says what torch this is",
            tip=f"check out torch with --line {line.name} first, or leave --line out to take its pins",
        )
    text = versions.parse_base_version(content, name=torch.label("version.txt"))
    version = Version(text)
    fits = version.is_prerelease if line.torch is None else f"{version.major}.{version.minor}" == line.torch
    if not fits:
        raise errors.SourceError(
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
    platform: project_names.Platform,
    torch: TreeFiles | None,
    option_names: OptionNames,
) -> Pin:
    """Return the release branch that a file of the torch tree stands for."""
    release = source.release
    if release is None:
        raise errors.UsageError(
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
        raise errors.SourceError(f"--release: {missing}", tip=_suggest_pin(option_names))
    name = torch.label(release.version_file)
    major, minor = parse_pin_version(text, name=name, option=option_names.ref)
    return Pin(source.origin, release.ref.format(major=major, minor=minor), f"--release, {name}")
