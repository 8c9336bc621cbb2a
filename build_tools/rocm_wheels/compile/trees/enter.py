"""Entering a build tree: one of another key is moved away, and the wanted one comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.generated import ignored_files
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.trees.key import TreeKey
from rocm_wheels.compile.trees.moves import bring_back, files_below, send_away, undo_departure, undo_returns
from rocm_wheels.compile.trees.pythons import pass_on
from rocm_wheels.compile.trees.state import GOING, KEY_FILE, State
from rocm_wheels.errors import BuildError

_BINARIES = (".so", ".pyd", ".dll", ".dylib")


def enter_tree(
    request: BuildRequest, key: TreeKey, waiting: Path, *, env: Mapping[str, str], clean: bool = False
) -> str:
    """Put the tree of ``key`` in place; say in words what was done.

    Others wait in ``waiting``, on the file system of the source. ``clean`` throws the tree of this key away
    first. The caller holds the source. Raises BuildError for a tree that we did not make.
    """
    trees = _Trees(request, waiting / request.project.name, env)
    trees.recover()
    said = trees.remove_foreign(clean)
    state = State.read(trees.main)
    if state is not None:
        trees.finish_departure(state)
    before: frozenset[str] | None = None
    if state is not None and state.key == GOING:
        before = state.before
        trees.discard(state)
        state = None
    if state is not None and state.key.name != key.name:
        trees.park(state)
        said = f"new; the tree of another configuration is parked ({', '.join(key.differences(state.key))})"
        state = None
    if state is None and trees.take_back(key):
        state = State.read(trees.main)
        said = "taken back from parking"
    if state is not None and clean:
        before = state.before
        trees.discard(state)
        state, said = None, "new; the old one is deleted"
    if state is None:
        State(key.tree, trees.ignored() if before is None else before, key.python).write(trees.main)
        return said or "new"
    os.utime(trees.main / KEY_FILE)  # used now
    trees.prune()
    passed = pass_on(request, state, key, trees.ignored() - state.before)
    return "; ".join(text for text in (said or "continued", passed) if text)


class _Trees:
    """The build folders of one source tree, and the place where they wait."""

    def __init__(self, request: BuildRequest, parked: Path, env: Mapping[str, str]) -> None:
        self._source = request.source
        self._folders = [request.folder / name for name in request.project.build.trees]
        self._parked = parked
        self._env = env
        self.main = self._folders[0]

    def remove_foreign(self, clean: bool) -> str:
        """Refuse trees that nobody knows, or set them aside."""
        if (self.main / KEY_FILE).is_file() and not (clean and self._damaged()):
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
        place = self._parked / f"unnamed-{number}"
        names = [self._relative(folder) for folder in full]
        send_away(self._source, place, [(Path("trees") / name, name) for name in names])
        return f"new; what was there is set aside in {place}"

    def ignored(self) -> frozenset[str]:
        """Return the ignored files of the source outside the build folders."""
        inside = tuple(f"{self._relative(folder).as_posix()}/" for folder in self._folders)
        found = ignored_files(self._source, self._env)
        return frozenset(name for name in found if not name.startswith(inside))

    def park(self, state: State) -> None:
        """Move a tree and what it generated away; the folder with the key file goes last."""
        generated = sorted(self.ignored() - state.before)
        moves = [(Path("generated") / name, Path(name)) for name in generated]
        folders = [self._relative(folder) for folder in reversed(self._folders) if folder.is_dir()]
        moves += [(Path("trees") / folder, folder) for folder in folders]
        send_away(self._source, self._parked / state.key.name, moves)

    def take_back(self, key: TreeKey) -> bool:
        """Move a parked tree back; tell whether there was one."""
        place = self._parked / key.name
        if not (place / "trees" / self._relative(self.main) / KEY_FILE).is_file():
            return False
        generated = place / "generated"
        files = files_below(generated)
        moves = [(path.relative_to(place), path.relative_to(generated)) for path in files]
        folders = [self._relative(folder) for folder in reversed(self._folders)]
        moves += [(Path("trees") / f, f) for f in folders if (place / "trees" / f).is_dir()]
        bring_back(self._source, place, moves)
        return True

    def finish_departure(self, state: State) -> None:
        """Undo a move to the parking that a kill cut: its key file is the last to go, and still here."""
        undo_departure(self._source, self._parked / state.key.name)

    def recover(self) -> None:
        """Undo a return that a kill cut."""
        undo_returns(self._source, self._parked)

    def discard(self, state: State) -> None:
        """Delete our own build folders but for a key file that says so: after a kill the next run goes on."""
        State(GOING.parts, state.before).write(self.main)
        for folder in self._folders[1:]:
            if folder.is_dir():
                shutil.rmtree(folder)
        for path in self.main.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != KEY_FILE:
                path.unlink()

    def prune(self) -> None:
        """Delete setuptools' staging of an earlier commit: files no longer in the source would be packed.

        Finished extension modules stay, so that nothing is compiled twice. ``build/lib`` belongs to
        CMake where there is a CMakeCache.txt (torch).
        """
        for folder in self._folders:
            staged = [*folder.glob("lib.*-*"), *folder.glob("bdist.*")]
            if not (folder / "CMakeCache.txt").is_file():
                staged.append(folder / "lib")
            for path in (file for place in staged for file in place.rglob("*")):
                if path.is_file() and path.suffix not in _BINARIES:
                    path.unlink()

    def _damaged(self) -> bool:
        try:
            State.read(self.main)
        except BuildError:
            return True
        return False

    def _relative(self, folder: Path) -> Path:
        return folder.relative_to(self._source)
