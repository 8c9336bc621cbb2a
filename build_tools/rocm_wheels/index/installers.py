"""What pip and uv take from an index and a folder of new wheels: both run for real, nothing is installed."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels import process
from rocm_wheels.errors import RocmWheelsError, UsageError

_GLIBC = range(39, 16, -1)  # of manylinux tags: the machine that we ask for is a new one
_OLDER = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")
PLATFORMS = {
    "linux": (*(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC), *_OLDER),
    "windows": ("win_amd64",),
}
_UV_PLATFORMS = {"linux": f"x86_64-manylinux_2_{_GLIBC[0]}", "windows": "x86_64-pc-windows-msvc"}
TOOLS = ("pip", "uv")


@dataclass(frozen=True)
class Place:
    """Where both look: an index, a folder of new wheels; with ``deps`` requirements of what they take too."""

    index_url: str
    new: Path
    platform: str
    pre: bool = False
    deps: bool = False


@dataclass(frozen=True)
class Taken:
    """What a tool takes: versions by normalized name; or why it takes nothing."""

    versions: Mapping[str, Version]
    failure: str = ""


def tags_of(python: str, platform: str) -> frozenset[Tag]:
    """Return the tags of wheels that a CPython can use."""
    version = python_version(python)
    plain = f"cp{version[0]}{version[1]}"
    platforms = PLATFORMS[platform]
    return frozenset(
        (*cpython_tags(version, platforms=platforms), *compatible_tags(version, plain, platforms))
    )


def python_version(python: str) -> tuple[int, int]:
    """Read ``3.12``; UsageError for anything else."""
    found = re.fullmatch(r"3\.([0-9]{1,2})", python)
    if not found:
        raise UsageError(
            f"--python {python!r} is not a Python that both tools can resolve for", tip="--python 3.12"
        )
    return 3, int(found[1])


def requirement_name(requirement: str) -> str:
    """Return the normalized project of a requirement; UsageError when it is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement as cause:
        raise UsageError(f"{requirement!r} is not a requirement") from cause


def ask(tool: str, requirements: Sequence[str], python: str, place: Place, env: Mapping[str, str]) -> Taken:
    """Ask ``pip`` or ``uv`` what they would take on a machine with this Python."""
    asking = _ask_pip if tool == "pip" else _ask_uv
    try:
        return asking(requirements, python, place, env)
    except RocmWheelsError as failure:
        return Taken({}, failure=str(failure))


def _ask_pip(requirements: Sequence[str], python: str, place: Place, env: Mapping[str, str]) -> Taken:
    has_pip = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip"] if has_pip else [_uv(), "tool", "run", "pip"]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        report = Path(folder) / "report.json"
        words = [*pip, "--isolated", "install", "--dry-run", "--quiet", "--report", str(report)]
        words += [
            "--ignore-installed",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        words += ["--python-version", python, "--implementation", "cp"]
        words += [word for platform in PLATFORMS[place.platform] for word in ("--platform", platform)]
        words += ["--index-url", place.index_url, "--find-links", str(place.new)]
        words += ["--pre"] * place.pre + ["--no-deps"] * (not place.deps)
        process.capture([*words, *requirements], env=_for_pip(env), what="pip install --dry-run")
        chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    return Taken(
        {canonicalize_name(one["metadata"]["name"]): Version(one["metadata"]["version"]) for one in chosen}
    )


def _ask_uv(requirements: Sequence[str], python: str, place: Place, env: Mapping[str, str]) -> Taken:
    words = [_uv(), "pip", "compile", "-", "--no-config", "--no-cache", "--no-header", "--no-annotate"]
    words += [
        "--no-progress",
        "--no-python-downloads",
        "--python",
        sys.executable,
        "--python-version",
        python,
    ]
    words += ["--python-platform", _UV_PLATFORMS[place.platform], "--only-binary", ":all:"]
    words += ["--default-index", place.index_url, "--find-links", str(place.new)]
    words += ["--prerelease", "allow"] * place.pre + ["--no-deps"] * (not place.deps)
    asked = "".join(f"{requirement}\n" for requirement in requirements)
    clean = {key: value for key, value in env.items() if not key.startswith("UV_")}
    said = process.capture(words, env=_direct(clean), stdin=asked.encode(), what="uv pip compile")
    pinned = [line.partition("==") for line in said.splitlines() if "==" in line]
    return Taken({canonicalize_name(name): Version(version.split()[0]) for name, _, version in pinned})


def _uv() -> str:
    from uv import find_uv_bin

    return find_uv_bin()


def _for_pip(env: Mapping[str, str]) -> dict[str, str]:
    """Without the user's options for pip (``--isolated`` leaves those of files out); certificates stay."""
    kept = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY")
    return _direct({key: value for key, value in env.items() if not key.startswith("PIP_") or key in kept})


def _direct(env: Mapping[str, str]) -> dict[str, str]:
    """An index in a folder is served on this machine: that is no matter for a proxy."""
    passing = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), "127.0.0.1"]))
    return {**env, "NO_PROXY": passing, "no_proxy": passing}
