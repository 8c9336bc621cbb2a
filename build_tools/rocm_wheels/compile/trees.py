"""Build trees: each configuration of a project has its own, and goes on where it stopped.

A project builds inside its source (``build/``), where CMake keeps what it found out about
compilers, Python and the SDK, and ninja what is compiled. A tree made for another configuration
would be used in silence, so each tree carries a key file. When the wanted key is another one,
the tree is moved to ``<parking>/<project>/<its key>`` and the wanted one, if parked there, is moved
back: renames, no copies. A build that was killed left its tree in place, and continues.

With the tree move the files that git ignores and that appeared since the tree began (egg-info,
``torch/lib/*.so``, generated sources): made for other targets, they would end up in a wheel that
is not theirs. ``__pycache__``, ``dist`` and hidden files stay. Not handled: files inside submodules;
ignored files older than the tree (they cannot be told from the user's); files not ignored by git
(then the tree counts as changed). The check of targets in the finished wheel stands behind this.

Nothing of the user's is deleted: a tree without a key file is somebody else's and is refused, or set
aside under ``unnamed-<n>`` when a clean build is asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.compile.generated import ignored_files
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.errors import BuildError
from rocm_wheels.workspace import write_json

KEY_FILE = ".rocm-wheels-tree"
_RETURNING = "returning.json"  # in a parked tree: the moves that bring it back
_BINARIES = (".so", ".pyd", ".dll", ".dylib")
# Variables that a first configure writes down for good, or that change what is compiled. The names of
# torch's and triton's are listed closely: TORCH_LOGS or TRITON_CACHE_DIR must not cost a new tree.
_CONFIGURES = re.compile(
    r"(?:CC|CXX|CPP|LD|AR|HIPCC|BLAS|CPATH|LIBRARY_PATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|PKG_CONFIG_PATH"
    r"|(?:C|CXX|CPP|LD|HIP|HIPCC)FLAGS|DISTUTILS_USE_SDK|FORCE_CUDA|DEBUG|REL_WITH_DEB_INFO|BUILD_TYPE"
    r"|PYTORCH_ROCM_ARCH|TORCH_CUDA_ARCH_LIST|ROCM_(?:HOME|PATH)|MKL_ROOT"
    r"|HIP_(?:PATH|PLATFORM|CLANG_PATH|CLANG_LAUNCHER|DEVICE_LIB_PATH)"
    r"|TRITON_(?:BUILD|APPEND|OFFLINE|CODEGEN|PLUGIN|WHEEL_NAME)\w*"
    r"|WERROR|ONNX_ML|MKL_THREADING|MAGMA_HOME|ATEN_(?:THREADING|AVX\w*)|GLIBCXX_USE_CXX11_ABI"
    r"|(?:USE|CMAKE|TORCHVISION|APEX|LLVM|OpenBLAS|OPENBLAS|AOTRITON|libuv|LIBUV)_\w+)"
)
_SPEED_ONLY = ("CMAKE_BUILD_PARALLEL_LEVEL",)
# BUILD_TEST=0 is torch's, BUILD_ID and BUILD_URL are a CI server's and differ each time
_SWITCH = re.compile(r"0|1|ON|OFF|TRUE|FALSE|YES|NO|Y|N", re.IGNORECASE)
_NO_SWITCH = re.compile(r"BUILD_(?:NUMBER|ID|VERSION)")


@dataclass(frozen=True)
class TreeKey:
    """What a build tree was configured for, in parts that can be read and compared."""

    parts: Mapping[str, str]

    @property
    def name(self) -> str:
        """The parts as 12 hexadecimal digits."""
        text = json.dumps(dict(self.parts), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]

    def differences(self, other: TreeKey) -> tuple[str, ...]:
        """Return the names of the parts in which two keys differ."""
        names = {*self.parts, *other.parts}
        return tuple(sorted(name for name in names if self.parts.get(name) != other.parts.get(name)))


_GOING = TreeKey({"state": "being deleted"})  # of a tree that a killed run was deleting


@dataclass(frozen=True)
class _State:
    """The content of a key file: the key, and the ignored files that were there before the tree."""

    key: TreeKey
    before: frozenset[str]

    def write(self, tree: Path) -> None:
        value = {"key": self.key.name, "parts": dict(self.key.parts), "before": sorted(self.before)}
        write_json(tree / KEY_FILE, value)

    @classmethod
    def read(cls, tree: Path) -> _State | None:
        path = tree / KEY_FILE
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls(TreeKey(dict(value["parts"])), frozenset(value["before"]))
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise BuildError(
                f"{path} is damaged: it is not known what {tree} was built for",
                tip="--clean sets the folder aside and starts a new one",
            ) from cause


def tree_key(request: BuildRequest, env: Mapping[str, str], *, python: Path, python_tag: str) -> TreeKey:
    """Make the key of a build from what a configure step writes down.

    Source, Python, ROCm, variables, and which programs the names of the host's compilers stand for.
    """
    parts = {name: value for name, value in env.items() if _is_configuration(name, value)}
    parts |= {
        "compilers": _compilers(env),
        "platform": request.platform,
        "python": str(python),
        "python tag": python_tag,
        "ROCm": request.sdk.version,
        "source": str(request.source),  # objects of another checkout look newer than this one's files
    }
    return TreeKey(parts)


def _compilers(env: Mapping[str, str]) -> str:
    """Return the files behind CC and CXX, or behind the names that builds try without them."""
    given = [env[name].split()[0] for name in ("CC", "CXX") if env.get(name, "").strip()]
    names = dict.fromkeys([*given, "cc", "c++", "gcc", "g++"])
    found = {name: shutil.which(name, path=env.get("PATH", "")) for name in names}
    return " ".join(f"{name}={os.path.realpath(path)}" for name, path in found.items() if path)


def _is_configuration(name: str, value: str) -> bool:
    if name.startswith("BUILD_") and name != "BUILD_TYPE":
        return bool(_SWITCH.fullmatch(value)) and not _NO_SWITCH.fullmatch(name)
    return bool(_CONFIGURES.fullmatch(name)) and name not in _SPEED_ONLY


def enter_tree(
    request: BuildRequest, key: TreeKey, parking: Path, *, env: Mapping[str, str], clean: bool = False
) -> str:
    """Put the tree of ``key`` in place; say in words what was done.

    ``clean`` throws the tree of this key away first. Raises BuildError for a tree that we did
    not make, and when ``parking`` lies on another file system than the source.
    """
    trees = _Trees(request, parking / request.project.name, env)
    trees.park_half_returned()
    said = trees.remove_foreign(clean)
    state = _State.read(trees.main)
    before: frozenset[str] | None = None
    if state is not None and state.key == _GOING:
        before = state.before
        trees.discard(state)
        state = None
    if state is not None and state.key.name != key.name:
        trees.park(state)
        said = f"new; the tree of another configuration is parked ({', '.join(state.key.differences(key))})"
        state = None
    if state is None and trees.take_back(key):
        state = _State.read(trees.main)
        said = "taken back from parking"
    if state is not None and clean:
        before = state.before
        trees.discard(state)
        state, said = None, "new; the old one is deleted"
    if state is None:
        _State(key, trees.ignored() if before is None else before).write(trees.main)
        return said or "new"
    trees.prune()
    return said or "continued"


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
        self._move([(folder, place / "trees" / self._relative(folder)) for folder in full])
        return f"new; what was there is set aside in {place}"

    def ignored(self) -> frozenset[str]:
        """Return the ignored files of the source outside the build folders."""
        inside = tuple(f"{self._relative(folder).as_posix()}/" for folder in self._folders)
        found = ignored_files(self._source, self._env)
        return frozenset(name for name in found if not name.startswith(inside))

    def park(self, state: _State) -> None:
        """Move a tree and what it generated away; the folder with the key file goes last."""
        place = self._parked / state.key.name
        generated = sorted(self.ignored() - state.before)
        moves = [(self._source / name, place / "generated" / name) for name in generated]
        folders = [folder for folder in reversed(self._folders) if folder.is_dir()]
        moves += [(folder, place / "trees" / self._relative(folder)) for folder in folders]
        self._move(moves)

    def take_back(self, key: TreeKey) -> bool:
        """Move a parked tree back; tell whether there was one."""
        place = self._parked / key.name
        if not (place / "trees" / self._relative(self.main) / KEY_FILE).is_file():
            return False
        generated = place / "generated"
        names = [path.relative_to(generated) for path in sorted(generated.rglob("*")) if not path.is_dir()]
        moves = [(generated / name, self._source / name) for name in names]
        folders = [place / "trees" / self._relative(folder) for folder in reversed(self._folders)]
        moves += [(f, self._source / f.relative_to(place / "trees")) for f in folders if f.is_dir()]
        journal = [[str(parked), str(home)] for parked, home in moves]
        write_json(place / _RETURNING, journal)  # killed in between, the next run parks it whole again
        self._move(moves)
        shutil.rmtree(place)
        return True

    def park_half_returned(self) -> None:
        """Finish, backwards, a return that a kill cut: half a tree must not pass for another's files."""
        for journal in sorted(self._parked.glob(f"*/{_RETURNING}")):
            for parked, home in reversed(json.loads(journal.read_text(encoding="utf-8"))):
                if Path(home).exists() and not Path(parked).exists():
                    Path(parked).parent.mkdir(parents=True, exist_ok=True)
                    Path(home).rename(parked)
            journal.unlink()

    def discard(self, state: _State) -> None:
        """Delete our own build folders but for a key file that says so: after a kill the next run goes on."""
        _State(_GOING, state.before).write(self.main)
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
            _State.read(self.main)
        except BuildError:
            return True
        return False

    def _relative(self, folder: Path) -> Path:
        return folder.relative_to(self._source)

    def _move(self, moves: list[tuple[Path, Path]]) -> None:
        self._parked.mkdir(parents=True, exist_ok=True)
        if self._parked.stat().st_dev != self._source.stat().st_dev:
            raise BuildError(
                f"{self._parked} and {self._source} are on different file systems, and a build tree is"
                " moved by renaming",
                tip="put --work-dir on the file system of the sources",
            )
        for old, new in moves:
            if new.is_dir() and not new.is_symlink() and not any(new.iterdir()):
                new.rmdir()
            if new.exists():
                raise BuildError(f"{old} cannot be moved: {new} is there already", tip=f"move {new} away")
            new.parent.mkdir(parents=True, exist_ok=True)
            old.rename(new)
