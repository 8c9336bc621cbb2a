"""The commit that a wheel says it was built from: upstream's, though commits of ours lie on top.

setup.py and CMake of torch (tools/generate_torch_version.py, cmake/Codegen.cmake), of torchvision and of
torchaudio ask `git rev-parse HEAD`, and write the answer into Python files, headers and libraries; no
variable changes that. So builds have a git on their PATH that answers this one question about this one tree
with another commit, and hands everything else to git. On Windows, where only an .exe would be started, there
is none.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.log import log_warning
from rocm_wheels.workspace import write_atomically

_GIT_SCRIPT = """\
#!/bin/sh
# Made by rocm-wheels for builds: HEAD of one source tree is the commit below, on which commits of
# rocm-wheels (hipify, patches) lie. All else is git's.
git={git}
case "$1 $2 $3" in
"rev-parse HEAD " | "rev-parse --verify HEAD" | "rev-parse --short HEAD" | "rev-parse --short="[0-9]*" HEAD")
    if [ "$("$git" rev-parse --show-toplevel 2>/dev/null)" = {tree} ]; then
        [ "$2" = HEAD ] && exec "$git" rev-parse {commit}
        exec "$git" rev-parse "$2" {commit}
    fi
    ;;
esac
exec "$git" "$@"
"""


def set_wheel_commit(request: BuildRequest, parking: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build in which HEAD of its tree is the commit of the request.

    The program stays below ``parking``, the folder of the build trees: CMake remembers where git is.
    """
    build_env = dict(env)
    if request.commit is None:
        return build_env
    if request.platform == "windows":
        log_warning(
            f"{request.project.name}: the wheel will name HEAD as its commit, and not {request.commit}: "
            "check out with --no-commit-hipify where that matters"
        )
        return build_env
    folder = parking / request.project.name / "bin"
    path = os.pathsep.join(
        part for part in env.get("PATH", "").split(os.pathsep) if part != os.fspath(folder)
    )
    git = shutil.which("git", path=path)
    if git is None:
        return build_env
    words = {"git": git, "tree": os.fspath(request.source.resolve()), "commit": request.commit}
    program = folder / "git"
    write_atomically(program, _GIT_SCRIPT.format(**{name: shlex.quote(word) for name, word in words.items()}))
    program.chmod(0o755)
    prepend_path(build_env, "PATH", folder, request.platform)
    return build_env
