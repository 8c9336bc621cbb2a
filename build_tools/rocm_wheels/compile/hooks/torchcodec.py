"""torchcodec: which FFmpeg and which libavif it is built against.

CMake builds no wheel before somebody has said which FFmpeg: that of the system may be under the GPL, which a
published wheel that is linked to it falls under as well. libavif is downloaded, whatever the system has.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rocm_wheels.compile import build_request, hooks, variables

_OTHER_FFMPEG = "I_CONFIRM_THIS_IS_NOT_A_LICENSE_VIOLATION"
_OTHER_AVIF = "FETCHCONTENT_SOURCE_DIR_AVIF_S3"  # CMake's name for what FetchContent has not to download


def _choose_libraries(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Take upstream's builds of FFmpeg 4 to 9 and of libavif, unless a variable says otherwise."""
    given = {**env, **request.set_env}
    if not given.get(_OTHER_FFMPEG):
        env["BUILD_AGAINST_ALL_FFMPEG_FROM_S3"] = "1"
    if folder := given.get(_OTHER_AVIF):
        # CMake does not read this one of the environment
        define = shlex.quote(f"-D{_OTHER_AVIF}={Path(folder).absolute()}")
        variables.add_flags(env, "CMAKE_ARGS", define)


HOOKS = hooks.Hooks(environment=_choose_libraries)
