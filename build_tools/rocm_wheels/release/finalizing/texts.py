"""The versions that are written in Python files of a wheel: where, its recipe says. Nothing is run.

``__version__`` of the package, and the ROCm that ``_rocm_init.py`` asks for. What torch says of HIP
(``torch.version.hip``) stays: it is what was compiled with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from packaging.version import InvalidVersion, Version

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.project import Project
from rocm_wheels.release.finalizing.versions import renamed_label

_MODULES = ("version.py", "_version.py", "__init__.py")


def files_with_versions(project: Project) -> tuple[str, ...]:
    """Return the members of a project's wheels in which a version may be."""
    own = tuple(f"{project.checks.import_name}/{name}" for name in _MODULES)
    return (*own, project.checks.rocm_init) if project.checks.rocm_init else own


def new_texts(
    texts: Mapping[str, bytes],
    project: Project,
    versions: tuple[str, str],
    rocm: tuple[str, str] | None,
) -> dict[str, bytes]:
    """Return those of the files that change. ``versions`` and ``rocm`` are old and new.

    Raises ReleaseError for a file that is no Python, or that asks for a ROCm that is not the old one.
    """
    found: dict[str, bytes] = {}
    for name, content in texts.items():
        tree = _tree(content, name)
        if name == project.checks.rocm_init:
            new = content if rocm is None else _with_rocm(content, tree, name, rocm)
        else:
            new = _with_version(content, tree, name, versions, rocm)
        if new != content:
            _tree(new, name)
            found[name] = new
    return found


def _tree(content: bytes, name: str) -> ast.Module:
    try:
        return ast.parse(content, filename=name)
    except (SyntaxError, ValueError) as wrong:
        raise ReleaseError(f"{name} is not Python, and may hold a version: {wrong}") from wrong


def _with_version(
    content: bytes, tree: ast.Module, name: str, versions: tuple[str, str], rocm: tuple[str, str] | None
) -> bytes:
    old, new = map(Version, versions)
    for value in _assigned(tree):
        try:
            said = Version(str(value.value))
        except InvalidVersion:
            said = None
        if said is not None and said.public == old.public:
            text = _said_then(said, old, new, rocm)
            content = _exchanged(content, value, text, name) if Version(text) != said else content
        elif said is None or said.public != new.public:
            log.warn(f"{name} says {value.value!r}, which is not the version of its wheel, {old}: it stays")
    return content


def _said_then(said: Version, old: Version, new: Version, rocm: tuple[str, str] | None) -> str:
    """Return what a file says of the new version. Files of variants have the label that their wheel lost."""
    if said.local == old.local:
        return str(new)
    if said.local is None:
        return new.public
    label = renamed_label(said.local, rocm) if rocm else None
    return f"{new.public}+{label or said.local}"


def _assigned(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(one, ast.Name) and one.id == "__version__" for one in targets):
            value = node.value  # type: ignore[attr-defined]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _with_rocm(content: bytes, tree: ast.Module, name: str, rocm: tuple[str, str]) -> bytes:
    given = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "check_version"
    ]
    if len(given) != 1 or not isinstance(given[0], ast.Constant) or given[0].value != rocm[0]:
        raise ReleaseError(f"{name} does not ask for ROCm {rocm[0]} in the way that can be rewritten")
    return _exchanged(content, given[0], rocm[1], name)


def _exchanged(content: bytes, value: ast.Constant, text: str, name: str) -> bytes:
    """Return a file with another text in the place of a string; its quotes stay."""
    lines = content.splitlines(keepends=True)
    line = lines[value.lineno - 1]
    old = line[value.col_offset : value.end_col_offset]
    if value.end_lineno != value.lineno or old[1:-1] != str(value.value).encode() or old[:1] not in b"'\"":
        raise ReleaseError(f"{name}:{value.lineno}: {old.decode(errors='replace')} cannot be rewritten")
    new = old[:1] + text.encode() + old[:1]
    lines[value.lineno - 1] = line[: value.col_offset] + new + line[value.end_col_offset :]
    return b"".join(lines)
