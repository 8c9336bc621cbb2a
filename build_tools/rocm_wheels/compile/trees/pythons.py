"""One build tree for all Pythons: what only one of them can use is made again for the next.

Deleted is what the recipe lists (``build.across_pythons.again``). CMakeCache.txt is among it: Python, its
headers and packages are looked for anew. ninja then compares commands and files, and keeps the rest.
Nothing of the tree waits for a Python that may come back: what it had is made again for it, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.trees.key import TreeKey
from rocm_wheels.compile.trees.state import TreeState
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.errors import BuildError
from rocm_wheels.process import capture_output

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


def pass_tree_on(request: BuildRequest, state: TreeState, key: TreeKey, generated: frozenset[str]) -> str:
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
    return f"shared with {before}, {count} parts of it made again" if count else ""


def _delete_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep_cmake_path(request: BuildRequest, python: Path, env: Mapping[str, str]) -> dict[str, str]:
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
    output = capture_output(
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
    prepend_path(changed, "PATH", cmake_folder / "bin", request.platform)
    prepend_path(changed, "PYTHONPATH", cmake_folder / "python", request.platform)
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
        raise BuildError(f"{data} cannot be copied to {cmake_folder}: {fault}") from fault
