"""One path to the ROCm packages for all environments that have the same ones.

Each Python's environment has ROCm in a folder of its own, and a build writes that into every command: a
build tree that Pythons share would compile everything again. So builds reach ROCm by a link, which is
named after the content of the packages and leads into one of the environments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rocm_wheels.errors import SdkError
from rocm_wheels.sdk.ask import RocmSdk

SHARED_FOLDER = "rocm"  # the folder of the links, in a work directory


def share_sdk(sdk: RocmSdk, content: str, folder: Path, content_at: Callable[[Path], str]) -> RocmSdk:
    """Return an SDK with the paths that every environment with this content has in common.

    ``content`` is a digest over the files of its packages; ``content_at`` gives that of the packages in
    another ``site-packages`` now. The link in ``folder`` stays where it leads as long as that has the same
    content, and is moved to this SDK's otherwise. It leads to the folder around the root: programs
    of ROCm look for each other beside it, some by the text of the path.

    On Windows, where links need a privilege, and for an SDK whose folders are not below its root, nothing
    is shared. Raises SdkError.
    """
    below = all(path.is_relative_to(sdk.root) for path in (sdk.cmake, sdk.bin))
    if sys.platform == "win32" or not below:
        return sdk
    link, sdk_folder = folder / f"rocm-{content}", sdk.root.parent
    try:
        current = link.readlink() if link.is_symlink() else None
        if current != sdk_folder and (current is None or not _has_content(current, sdk, content, content_at)):
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f".{link.name}.{os.getpid()}.part"
            part.unlink(missing_ok=True)
            part.symlink_to(sdk_folder)
            part.replace(link)
    except OSError as fault:
        raise SdkError(f"{link} cannot be made: {fault.strerror}") from fault
    root = link / sdk.root.name
    return replace(
        sdk, root=root, cmake=root / sdk.cmake.relative_to(sdk.root), bin=root / sdk.bin.relative_to(sdk.root)
    )


def forget_shared_sdk(folder: Path, environment: Path) -> None:
    """Remove the links in ``folder`` that lead into an environment which is about to change.

    Else one would lead to other packages than its name says. Whoever shares it asks again.
    """
    for link in folder.glob("rocm-*"):
        if link.is_symlink() and link.readlink().is_relative_to(environment):
            link.unlink()


def _has_content(folder: Path, sdk: RocmSdk, content: str, content_at: Callable[[Path], str]) -> bool:
    return (folder / sdk.root.name).is_dir() and content_at(folder) == content
