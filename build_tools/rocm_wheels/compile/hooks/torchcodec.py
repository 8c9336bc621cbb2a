"""torchcodec: CMake builds no wheel before somebody has said which FFmpeg it is built against.

That of the system may be under the GPL, which a published wheel that is linked to it falls under as well.
"""

from __future__ import annotations

from rocm_wheels.compile import build_request, hooks

_OTHER_FFMPEG = "I_CONFIRM_THIS_IS_NOT_A_LICENSE_VIOLATION"


def _choose_ffmpeg(request: build_request.BuildRequest, env: dict[str, str]) -> None:
    """Take upstream's builds of FFmpeg 4 to 9, unless ``--set-env`` confirms that another may be taken."""
    if _OTHER_FFMPEG not in request.set_env:
        env["BUILD_AGAINST_ALL_FFMPEG_FROM_S3"] = "1"


HOOKS = hooks.Hooks(environment=_choose_ffmpeg)
