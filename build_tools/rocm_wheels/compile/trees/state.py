"""The key file of a build tree: what it was made for, and what was there before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.compile.trees.key import TreeKey
from rocm_wheels.errors import BuildError
from rocm_wheels.workspace import write_json_file

TREE_KEY_FILE = ".rocm-wheels-tree"
DELETED_TREE_KEY = TreeKey({"state": "being deleted"})  # of a tree that a killed run was deleting


@dataclass(frozen=True)
class TreeState:
    """The content of a key file.

    ``parts`` of the tree's key, the ignored files that were there ``before`` the tree, and whose it is
    when Pythons share it: ``None`` while it passes from one to another.
    """

    parts: Mapping[str, str]
    before: frozenset[str]
    python: Mapping[str, str] | None = field(default_factory=dict)

    @property
    def key(self) -> TreeKey:
        """The key without its Python, where that is shared."""
        return TreeKey(self.parts)

    def write(self, tree: Path) -> None:
        """Put the key file into a build folder, whole."""
        value = {
            "key": self.key.name,
            "parts": dict(self.parts),
            "python": None if self.python is None else dict(self.python),
            "before": sorted(self.before),
        }
        write_json_file(tree / TREE_KEY_FILE, value)

    @classmethod
    def read(cls, tree: Path) -> TreeState | None:
        """Read the key file of a build folder; ``None`` when there is none. Raises BuildError."""
        path = tree / TREE_KEY_FILE
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            python = value.get("python", {})
            return cls(
                dict(value["parts"]), frozenset(value["before"]), None if python is None else dict(python)
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
            raise BuildError(
                f"{path} is damaged: it is not known what {tree} was built for",
                tip="--clean sets the folder aside and starts a new one",
            ) from cause
