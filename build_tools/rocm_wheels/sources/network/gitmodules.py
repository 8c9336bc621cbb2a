"""``.gitmodules`` without a working tree: which submodules a commit has, and where they come from.

Pure functions on what ``git config --blob <commit>:.gitmodules -z --list`` printed, by git's own rules
(git 2.39: submodule-config.c, and relative_url in remote.c). The commit of a submodule is not
in here: it is the gitlink at its path (``trees.entries``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from rocm_wheels.errors import SourceError
from rocm_wheels.shell import hide_credentials

GITMODULES_FILE = ".gitmodules"
_REMOTE = re.compile(r"[^/]*:")  # a scheme, or host:path as for ssh
_HOST = re.compile(r"[a-zA-Z][\w+.-]*://[^/]*")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]|\A-")


@dataclass(frozen=True)
class Submodule:
    """What ``.gitmodules`` says of one: ``url`` may be relative to the parent's; ``None``: none is given.

    ``enabled``: ``update = none`` is not said, with which git leaves a submodule alone. ``plain``: nothing
    is said of how it is updated. ``shallow``: its history need not be fetched.
    """

    name: str
    path: str
    url: str | None
    enabled: bool = True
    shallow: bool = False
    plain: bool = True


def parse_gitmodules(listed: str, *, name: str) -> dict[str, Submodule]:
    """Return path → submodule; ``name`` stands for the file in messages.

    A key given twice counts the first time, as for git. A section without path says nothing and is
    left out. Raises SourceError for what git itself refuses (a name or a path that leaves the tree, a
    URL that looks like an option) and for two sections of one path.
    """
    sections: dict[str, dict[str, str | None]] = {}
    for record in listed.split("\0")[:-1]:
        key, separator, value = record.partition("\n")
        kind, _, rest = key.partition(".")
        section, _, variable = rest.rpartition(".")
        if kind == "submodule" and section:
            sections.setdefault(section, {}).setdefault(variable, value if separator else None)
    submodules: dict[str, Submodule] = {}
    for section, values in sections.items():
        path, url = values.get("path"), values.get("url")
        if path is None:
            continue
        path = path.rstrip("/")
        for field, text in (("name", section), ("path", path)):
            if not is_inside_tree(text):
                raise SourceError(f"{name}: the {field} of a submodule, {text!r}, does not stay in the tree")
        if url is not None and _UNSAFE.search(url):
            raise SourceError(f"{name}: submodule {section}: {url!r} is not a repository")
        if path in submodules:
            raise SourceError(f"{name}: {path} is the path of {submodules[path].name} and of {section}")
        shallow = (values.get("shallow") or "").lower() in {"true", "yes", "on", "1"}
        enabled, plain = values.get("update") != "none", "update" not in values
        submodules[path] = Submodule(section, path, url or None, enabled, shallow, plain)
    return submodules


def is_inside_tree(path: str) -> bool:
    """Tell whether a relative path with / stays below its root, and out of the repository itself."""
    pure = PurePosixPath(path)
    parts = {part.lower() for part in pure.parts}
    return bool(parts) and not pure.is_absolute() and not parts & {"..", ".git"} and "\0" not in path


def resolve_submodule_url(parent: str, url: str) -> str:
    """Return a submodule's repository; one that begins with ``./`` or ``../`` is relative to the parent's.

    ``parent`` is where the parent repository itself comes from. Raises SourceError when it has
    too few folders to go up.
    """
    if not url.startswith(("./", "../")):
        return url
    root = _HOST.match(parent)
    least = root.end() if root else 0  # what cannot be taken away: scheme and host
    base, rest, separator = parent.rstrip("/"), url, "/"
    while rest.startswith(("./", "../")):
        up, _, rest = rest.partition("/")
        rest = rest.lstrip("/")
        if up == ".":
            continue
        cut = base.rfind("/")
        if cut < 0 and _REMOTE.match(base):
            cut, separator = base.rfind(":"), ":"
        if cut < least:
            raise SourceError(f"{url} goes further up than {hide_credentials(parent)} has folders")
        base = base[:cut]
    return f"{base}{separator}{rest}".rstrip("/")
