"""The ROCm packages that a build uses: what they say of themselves.

Each Python's environment has ROCm in a folder of its own, and a build writes that into every command: a
build tree that Pythons share would compile everything again, and a compiler cache that families share would
answer none of their compiles. So builds reach ROCm by a link, which is named after the content of the
packages that compiles read, and leads into one of the environments.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.core import errors, process, shell
from rocm_wheels.sdk import rocm_prefix

_TARGET = re.compile(r"gfx[0-9a-f]{3,5}(?:-generic)?")
_QUERY_SECONDS = 1800.0  # the first question unpacks the development tree, gigabytes
_INSTALLED_PROGRAM = """
import importlib.metadata, json
found = [(d.name.lower().replace("_", "-"), d.version) for d in importlib.metadata.distributions()]
print(json.dumps({n: v for n, v in reversed(found) if n == "rocm" or n.startswith("rocm-sdk-")}))
"""


@dataclass(frozen=True)
class RocmSdk:
    """What an SDK says about itself; the folders exist. ``installed``: ROCm distributions → version.

    ``prefix``: an installed ROCm, which has no distributions.
    """

    version: str
    root: Path
    cmake: Path
    bin: Path
    targets: tuple[str, ...]
    installed: Mapping[str, str]
    prefix: rocm_prefix.RocmPrefix | None = None


def read_installed_sdk(root: Path, env: Mapping[str, str]) -> RocmSdk:
    """Return an installed ROCm as a build uses it. Raises as ``inspect_prefix``."""
    prefix = rocm_prefix.inspect_prefix(root, env)
    return RocmSdk(prefix.version, prefix.root, prefix.cmake, prefix.hipcc.parent, prefix.targets, {}, prefix)


def query_sdk(python: Path, env: Mapping[str, str]) -> RocmSdk:
    """Ask the SDK installed for ``python``; stderr is not part of any answer.

    SdkError, naming the command and what it said: a failing command, an answer of none or
    several lines, a path that does not exist, a version that is none (PEP 440) or differs from
    the installed ``rocm``, targets that are not gfx names.
    """
    version = _query_version(python, env)
    installed = _query_installed(python, env)
    if installed.get("rocm") is None:
        raise errors.SdkError(f"no distribution 'rocm' is installed for {python}", tip=_suggest_repair())
    if installed["rocm"] != version:
        raise errors.SdkError(
            (
                f"`{_format_command(python, 'version')}` said {version}, but rocm "
                f"{installed['rocm']} is installed"
            ),
            tip="another rocm_sdk is in front of it on the path of this Python; check PYTHONPATH",
        )
    root = _query_folder(python, env, "--root")  # alone: the first such question unpacks the development tree
    with ThreadPoolExecutor() as pool:
        cmake = pool.submit(_query_folder, python, env, "--cmake")
        programs = pool.submit(_query_folder, python, env, "--bin")
        targets = pool.submit(_query_targets, python, env)
    return RocmSdk(
        version=version,
        root=root,
        cmake=cmake.result(),
        bin=programs.result(),
        targets=targets.result(),
        installed=installed,
    )


def _query_version(python: Path, env: Mapping[str, str]) -> str:
    from packaging.version import InvalidVersion, Version

    answer = _read_answer(python, env, "version")
    try:
        return str(Version(answer))
    except InvalidVersion as cause:
        raise errors.SdkError(
            f"`{_format_command(python, 'version')}` said {answer!r}, which is not a version (PEP 440)",
            tip=_suggest_repair(),
        ) from cause


def _query_folder(python: Path, env: Mapping[str, str], option: str) -> Path:
    answer = _read_answer(python, env, "path", option)
    path = Path(answer)
    if not path.is_absolute() or not path.is_dir():
        raise errors.SdkError(
            f"`{_format_command(python, 'path', option)}` said {answer!r}, which is not an existing folder",
            tip="run it yourself; rocm-sdk-devel may be damaged: install it again",
        )
    return path


def _query_targets(python: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    answer = _read_answer(python, env, "targets")
    targets = tuple(word for word in re.split(r"[;,\s]+", answer) if word)
    strange = [target for target in targets if not _TARGET.fullmatch(target)]
    if strange or not targets:
        raise errors.SdkError(
            f"`{_format_command(python, 'targets')}` said {answer!r}, where gfx targets are expected",
            tip=_suggest_repair(),
        )
    return targets


def _query_installed(python: Path, env: Mapping[str, str]) -> dict[str, str]:
    output = process.capture_output(
        [python, "-c", _INSTALLED_PROGRAM],
        env=env,
        cwd=python.parent,
        check=errors.SdkError,
        description=f"asking {python} for its ROCm distributions",
    )
    versions: dict[str, str] = json.loads(output)
    return dict(sorted(versions.items()))


def _read_answer(python: Path, env: Mapping[str, str], *question: str) -> str:
    """Return the one line that a command prints."""
    # A folder of its own as current one: the user's could hold something named rocm_sdk.
    output = process.capture_output(
        [python, "-m", "rocm_sdk", *question],
        env=env,
        cwd=python.parent,
        timeout=_QUERY_SECONDS,
        check=errors.SdkError,
        tip=_suggest_repair(),
    )
    lines = output.splitlines()
    if len(lines) != 1 or not lines[0].strip():
        how = (
            "nothing" if not output.strip() else f"{len(lines)} lines where one is expected: {output[:200]!r}"
        )
        raise errors.SdkError(f"`{_format_command(python, *question)}` said {how}", tip=_suggest_repair())
    return lines[0].strip()


def _format_command(python: Path, *question: str) -> str:
    return shell.format_command([python, "-m", "rocm_sdk", *question])


def _suggest_repair() -> str:
    return "run the command yourself to see more; install-rocm installs the ROCm packages again"


SHARED_FOLDER = "rocm"  # the folder of the links, in a work directory


def share_sdk(sdk: RocmSdk, content: str, folder: Path, content_at: Callable[[Path], str]) -> RocmSdk:
    """Return an SDK with the paths that every environment with this content has in common.

    ``content`` is a digest over the files of its packages that compiles read; ``content_at`` gives that of
    the packages in another ``site-packages`` now. The link in ``folder`` stays where it leads as long as that
    has the same content, and is moved to this SDK's otherwise. It leads to the folder around the root:
    programs of ROCm look for each other beside it, some by the text of the path.

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
        raise errors.SdkError(f"{link} cannot be made: {fault.strerror}") from fault
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
