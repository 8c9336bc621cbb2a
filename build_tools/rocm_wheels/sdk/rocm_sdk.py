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
_ASK_PROGRAM = """
import importlib.metadata, json, sys, sysconfig
installed, extras = {}, []
for package in importlib.metadata.distributions():
    name = (package.metadata["Name"] or "").lower().replace("_", "-")
    if (name == "rocm" or name.startswith("rocm-sdk-")) and name not in installed:
        installed[name] = package.version
        extras += package.metadata.get_all("Provides-Extra") or [] if name == "rocm" else []
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
tag = "cp%d%d%s" % (*sys.version_info[:2], free)
purelib = sysconfig.get_path("purelib")
print(json.dumps([sys.prefix, purelib, sys.implementation.name, tag, installed, extras]))
"""


@dataclass(frozen=True)
class PythonAnswers:
    """What a Python says of itself, without any command of ROCm.

    ``implementation``: ``cpython``; ``tag``: its ABI (``cp312``, ``cp313t``). ``installed``: ROCm
    distributions → version; ``rocm_extras``: the extras of ``rocm``, in lower case and with dashes.
    """

    prefix: Path
    site_packages: Path
    implementation: str
    tag: str
    installed: Mapping[str, str]
    rocm_extras: tuple[str, ...]


def ask_python(python: Path, env: Mapping[str, str]) -> PythonAnswers:
    """Ask a Python, by one start of it, what it is and which ROCm distributions it has. Raises SdkError."""
    output = process.capture_output(
        [python, "-c", _ASK_PROGRAM],
        env=env,
        cwd=python.parent,
        check=errors.SdkError,
        description=f"asking {python} what it is and which ROCm it has",
    )
    prefix, site_packages, implementation, tag, installed, extras = json.loads(output)
    names = tuple(extra.lower().replace("_", "-") for extra in extras)
    return PythonAnswers(
        Path(prefix), Path(site_packages), implementation, tag, dict(sorted(installed.items())), names
    )


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


def query_sdk(python: Path, env: Mapping[str, str], asked: PythonAnswers | None = None) -> RocmSdk:
    """Ask the SDK installed for ``python``; stderr is not part of any answer.

    ``asked``: what that Python said since its packages were installed. SdkError, naming the command and what
    it said: a failing command, an answer of none or several lines, a path that does not exist, a version that
    is none (PEP 440) or differs from the installed ``rocm``, targets that are not gfx names.
    """
    with ThreadPoolExecutor() as pool:
        version_task = pool.submit(_query_version, python, env)
        targets = pool.submit(_query_targets, python, env)
        # before the other folders: the first such question unpacks the development tree
        root = _query_folder(python, env, "--root")
        cmake = pool.submit(_query_folder, python, env, "--cmake")
        programs = pool.submit(_query_folder, python, env, "--bin")
    version, installed = version_task.result(), (asked or ask_python(python, env)).installed
    if installed.get("rocm") is None:
        raise errors.SdkError(f"no distribution 'rocm' is installed for {python}", tip=_suggest_repair())
    if (rocm := installed["rocm"]) != version:
        raise errors.SdkError(
            f"`{_format_command(python, 'version')}` said {version}, but rocm {rocm} is installed",
            tip="another rocm_sdk is in front of it on the path of this Python; check PYTHONPATH",
        )
    return RocmSdk(version, root, cmake.result(), programs.result(), targets.result(), installed)


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
