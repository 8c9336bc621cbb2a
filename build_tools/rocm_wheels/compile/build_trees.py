"""Build trees: each configuration of a project has its own, and goes on where it stopped.

A project builds inside its source (``build/``), where CMake keeps what it found out about compilers,
Python and the SDK, and ninja what is compiled. A tree made for another configuration would be used in
silence, so each tree carries a key file. When the wanted key is another one, the tree is moved away and
the wanted one, if it is parked, is moved back: renames, no copies. A build that was killed left its tree
in place, and continues.

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

import errno
import filecmp
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from rocm_wheels.compile import build_request, generated_files, variables
from rocm_wheels.core import errors, process, shell, tables
from rocm_wheels.core.files import hash_file, write_json_file

# the versions of Visual Studio and of Windows' SDK are in the first two
_MSVC_VARIABLES = re.compile(r"INCLUDE|LIB|_?CL_?|_?LINK_?")
_PYTHON_PARTS = ("python", "python tag")


@dataclass(frozen=True)
class TreeKey:
    """What a build tree is configured for, in parts that can be read and compared.

    ``shared``: all Pythons of a configuration have one tree, which belongs to one of them at a time.
    """

    parts: Mapping[str, str]
    shared: bool = False

    @property
    def tree(self) -> Mapping[str, str]:
        """The parts that tell one tree from another."""
        return {
            name: value for name, value in self.parts.items() if not (self.shared and name in _PYTHON_PARTS)
        }

    @property
    def python(self) -> Mapping[str, str]:
        """The parts that say whose a shared tree is now; empty for a tree of one Python alone."""
        return {name: value for name, value in self.parts.items() if self.shared and name in _PYTHON_PARTS}

    @property
    def name(self) -> str:
        """The tree's parts as 12 hexadecimal digits."""
        text = json.dumps(dict(self.tree), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]

    def list_differences(self, other: TreeKey) -> tuple[str, ...]:
        """Return the names of the parts in which the trees of two keys differ."""
        names = {*self.tree, *other.tree}
        return tuple(sorted(name for name in names if self.tree.get(name) != other.tree.get(name)))


def make_tree_key(
    request: build_request.BuildRequest, env: Mapping[str, str], *, python: Path, python_tag: str
) -> TreeKey:
    """Make the key of a build from what a configure step writes down.

    Source, Python, ROCm, variables, and which programs the names of the host's compilers stand for. Of what
    is set for this project alone, by recipe or user, it is not known what it changes: all of it counts.
    """
    alone = {*request.recipe_variables, *request.set_env} - {*variables.SPEED_ONLY_VARIABLES}
    parts = {
        n: shell.redact_for_comparison(n, value)
        for n, value in env.items()
        if n in alone or variables.is_configuration_variable(n, value)
    }
    if request.platform == "windows":
        parts |= {
            n: shell.redact_for_comparison(n, value)
            for n, value in env.items()
            if _MSVC_VARIABLES.fullmatch(n)
        }
    parts |= {
        "compilers": _describe_compilers(env),
        "platform": request.platform,
        "python": str(python),
        "python tag": python_tag,
        "ROCm": request.sdk.identity,
        "source": str(request.source),  # objects of another checkout look newer than this one's files
    }
    return TreeKey(parts, shared=request.project.build.across_pythons is not None)


def _describe_compilers(env: Mapping[str, str]) -> str:
    """Return the files behind CC and CXX (``ccache gcc`` names two), and the names that builds try without.

    An update of the system puts another compiler in the same place: size and time tell.
    """
    return _describe_programs(_list_compiler_names(env), env.get("PATH", ""))


