"""Rewrite what a wheel says of versions: its pins, and its Python files.

Nothing is run. Pins on what is renamed follow, all else stays as it is written. In Python files, where
the recipe says: ``__version__`` of the package, and the ROCm that ``_rocm_init.py`` asks for. What torch
says of HIP (``torch.version.hip``) stays: it is what was compiled with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log
from rocm_wheels.models.project import Project
from rocm_wheels.models.versions import get_local_part, make_version_suffix

ROCM_PROJECT_NAMES = re.compile(r"rocm|(rocm|amd|hip)-.+")  # what ROCm's own index has, by its names there
_EXACT_PIN = re.compile(r"(?P<pin>===?\s*)(?P<version>[^\s,;()]+)")
NewVersions = Mapping[str, Mapping[Version, Version]]  # by project: new versions by old ones


def rename_rocm_in_label(local: str, rocm: tuple[str, str]) -> str | None:
    """Return the local part of a version with the new ROCm at its end; ``None`` when the old is not there.

    Behind it may be that the wheel has AddressSanitizer, which stays.
    """
    old, new = (get_local_part(make_version_suffix(version_text)) for version_text in rocm)
    for mark in ("", ".asan"):
        if f".{local}".endswith(f".{old}{mark}"):
            return local[: len(local) - len(old + mark)] + new + mark
    return None


def rewrite_requirement(text: str, new_versions: NewVersions, rocm: Mapping[Version, Version]) -> str:
    """Return a requirement (the value of Requires-Dist) with the pins of the new set.

    ``rocm`` maps versions of ROCm's packages, where they are renamed. Name, extras and marker stay.
    Raises ReleaseError for one that admitted the old version and not the new one.
    """
    requirement = Requirement(text)
    name = canonicalize_name(requirement.name)
    pairs = new_versions.get(name) or (rocm if ROCM_PROJECT_NAMES.fullmatch(name) else {})
    if requirement.url or not pairs:
        return text
    head, semicolon, marker = text.partition(";")  # no name, extra or version has one

    def follow(match: re.Match[str]) -> str:
        return match["pin"] + _follow_pin(match["version"], pairs)

    new = _EXACT_PIN.sub(follow, head) + semicolon + marker
    rewritten = Requirement(new)
    if (rewritten.name, rewritten.extras, str(rewritten.marker)) != (
        requirement.name,
        requirement.extras,
        str(requirement.marker),
    ):
        raise errors.ReleaseError(f"{text!r} cannot be rewritten: it would become {new!r}")
    for old, version in pairs.items():
        was = requirement.specifier.contains(old, prereleases=True)
        if was and not rewritten.specifier.contains(version, prereleases=True):
            raise errors.ReleaseError(f"it requires {text}, which {version} is not")
    return new


def _follow_pin(pinned: str, pairs: Mapping[Version, Version]) -> str:
    try:
        version = Version(pinned)
    except InvalidVersion:
        return pinned  # 2.9.*
    for old, new in pairs.items():
        if version == old:
            return pinned if new == old else str(new)
        if version.local is None and version.public == old.public:
            return pinned if new.public == old.public else new.public
    return pinned


_VERSION_MODULES = ("version.py", "_version.py", "__init__.py")


def list_version_files(project: Project) -> tuple[str, ...]:
    """Return the members of a project's wheels in which a version may be."""
    module_paths = tuple(f"{project.checks.import_name}/{name}" for name in _VERSION_MODULES)
    return (*module_paths, project.checks.rocm_init) if project.checks.rocm_init else module_paths


def rewrite_version_files(
    texts: Mapping[str, bytes],
    project: Project,
    versions: tuple[str, str],
    rocm: tuple[str, str] | None,
) -> dict[str, bytes]:
    """Return those of the files that change. ``versions`` and ``rocm`` are old and new.

    Raises ReleaseError for a file that is no Python, or that asks for a ROCm that is not the old one.
    """
    changed: dict[str, bytes] = {}
    for name, content in texts.items():
        tree = _parse_python(content, name)
        if name == project.checks.rocm_init:
            new = content if rocm is None else _rewrite_rocm_version(content, tree, name, rocm)
        else:
            new = _rewrite_version(content, tree, name, versions, rocm)
        if new != content:
            _parse_python(new, name)
            changed[name] = new
    return changed


def _parse_python(content: bytes, name: str) -> ast.Module:
    try:
        return ast.parse(content, filename=name)
    except (SyntaxError, ValueError) as wrong:
        raise errors.ReleaseError(f"{name} is not Python, and may hold a version: {wrong}") from wrong


def _rewrite_version(
    content: bytes, tree: ast.Module, name: str, versions: tuple[str, str], rocm: tuple[str, str] | None
) -> bytes:
    old, new = map(Version, versions)
    for value in _find_version_strings(tree):
        try:
            stated = Version(str(value.value))
        except InvalidVersion:
            stated = None
        if stated is not None and stated.public == old.public:
            text = _make_stated_version(stated, old, new, rocm)
            content = _replace_string(content, value, text, name) if Version(text) != stated else content
        elif stated is None or stated.public != new.public:
            log.log_warning(
                f"{name} says {value.value!r}, which is not the version of its wheel, {old}: it stays"
            )
    return content


def _make_stated_version(stated: Version, old: Version, new: Version, rocm: tuple[str, str] | None) -> str:
    """Return what a file says of the new version. Files of variants have the label that their wheel lost."""
    if stated.local == old.local:
        return str(new)
    if stated.local is None:
        return new.public
    label = rename_rocm_in_label(stated.local, rocm) if rocm else None
    return f"{new.public}+{label or stated.local}"


def _find_version_strings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__version__" for target in targets):
            value = node.value  # type: ignore[attr-defined]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _rewrite_rocm_version(content: bytes, tree: ast.Module, name: str, rocm: tuple[str, str]) -> bytes:
    stated_values = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "check_version"
    ]
    if (
        len(stated_values) != 1
        or not isinstance(stated_values[0], ast.Constant)
        or stated_values[0].value != rocm[0]
    ):
        raise errors.ReleaseError(f"{name} does not ask for ROCm {rocm[0]} in the way that can be rewritten")
    return _replace_string(content, stated_values[0], rocm[1], name)


def _replace_string(content: bytes, value: ast.Constant, text: str, name: str) -> bytes:
    """Return a file with another text in the place of a string; its quotes stay."""
    lines = content.splitlines(keepends=True)
    line = lines[value.lineno - 1]
    old = line[value.col_offset : value.end_col_offset]
    if value.end_lineno != value.lineno or old[1:-1] != str(value.value).encode() or old[:1] not in b"'\"":
        raise errors.ReleaseError(
            f"{name}:{value.lineno}: {old.decode(errors='replace')} cannot be rewritten"
        )
    new = old[:1] + text.encode() + old[:1]
    lines[value.lineno - 1] = line[: value.col_offset] + new + line[value.end_col_offset :]
    return b"".join(lines)
