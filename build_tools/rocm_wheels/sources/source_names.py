"""The names of the files in a source tree, as far as a build's configure step may look for them by pattern.

CMake's ``file(GLOB)`` is read when a tree is configured, and not again while its CMakeLists.txt stays: which
files there are decides what is compiled, besides what is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rocm_wheels.sources import hipify_record, trees
from rocm_wheels.sources.git import Git, disable_private_filters

# of what comes and goes in a tree each day, what no CMakeLists.txt compiles
_NEVER_COMPILED = frozenset({".md", ".py", ".pyi", ".rst"})


def digest_source_names(directory: Path, *, env: Mapping[str, str]) -> str:
    """Return ``digest_names`` of the repositories of a checkout. Raises SourceError."""
    git = disable_private_filters(Git(directory, env, variables={"GIT_OPTIONAL_LOCKS": "0"}))
    return digest_names(trees.list_repositories(git))


def digest_names(parts: Sequence[trees.TreePart]) -> str:
    """Return a digest (12 hexadecimal digits) of the names of the files in a tree that may be compiled.

    They are the files on the disk that git tracks or does not ignore, in submodules too, and what hipify made
    that git ignores. Names that begin with a dot are none. Raises SourceError.
    """

    def list_names(part: trees.TreePart) -> Iterable[str]:
        listed = part.git.fields("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        record = hipify_record.read_hipify_record(part.git)
        names = {name for name in (*listed, *(record.ignored if record else ())) if _may_be_compiled(name)}
        return [part.path_from_root(name) for name in names if (part.git.directory / name).is_file()]

    names = sorted(name for part in trees.run_side_by_side(list_names, parts) for name in part)
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _may_be_compiled(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix not in _NEVER_COMPILED and not any(part.startswith(".") for part in path.parts)
