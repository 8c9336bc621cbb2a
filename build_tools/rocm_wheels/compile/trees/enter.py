"""Entering a build tree: one of another key is moved away, and the wanted one comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.generated import list_ignored_files
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.trees.key import TreeKey
from rocm_wheels.compile.trees.moves import (
    return_files,
    list_files_below,
    park_files,
    undo_departure,
    undo_returns,
)
from rocm_wheels.compile.trees.pythons import pass_tree_on
from rocm_wheels.compile.trees.state import DELETED_TREE_KEY, TREE_KEY_FILE, TreeState
from rocm_wheels.errors import BuildError

_BINARY_SUFFIXES = (".so", ".pyd", ".dll", ".dylib")


def enter_tree(
    request: BuildRequest, key: TreeKey, parking: Path, *, env: Mapping[str, str], clean: bool = False
) -> str:
    """Put the tree of ``key`` in place; say in words what was done.

    Others wait in ``parking``, on the file system of the source. ``clean`` throws the tree of this key away
    first. The caller holds the source. Raises BuildError for a tree that we did not make.
    """
    trees = _BuildTrees(request, parking / request.project.name, env)
    trees.recover_returns()
    outcome = trees.remove_foreign(clean)
    state = TreeState.read(trees.main)
    if state is not None:
        trees.finish_departure(state)
    before: frozenset[str] | None = None
    if state is not None and state.key == DELETED_TREE_KEY:
        before = state.before
        trees.discard_tree(state)
        state = None
    if state is not None and state.key.name != key.name:
        trees.park_tree(state)
        outcome = (
            f"new; the tree of another configuration is parked ({', '.join(key.list_differences(state.key))})"
        )
        state = None
    if state is None and trees.return_tree(key):
        state = TreeState.read(trees.main)
        outcome = "taken back from parking"
    if state is not None and clean:
        before = state.before
        trees.discard_tree(state)
        state, outcome = None, "new; the old one is deleted"
    if state is None:
        TreeState(key.tree, trees.list_ignored() if before is None else before, key.python).write(trees.main)
        return outcome or "new"
    os.utime(trees.main / TREE_KEY_FILE)  # used now
    trees.prune_staging()
    passed = pass_tree_on(request, state, key, trees.list_ignored() - state.before)
    return "; ".join(text for text in (outcome or "continued", passed) if text)


class _BuildTrees:
    """The build folders of one source tree, and the place where they wait."""

    def __init__(self, request: BuildRequest, parked: Path, env: Mapping[str, str]) -> None:
        self._source = request.source
        self._folders = [request.folder / name for name in request.project.build.trees]
        self._parked = parked
        self._env = env
        self.main = self._folders[0]

    def remove_foreign(self, clean: bool) -> str:
        """Refuse trees that nobody knows, or set them aside."""
        if (self.main / TREE_KEY_FILE).is_file() and not (clean and self._is_damaged()):
            return ""
        full = [folder for folder in self._folders if folder.is_dir() and any(folder.iterdir())]
        if not full:
            return ""
        if not clean:
            raise BuildError(
                f"{full[0]} was not made by rocm-wheels: it is not known what it was built for",
                tip="--clean sets it aside (nothing is deleted) and starts a new one",
            )
        number = 1
        while (self._parked / f"unnamed-{number}").exists():
            number += 1
        parking = self._parked / f"unnamed-{number}"
        names = [self._make_relative(folder) for folder in full]
        park_files(self._source, parking, [(Path("trees") / name, name) for name in names])
        return f"new; what was there is set aside in {parking}"

    def list_ignored(self) -> frozenset[str]:
        """Return the ignored files of the source outside the build folders."""
        inside = tuple(f"{self._make_relative(folder).as_posix()}/" for folder in self._folders)
        files = list_ignored_files(self._source, self._env)
        return frozenset(name for name in files if not name.startswith(inside))

    def park_tree(self, state: TreeState) -> None:
        """Move a tree and what it generated away; the folder with the key file goes last."""
        generated = sorted(self.list_ignored() - state.before)
        moves = [(Path("generated") / name, Path(name)) for name in generated]
        folders = [self._make_relative(folder) for folder in reversed(self._folders) if folder.is_dir()]
        moves += [(Path("trees") / folder, folder) for folder in folders]
        park_files(self._source, self._parked / state.key.name, moves)

    def return_tree(self, key: TreeKey) -> bool:
        """Move a parked tree back; tell whether there was one."""
        parked_tree = self._parked / key.name
        if not (parked_tree / "trees" / self._make_relative(self.main) / TREE_KEY_FILE).is_file():
            return False
        generated = parked_tree / "generated"
        files = list_files_below(generated)
        moves = [(path.relative_to(parked_tree), path.relative_to(generated)) for path in files]
        folders = [self._make_relative(folder) for folder in reversed(self._folders)]
        moves += [(Path("trees") / f, f) for f in folders if (parked_tree / "trees" / f).is_dir()]
        return_files(self._source, parked_tree, moves)
        return True

    def finish_departure(self, state: TreeState) -> None:
        """Undo a move to the parking that a kill cut: its key file is the last to go, and still here."""
        undo_departure(self._source, self._parked / state.key.name)

    def recover_returns(self) -> None:
        """Undo a return that a kill cut."""
        undo_returns(self._source, self._parked)

    def discard_tree(self, state: TreeState) -> None:
        """Delete our own build folders but for a key file that says so: after a kill the next run goes on."""
        TreeState(DELETED_TREE_KEY.parts, state.before).write(self.main)
        for folder in self._folders[1:]:
            if folder.is_dir():
                shutil.rmtree(folder)
        for path in self.main.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != TREE_KEY_FILE:
                path.unlink()

    def prune_staging(self) -> None:
        """Delete setuptools' staging of an earlier commit: files no longer in the source would be packed.

        Finished extension modules stay, so that nothing is compiled twice. ``build/lib`` belongs to
        CMake where there is a CMakeCache.txt (torch).
        """
        for folder in self._folders:
            staged = [*folder.glob("lib.*-*"), *folder.glob("bdist.*")]
            if not (folder / "CMakeCache.txt").is_file():
                staged.append(folder / "lib")
            for path in (file for staged_folder in staged for file in staged_folder.rglob("*")):
                if path.is_file() and path.suffix not in _BINARY_SUFFIXES:
                    path.unlink()

    def _is_damaged(self) -> bool:
        try:
            TreeState.read(self.main)
        except BuildError:
            return True
        return False

    def _make_relative(self, folder: Path) -> Path:
        return folder.relative_to(self._source)