def hash_compilers(env: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 (hex) of the files behind the same names, by the names of the files."""
    return {path.name: hash_file(path) for path in list_compilers(env)}


def list_compilers(env: Mapping[str, str]) -> list[Path]:
    """Return the files behind the names of compilers that builds try."""
    locations = _locate_programs(_list_compiler_names(env), env.get("PATH", "")).values()
    return [Path(location) for location in dict.fromkeys(locations)]


def _list_compiler_names(env: Mapping[str, str]) -> tuple[str, ...]:
    named_programs = [word for name in ("CC", "CXX") for word in env.get(name, "").split() if word[0] != "-"]
    return tuple(dict.fromkeys([*named_programs, "cc", "c++", "gcc", "g++"]))


def _locate_programs(names: Sequence[str], path: str) -> dict[str, str]:
    located = {name: shutil.which(name, path=path) for name in names}
    return {name: os.path.realpath(location) for name, location in located.items() if location}


@lru_cache(maxsize=64)  # a plan of hundreds of builds asks the same for each; a step asks in its own process
def _describe_programs(names: tuple[str, ...], path: str) -> str:
    programs = _locate_programs(names, path)
    states = {location: Path(location).stat() for location in programs.values()}
    descriptions = {
        location: f"{state.st_size} bytes, {int(state.st_mtime)}" for location, state in states.items()
    }
    return " ".join(f"{name}={location} ({descriptions[location]})" for name, location in programs.items())


TREE_KEY_FILE = ".rocm-wheels-tree"
DELETED_TREE_KEY = TreeKey({"state": "being deleted"})  # of a tree that a killed run was deleting


@dataclass(frozen=True)
class TreeState:
    """The content of a key file.

    ``parts`` of the tree's key, the ignored files that were there ``before`` the tree, and whose it is
    when Pythons share it: ``None`` while it passes from one to another. ``source_names``: a digest of the
    files in the source that CMake has looked through, or will before anything is compiled.
    """

    parts: Mapping[str, str]
    before: frozenset[str]
    python: Mapping[str, str] | None = field(default_factory=dict)
    source_names: str = ""

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
            python = value.get("python", {})
            return cls(
                dict(value["parts"]),
                frozenset(value["before"]),
                None if python is None else dict(python),
                str(value.get("source names", "")),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
            raise errors.BuildError(
                f"{path} is damaged: it is not known what {tree} was built for",
                tip="`build --clean` sets the folder aside and starts a new one",
            ) from cause


_RETURN_JOURNAL = "returning.json"  # in a waiting tree: the moves that bring it back

TreeMove = tuple[Path, Path]  # relative to the waiting tree, relative to the source


def park_files(source: Path, parking: Path, moves: Sequence[TreeMove]) -> None:
    """Move files and folders of a source to a waiting place, in this order."""
    for parked, home in moves:
        _rename_path(source / home, parking / parked)


def undo_departure(source: Path, parking: Path) -> None:
    """Bring back what a kill left at the waiting place of a tree that is still in its source.

    What the source has again by now is newer, and stays.
    """
    for part in ("generated", "trees"):
        for path in list_files_below(parking / part):
            home = source / path.relative_to(parking / part)
            if not os.path.lexists(home):
                _rename_path(path, home)
    if parking.is_dir():
        shutil.rmtree(parking)


def return_files(source: Path, parking: Path, moves: Sequence[TreeMove]) -> None:
    """Move a waiting tree into its source. A file that is there already stays, and must be the same."""
    write_json_file(parking / _RETURN_JOURNAL, [[str(parked), str(home)] for parked, home in moves])
    for parked, home in moves:
        _rename_path(parking / parked, source / home)
    shutil.rmtree(parking)


def undo_returns(source: Path, parking: Path) -> None:
    """Finish, backwards, a return that a kill cut: half a tree must not pass for another's files."""
    for journal in sorted(parking.glob(f"*/{_RETURN_JOURNAL}")):
        parked_tree = journal.parent
        for name, home in reversed(json.loads(journal.read_text(encoding="utf-8"))):
            if os.path.lexists(source / home) and not os.path.lexists(parked_tree / name):
                (parked_tree / name).parent.mkdir(parents=True, exist_ok=True)
                (source / home).rename(parked_tree / name)
        journal.unlink()


def list_files_below(folder: Path) -> list[Path]:
    """Return all files and links of a folder; a link to a folder is one, and not followed."""
    files = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(files)


def _rename_path(old: Path, new: Path) -> None:
    if new.is_dir() and not new.is_symlink() and not any(new.iterdir()):
        new.rmdir()
    if os.path.lexists(new):
        if new.is_file() and old.is_file() and filecmp.cmp(old, new, shallow=False):
            return
        raise errors.BuildError(f"{old} cannot be moved: {new} is there already", tip=f"move {new} away")
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        old.rename(new)
    except OSError as fault:
        if fault.errno != errno.EXDEV:
            raise
        raise errors.BuildError(
            f"{old} is on another file system than {new.parent}, and a build tree is moved by renaming",
            tip=f"let {old.name} be an ordinary folder of its source, no mount and no link",
        ) from fault


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


_CMAKE_FOLDER = ".cmake-program"
_CMAKE_SCRIPT = """
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


def pass_tree_on(
    request: build_request.BuildRequest, state: TreeState, key: TreeKey, generated: frozenset[str]
) -> str:
    """Give the tree in place to the key's Python; say in words what was deleted for that, if anything.

    ``generated``: the ignored files (relative to the source) that builds left outside the build folders.
    A kill leaves a tree that belongs to no Python, which is then passed on again.
    """
    rule = request.project.build.across_pythons
    if rule is None or state.python == key.python:
        return ""
    main = request.folder / request.project.build.trees[0]
    replace(state, python=None).write(main)
    trees = [request.folder / name for name in request.project.build.trees]
    count = 0
    for pattern in rule.again:
        for path in sorted(request.source.glob(pattern)):
            inside = any(path.is_relative_to(tree) and path != tree for tree in trees)
            if inside or path.relative_to(request.source).as_posix() in generated:
                _delete_path(path)
                count += 1
    replace(state, python=key.python).write(main)
    before = "another Python" if state.python is None else f"{state.python['python tag']}'s"
    return f"shared with {before}, {tables.format_count(count, 'part')} rebuilt" if count else ""


def _delete_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
        [python, "-I", "-c", _CMAKE_SCRIPT], env=env, description=f"asking {python} where its cmake is"
    )
    if not output:  # it is no package of this Python: conda's, the distribution's
        return changed
    version, folder = output.splitlines()
    main = request.folder / request.project.build.trees[0]
    cmake_folder = main / _CMAKE_FOLDER / version
    if not cmake_folder.is_dir():
        if cmake_folder.parent.exists():
            shutil.rmtree(cmake_folder.parent)
        _copy_cmake(Path(folder).parent, cmake_folder, version)
    variables.prepend_path(changed, "PATH", cmake_folder / "bin", request.platform)
    variables.prepend_path(changed, "PYTHONPATH", cmake_folder / "python", request.platform)
    return changed


def _copy_cmake(data: Path, cmake_folder: Path, version: str) -> None:
    """Copy the programs and modules of cmake, with a package that names them; the folder appears whole."""

    def link(old: str, new: str) -> str:
        try:
            os.link(old, new)
        except OSError:  # another file system
            shutil.copy2(old, new)
        return new

    part = cmake_folder.with_name(f"{cmake_folder.name}.part")
    try:
        for name in ("bin", "share"):
            shutil.copytree(data / name, part / name, copy_function=link, symlinks=True)
        package = part / "python" / "cmake"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(_CMAKE_PACKAGE.format(version=version), encoding="utf-8")
        part.rename(cmake_folder)
    except OSError as fault:
        raise errors.BuildError(f"{data} cannot be copied to {cmake_folder}: {fault}") from fault


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
        before = trees.list_ignored() if before is None else before
        TreeState(key.tree, before, key.python, request.source_names).write(trees.main)
        return outcome or "new"
    os.utime(trees.main / TREE_KEY_FILE)  # used now
    trees.prune_staging()
    if state.source_names != request.source_names:
        trees.outdate_configuration()
        state = replace(state, source_names=request.source_names)
        state.write(trees.main)
    passed = pass_tree_on(request, state, key, trees.list_ignored() - state.before)
    return "; ".join(text for text in (outcome or CONTINUED, passed) if text)


class _BuildTrees:
    """The build folders of one source tree, and the place where they wait."""

    def __init__(self, request: build_request.BuildRequest, parked: Path, env: Mapping[str, str]) -> None:
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
            raise errors.BuildError(
                f"{full[0]} was not made by rocm-wheels: unknown what it was built for",
                tip="`build --clean` sets it aside (nothing is deleted) and starts a new one",
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
        files = generated_files.list_ignored_files(self._source, self._env)
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

    def _is_damaged(self) -> bool:
        try:
            TreeState.read(self.main)
        except errors.BuildError:
            return True
        return False

    def _make_relative(self, folder: Path) -> Path:
        return folder.relative_to(self._source)
