"""Build trees: each configuration of a project has its own, and goes on where it stopped.

A project builds inside its source (``build/``), where CMake keeps what it found out about
compilers, Python and the SDK, and ninja what is compiled. A tree made for another configuration
would be used in silence, so each tree carries a key file (``state``). When the wanted key (``key``) is
another one, the tree is moved away and the wanted one, if it waits there, is moved back: renames, no
copies (``enter``). A build that was killed left its tree in place, and continues.

Trees wait in the folder of their checkout's own repository (``waiting``): whichever work directory a
build is started from finds them, no ``git clean`` takes them away, and they go when the checkout goes.

With the tree move the files that git ignores and that appeared since the tree began (egg-info,
``torch/lib/*.so``, generated sources): made for other targets, they would end up in a wheel that
is not theirs. ``__pycache__``, ``dist`` and hidden files stay. Not handled: files inside submodules;
ignored files older than the tree (they cannot be told from the user's); files not ignored by git
(then the tree counts as changed). The check of targets in the finished wheel stands behind this.

A project whose recipe says so has one tree for all Pythons (``pythons``): what only one of them can use is
deleted when another one comes, CMake configures anew, and ninja keeps what has not changed.

Nothing of the user's is deleted: a tree without a key file is somebody else's and is refused, or set
aside under ``unnamed-<n>`` when a clean build is asked for.
"""

from rocm_wheels.compile.trees.enter import enter_tree
from rocm_wheels.compile.trees.key import TreeKey, make_tree_key
from rocm_wheels.compile.trees.pythons import keep_cmake_path
from rocm_wheels.compile.trees.state import TREE_KEY_FILE
from rocm_wheels.compile.trees.waiting import prepare_parking_folder

__all__ = [
    "TREE_KEY_FILE",
    "TreeKey",
    "enter_tree",
    "keep_cmake_path",
    "make_tree_key",
    "prepare_parking_folder",
]
