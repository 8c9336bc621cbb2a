"""Build trees: each configuration of a project has its own, and goes on where it stopped.

A project builds inside its source (``build/``), where CMake keeps what it found out about compilers,
Python and the SDK, and ninja what is compiled. A tree made for another configuration would be used in
silence, so each tree carries a key file. When the wanted key is another one, the tree is moved away and
the wanted one, if it is parked, is moved back: renames, no copies. They are written down before the first
one (``moving.json``), and what a kill left of them is done before anything else. A build that was killed left
its tree in place, and continues.

Trees are parked in the folder of their checkout's own repository: whichever work directory a build is
started from finds them, no ``git clean`` takes them away, and they go when the checkout goes.

With the tree move the files that git ignores and that appeared since the tree began (egg-info,
``torch/lib/*.so``, generated sources): made for other targets, they would end up in a wheel that is not
theirs. ``__pycache__``, ``dist`` and hidden files stay. Not handled: files inside submodules; ignored
files older than the tree (they cannot be told from the user's); files not ignored by git (then the tree
counts as changed). The check of targets in the finished wheel stands behind this.

A project whose recipe says so has one tree for all Pythons: what only one of them can use (the recipe's
``build.across_pythons.again``, CMakeCache.txt among it) is deleted when another one comes, CMake
configures anew, and ninja keeps what has not changed. Nothing of the user's is deleted: a tree without a
key file is somebody else's and is refused, or set aside under ``unnamed-<n>`` when a clean build is asked
for.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.compile import build_request, generated_files, variables
from rocm_wheels.core import errors, process, shell, tables
from rocm_wheels.core.files import hash_file, link_or_copy, write_json_file

# the versions of Visual Studio and of Windows' SDK are in the first two
_MSVC_VARIABLES = re.compile(r"INCLUDE|LIB|_?CL_?|_?LINK_?")


@dataclass(frozen=True)
class TreeKey:
    """What a build tree is configured for, in parts that can be read and compared.

    ``tree`` tells one tree from another. ``python`` says whose it is, where all Pythons of a configuration
    share one, which belongs to one of them at a time; it is empty for a tree of one Python alone.
    """

    tree: Mapping[str, str]
    python: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, str]:
        """All parts."""
        return {**self.tree, **self.python}

    @property
    def name(self) -> str:
        """The tree's parts as 12 hexadecimal digits."""
        text = json.dumps(dict(self.tree), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def make_tree_key(
    request: build_request.BuildRequest, env: Mapping[str, str], *, python: Path, python_tag: str
) -> TreeKey:
    """Make the key of a build from what a configure step writes down.

    Source, Python, ROCm, variables, and which programs the names of the host's compilers stand for: an update
    of the system puts another compiler in the same place, so size and time count. Of what is set for this
    project alone, by recipe or user, it is not known what it changes: all of it counts.
    """
    alone = {*request.recipe_variables, *request.set_env} - {*variables.SPEED_ONLY_VARIABLES}
    parts = {}
    for name, value in env.items():
        is_msvc = request.platform == "windows" and _MSVC_VARIABLES.fullmatch(name)
        if name in alone or is_msvc or variables.is_configuration_variable(name, value):
            parts[name] = shell.redact_for_comparison(name, value)
    compilers = []
    for name, path in _locate_compilers(env).items():
        state = path.stat()
        compilers.append(f"{name}={path} ({state.st_size} bytes, {int(state.st_mtime)})")
    parts |= {
        "compilers": " ".join(compilers),
        "platform": request.platform,
        "ROCm": request.sdk.identity,
        "source": str(request.source),  # objects of another checkout look newer than this one's files
    }
    whose = {"python": str(python), "python tag": python_tag}
    shared = request.project.build.across_pythons is not None
    return TreeKey(parts, whose) if shared else TreeKey({**parts, **whose})


def _locate_compilers(env: Mapping[str, str]) -> dict[str, Path]:
    """Return the files behind CC and CXX (``ccache gcc`` names two), and behind names that builds try."""
    named = [word for name in ("CC", "CXX") for word in env.get(name, "").split() if word[0] != "-"]
    located = {}
    for name in dict.fromkeys([*named, "cc", "c++", "gcc", "g++"]):
        if program := shutil.which(name, path=env.get("PATH", "")):
            located[name] = Path(os.path.realpath(program))
    return located


def list_compilers(env: Mapping[str, str]) -> list[Path]:
    """Return the files behind the names of compilers that builds try."""
    return list(dict.fromkeys(_locate_compilers(env).values()))


def hash_compilers(env: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 (hex) of these files, by their names."""
    return {path.name: hash_file(path) for path in list_compilers(env)}


TREE_KEY_FILE = ".rocm-wheels-tree"


@dataclass(frozen=True)
class TreeState:
    """The content of a key file.

    ``parts`` of the tree's key, the ignored files that were there ``before`` the tree, and whose it is
    when Pythons share it: ``None`` while it passes from one to another. ``source_names``: a digest of the
    files in the source that CMake has looked through, or will before anything is compiled.
    """

    parts: Mapping[str, str]
    before: frozenset[str]
    python: Mapping[str, str] | None
    source_names: str

    def write(self, tree: Path) -> None:
        """Put the key file into a build folder, whole."""
        value = {
            "key": TreeKey(self.parts).name,
            "parts": dict(self.parts),
            "python": None if self.python is None else dict(self.python),
            "before": sorted(self.before),
            "source names": self.source_names,
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
            names = frozenset(value["before"])
            return cls(dict(value["parts"]), names, value["python"], value["source names"])
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise errors.BuildError(
                f"{path} is damaged: it is not known what {tree} was built for",
                tip="`build --clean` sets the folder aside and starts a new one",
            ) from cause


_HIDDEN_FOLDER = ".rocm-wheels"


def find_parking_folder(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; nothing is made there.

    It is on the source's file system: in git's own folder for this checkout (a worktree and a submodule
    have theirs), else in a hidden folder of the source: for a folder that is no checkout of its own,
    and where git's folder is on another file system.
    """
    answer = generated_files.ask_git(source, env, "rev-parse", "--show-prefix", "--absolute-git-dir")
    prefix, _, git_folder = answer.partition("\n")
    if git_folder and not prefix and Path(git_folder).stat().st_dev == source.stat().st_dev:
        return Path(git_folder) / "rocm-wheels" / "trees"
    return source / _HIDDEN_FOLDER / "trees"


def prepare_parking_folder(source: Path, env: Mapping[str, str]) -> Path:
    """Return the folder in which trees of a source wait; git is told not to see it inside the source."""
    parking = find_parking_folder(source, env)
    if parking.is_relative_to(source / _HIDDEN_FOLDER):
        generated_files.exclude_from_git(source, [f"{_HIDDEN_FOLDER}/"], env)
    return parking


def set_build_folder(request: build_request.BuildRequest, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which scikit-build-core compiles in the tree: else its folder is temporary,
    and a build that is killed begins again. A folder that recipe or user name stays.
    """
    trees = request.project.build.trees
    if not trees or not build_request.uses_scikit_build_core(request.folder):
        return dict(env)
    return {"SKBUILD_BUILD_DIR": trees[0], **env}


_CMAKE_QUESTION = """
import importlib.util
if importlib.util.find_spec("cmake"):
    import cmake
    print(cmake.__version__, cmake.CMAKE_BIN_DIR, sep="\\n")
"""
_CMAKE_PACKAGE = """# the cmake of this build tree, for all Pythons that share it
from pathlib import Path

__version__ = "{version}"
CMAKE_DATA = str(Path(__file__).parents[2])
CMAKE_BIN_DIR = str(Path(CMAKE_DATA, "bin"))
CMAKE_SHARE_DIR = str(Path(CMAKE_DATA, "share"))
"""


def keep_cmake_path(
    request: build_request.BuildRequest, python: Path, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment with a cmake whose path is the same for all Pythons that share the tree.

    CMake writes its own path into commands (of HIP objects, of static libraries), and each environment has
    its own cmake: ninja would take all of them for changed. So the tree has a copy (hard links)
    of the program that was installed for the first Python; another version replaces it. It is found on
    PATH, and by scikit-build-core, which asks the package ``cmake`` before that, through PYTHONPATH.
    """
    changed = dict(env)
    program = shutil.which("cmake", path=env.get("PATH", ""))
    if request.project.build.across_pythons is None or program is None:
        return changed
    if Path(program).parent != python.parent:  # the machine's own: the same for all anyway
        return changed
    output = process.capture_output(
        [python, "-I", "-c", _CMAKE_QUESTION], env=env, description=f"asking {python} where its cmake is"
    )
    if not output:  # it is no package of this Python: conda's, the distribution's
        return changed

    def link(old: str, new: str) -> None:
        link_or_copy(Path(old), Path(new))

    version, programs = output.splitlines()
    copy = request.folder / request.project.build.trees[0] / ".cmake-program" / version
    if not copy.is_dir():
        shutil.rmtree(copy.parent, ignore_errors=True)
        part = copy.with_name(f"{version}.part")
        for name in ("bin", "share"):
            folder = Path(programs).with_name(name)
            shutil.copytree(folder, part / name, copy_function=link, symlinks=True)
        (part / "python" / "cmake").mkdir(parents=True)
        (part / "python" / "cmake" / "__init__.py").write_text(
            _CMAKE_PACKAGE.format(version=version), encoding="utf-8"
        )
        part.rename(copy)
    variables.prepend_path(changed, "PATH", copy / "bin", request.platform)
    variables.prepend_path(changed, "PYTHONPATH", copy / "python", request.platform)
    return changed


_BINARY_SUFFIXES = (".so", ".pyd", ".dll", ".dylib")


CONTINUED = "continued"  # what ``enter_tree`` says, at least, of a tree that was in place


def enter_tree(
    request: build_request.BuildRequest,
    key: TreeKey,
    parking: Path,
    *,
    env: Mapping[str, str],
    clean: bool = False,
) -> str:
    """Put the tree of ``key`` in place; say in words what was done.

    Others wait in ``parking``, on the file system of the source. ``clean`` throws the tree of this key away
    first. The caller holds the source. Raises BuildError for a tree that we did not make.
    """
    trees = _BuildTrees(request, parking / request.project.name, env)
    trees.finish_moves()
    state, outcome = trees.read_state(clean)
    if state is not None and state.parts != key.tree:
        trees.park_tree(state)
        names = sorted(n for n in {*key.tree, *state.parts} if key.tree.get(n) != state.parts.get(n))
        outcome = f"new; the tree of another configuration is parked ({', '.join(names)})"
        state = None
    if state is None and trees.return_tree(key):
        state, outcome = TreeState.read(trees.main), "taken back from parking"
    if state is not None and clean:
        trees.discard_tree()
        state, outcome = None, "new; the old one is deleted"
    if state is None:
        before = trees.find_files_before()
        TreeState(key.tree, before, key.python, request.source_names).write(trees.main)
        trees.delete_discarded()
        return outcome or "new"
    trees.delete_discarded()
    os.utime(trees.main / TREE_KEY_FILE)  # used now
    trees.prune_staging()
    if state.source_names != request.source_names:
        trees.outdate_configuration()
        state = replace(state, source_names=request.source_names)
        state.write(trees.main)
    passed = trees.pass_on(state, key)
    return "; ".join(text for text in (outcome or CONTINUED, passed) if text)


class _BuildTrees:
    """The build folders of one source tree, and the place where they wait."""

    def __init__(self, request: build_request.BuildRequest, parked: Path, env: Mapping[str, str]) -> None:
        self._request = request
        self._source = request.source
        self._folders = [request.folder / name for name in request.project.build.trees]
        self._parked = parked
        self._discarded = parked / ".going-discarded"  # what `clean` calls remains
        self._journal = parked / "moving.json"
        self._env = env
        self.main = self._folders[0]

    def read_state(self, clean: bool) -> tuple[TreeState | None, str]:
        """Return the tree in place. One that nobody knows is refused; where ``clean``, it is set aside, and
        the second value says so.
        """
        try:
            state = TreeState.read(self.main)
        except errors.BuildError:
            if not clean:
                raise
            state = None
        full = [folder for folder in self._folders if folder.is_dir() and any(folder.iterdir())]
        if state is not None or not full:
            return state, ""
        if not clean:
            raise errors.BuildError(
                f"{full[0]} was not made by rocm-wheels: unknown what it was built for",
                tip="`build --clean` sets it aside (nothing is deleted) and starts a new one",
            )
        number = 1
        while (self._parked / f"unnamed-{number}").exists():
            number += 1
        aside = self._parked / f"unnamed-{number}"
        self._move([pair for pair in self._pair_folders(aside / "trees") if pair[0] in full])
        return None, f"new; what was there is set aside in {aside}"

    def list_ignored(self) -> frozenset[str]:
        """Return the ignored files of the source outside the build folders."""
        inside = tuple(f"{folder.relative_to(self._source).as_posix()}/" for folder in self._folders)
        files = generated_files.list_ignored_files(self._source, self._env)
        return frozenset(name for name in files if not name.startswith(inside))

    def park_tree(self, state: TreeState) -> None:
        """Move the tree in place, and what it generated, away."""
        parked_tree = self._parked / TreeKey(state.parts).name
        generated = sorted(self.list_ignored() - state.before)
        moves = [(self._source / name, parked_tree / "generated" / name) for name in generated]
        pairs = self._pair_folders(parked_tree / "trees")
        self._move(moves + [(folder, parked) for folder, parked in pairs if folder.is_dir()])

    def return_tree(self, key: TreeKey) -> bool:
        """Bring a parked tree back; tell whether there was one."""
        generated, trees = (self._parked / key.name / name for name in ("generated", "trees"))
        if not (trees / self.main.relative_to(self._source) / TREE_KEY_FILE).is_file():
            return False
        # a link to a folder is moved, and not followed
        files = sorted(path for path in generated.rglob("*") if path.is_symlink() or not path.is_dir())
        moves = [(path, self._source / path.relative_to(generated)) for path in files]
        pairs = self._pair_folders(trees)
        self._move(moves + [(parked, folder) for folder, parked in pairs if parked.is_dir()])
        return True

    def discard_tree(self) -> None:
        """Move the tree in place to where it is deleted from, once another one has begun."""
        pairs = self._pair_folders(self._discarded)
        self._move([(folder, discarded) for folder, discarded in pairs if folder.is_dir()])

    def find_files_before(self) -> frozenset[str]:
        """Return the ignored files that a new tree finds: one that is deleted has left its own behind."""
        discarded = TreeState.read(self._discarded / self.main.relative_to(self._source))
        return self.list_ignored() if discarded is None else discarded.before

    def delete_discarded(self) -> None:
        """Delete what is discarded; where a kill cuts that, the next run goes on."""
        if self._discarded.exists():
            shutil.rmtree(self._discarded)

    def _pair_folders(self, place: Path) -> list[tuple[Path, Path]]:
        """Return the build folders, each with its counterpart in another place."""
        return [(folder, place / folder.relative_to(self._source)) for folder in self._folders]

    def _move(self, moves: Sequence[tuple[Path, Path]]) -> None:
        """Rename files and folders, or none. BuildError where something is in the way."""
        for old, new in moves:
            _make_way(old, new)
            if old.lstat().st_dev != self._source.stat().st_dev:
                raise errors.BuildError(
                    f"{old} is on another file system than {self._source}; a build tree is moved by renaming",
                    tip=f"let {old.name} be an ordinary folder of its source, no mount",
                )
        noted = [[os.path.relpath(path, self._source) for path in move] for move in moves]
        write_json_file(self._journal, noted)
        self.finish_moves()

    def finish_moves(self) -> None:
        """Do what is noted and not done. Nothing is moved from where something else was moved to."""
        if not self._journal.is_file():
            return
        for words in json.loads(self._journal.read_text(encoding="utf-8")):
            old, new = (Path(os.path.normpath(self._source / word)) for word in words)
            if not os.path.lexists(old):
                pass  # done before the kill
            elif _make_way(old, new):
                new.parent.mkdir(parents=True, exist_ok=True)
                old.rename(new)
            else:
                old.unlink()
            for parent in old.parents:
                with contextlib.suppress(OSError):  # it is not empty, or not there
                    if self._parked in parent.parents:
                        parent.rmdir()
        self._journal.unlink()

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

    def outdate_configuration(self) -> None:
        """Have ninja, or make, run CMake before it compiles: patterns of files are looked through again.

        What they compare CMake's own files with gets a time before all others. Whatever runs them later, they
        configure first, until that has ended well; objects stay. torch's setup.py itself runs CMake only in a
        tree that has no build.ninja (its tools/setup_helpers/cmake.py).
        """
        for cache in (path for folder in self._folders for path in folder.rglob("CMakeCache.txt")):
            for name in ("build.ninja", "CMakeFiles/cmake.check_cache"):
                if (cache.parent / name).is_file():
                    os.utime(cache.parent / name, (1, 1))

    def pass_on(self, state: TreeState, key: TreeKey) -> str:
        """Give the tree in place to the key's Python; say in words what was deleted for that, if anything.

        A kill leaves a tree that belongs to no Python, which is then passed on again.
        """
        rule = self._request.project.build.across_pythons
        if rule is None or state.python == key.python:
            return ""
        generated, count = self.list_ignored() - state.before, 0
        replace(state, python=None).write(self.main)
        for path in (path for pattern in rule.again for path in sorted(self._source.glob(pattern))):
            inside = any(path.is_relative_to(folder) and path != folder for folder in self._folders)
            if inside or path.relative_to(self._source).as_posix() in generated:
                _delete_path(path)
                count += 1
        replace(state, python=key.python).write(self.main)
        before = "another Python" if state.python is None else f"{state.python['python tag']}'s"
        return f"shared with {before}, {tables.format_count(count, 'part')} rebuilt" if count else ""


def _delete_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_way(old: Path, new: Path) -> bool:
    """Tell whether a rename can be done; not where the same file is there. BuildError for another one."""
    if not os.path.lexists(new):
        return True
    if new.is_dir() and not new.is_symlink() and not any(new.iterdir()):
        new.rmdir()
        return True
    if new.is_file() and old.is_file() and filecmp.cmp(old, new, shallow=False):
        return False
    raise errors.BuildError(f"{old} cannot be moved: {new} is there already", tip=f"move {new} away")
