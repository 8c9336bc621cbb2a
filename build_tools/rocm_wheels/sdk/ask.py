"""Ask an installed ROCm what it is and where: each question once, no answer taken on trust."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import SdkError
from rocm_wheels.process import capture
from rocm_wheels.shell import shell_line

_TARGET = re.compile(r"gfx[0-9a-f]{3,5}(?:-generic)?")
_SECONDS = 1800.0  # the first question unpacks the development tree, gigabytes
_INSTALLED = """
import importlib.metadata, json
found = [(d.name.lower().replace("_", "-"), d.version) for d in importlib.metadata.distributions()]
print(json.dumps({n: v for n, v in reversed(found) if n == "rocm" or n.startswith("rocm-sdk-")}))
"""


@dataclass(frozen=True)
class RocmSdk:
    """What an SDK says about itself; the folders exist. ``installed``: ROCm distributions → version."""

    version: str
    root: Path
    cmake: Path
    bin: Path
    targets: tuple[str, ...]
    installed: Mapping[str, str]


def ask(python: Path, env: Mapping[str, str]) -> RocmSdk:
    """Ask the SDK installed for ``python``; stderr is not part of any answer.

    SdkError, naming the command and what it said: a failing command, an answer of none or
    several lines, a path that does not exist, a version that is none (PEP 440) or differs from
    the installed ``rocm``, targets that are not gfx names.
    """
    version = _version(python, env)
    installed = _installed(python, env)
    if installed.get("rocm") is None:
        raise SdkError(f"no distribution 'rocm' is installed for {python}", tip=_tip())
    if installed["rocm"] != version:
        raise SdkError(
            f"`{_line(python, 'version')}` said {version}, but rocm {installed['rocm']} is installed",
            tip="another rocm_sdk is in front of it on the path of this Python; check PYTHONPATH",
        )
    root = _folder(python, env, "--root")  # alone: the first such question unpacks the development tree
    with ThreadPoolExecutor() as pool:
        cmake = pool.submit(_folder, python, env, "--cmake")
        programs = pool.submit(_folder, python, env, "--bin")
        targets = pool.submit(_targets, python, env)
    return RocmSdk(
        version=version,
        root=root,
        cmake=cmake.result(),
        bin=programs.result(),
        targets=targets.result(),
        installed=installed,
    )


def _version(python: Path, env: Mapping[str, str]) -> str:
    from packaging.version import InvalidVersion, Version

    said = _answer(python, env, "version")
    try:
        return str(Version(said))
    except InvalidVersion as cause:
        raise SdkError(
            f"`{_line(python, 'version')}` said {said!r}, which is not a version (PEP 440)", tip=_tip()
        ) from cause


def _folder(python: Path, env: Mapping[str, str], option: str) -> Path:
    said = _answer(python, env, "path", option)
    path = Path(said)
    if not path.is_absolute() or not path.is_dir():
        raise SdkError(
            f"`{_line(python, 'path', option)}` said {said!r}, which is not an existing folder",
            tip="run it yourself; rocm-sdk-devel may be damaged: install it again",
        )
    return path


def _targets(python: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    said = _answer(python, env, "targets")
    targets = tuple(word for word in re.split(r"[;,\s]+", said) if word)
    strange = [target for target in targets if not _TARGET.fullmatch(target)]
    if strange or not targets:
        raise SdkError(
            f"`{_line(python, 'targets')}` said {said!r}, where gfx targets are expected",
            tip=_tip(),
        )
    return targets


def _installed(python: Path, env: Mapping[str, str]) -> dict[str, str]:
    said = capture(
        [python, "-c", _INSTALLED],
        env=env,
        cwd=python.parent,
        check=SdkError,
        what=f"asking {python} for its ROCm distributions",
    )
    found: dict[str, str] = json.loads(said)
    return dict(sorted(found.items()))


def _answer(python: Path, env: Mapping[str, str], *question: str) -> str:
    """Return the one line that a command prints."""
    # A folder of its own as current one: the user's could hold something named rocm_sdk.
    said = capture(
        [python, "-m", "rocm_sdk", *question],
        env=env,
        cwd=python.parent,
        timeout=_SECONDS,
        check=SdkError,
        tip=_tip(),
    )
    lines = said.splitlines()
    if len(lines) != 1 or not lines[0].strip():
        how = "nothing" if not said.strip() else f"{len(lines)} lines where one is expected: {said[:200]!r}"
        raise SdkError(f"`{_line(python, *question)}` said {how}", tip=_tip())
    return lines[0].strip()


def _line(python: Path, *question: str) -> str:
    return shell_line([python, "-m", "rocm_sdk", *question])


def _tip() -> str:
    return "run the command yourself to see more; install-rocm makes the ROCm packages anew"
