"""Ask pip and uv what they would install from an index and a folder of new wheels.

Both run for real; nothing is installed.
"""

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

from rocm_wheels.core import RocmWheelsError, UsageError, capture_output, find_uv

_GLIBC_MINORS = range(39, 16, -1)  # of manylinux tags: the machine that we ask for is a new one
_OLDER_TAGS = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")
PLATFORM_TAGS = {
    "linux": (*(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS), *_OLDER_TAGS),
    "windows": ("win_amd64",),
}
_UV_PLATFORMS = {"linux": f"x86_64-manylinux_2_{_GLIBC_MINORS[0]}", "windows": "x86_64-pc-windows-msvc"}
INSTALLERS = ("pip", "uv")


@dataclass(frozen=True)
class ResolveSource:
    """Where both look: an index, a folder of new wheels; with ``deps`` requirements of what they take too."""

    index_url: str
    new: Path
    platform: str
    pre: bool = False
    deps: bool = False


@dataclass(frozen=True)
class ResolvedVersions:
    """What a tool takes: versions by normalized name; or why it takes nothing."""

    versions: Mapping[str, Version]
    failure: str = ""


def tags_for_python(python: str, platform: str) -> frozenset[Tag]:
    """Return the tags of wheels that a CPython can use."""
    version = parse_python_version(python)
    interpreter = f"cp{version[0]}{version[1]}"
    platforms = PLATFORM_TAGS[platform]
    return frozenset(
        (*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms))
    )


def parse_python_version(python: str) -> tuple[int, int]:
    """Read ``3.12``; UsageError for anything else."""
    match = re.fullmatch(r"3\.([0-9]{1,2})", python)
    if not match:
        raise UsageError(
            f"--python {python!r} is not a Python that both tools can resolve for", tip="--python 3.12"
        )
    return 3, int(match[1])


def parse_requirement_name(requirement: str) -> str:
    """Return the normalized project of a requirement; UsageError when it is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement as cause:
        raise UsageError(f"{requirement!r} is not a requirement") from cause


def ask_installer(
    tool: str, requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    """Ask ``pip`` or ``uv`` what they would take on a machine with this Python."""
    ask_tool = _ask_pip if tool == "pip" else _ask_uv
    try:
        return ask_tool(requirements, python, source, env)
    except RocmWheelsError as failure:
        return ResolvedVersions({}, failure=str(failure))


def _ask_pip(
    requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    has_pip = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip"] if has_pip else [str(find_uv()), "tool", "run", "pip"]
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
        words += [word for platform in PLATFORM_TAGS[source.platform] for word in ("--platform", platform)]
        words += ["--index-url", source.index_url, "--find-links", str(source.new)]
        words += ["--pre"] * source.pre + ["--no-deps"] * (not source.deps)
        capture_output(
            [*words, *requirements], env=_make_pip_environment(env), description="pip install --dry-run"
        )
        chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    return ResolvedVersions(
        {canonicalize_name(item["metadata"]["name"]): Version(item["metadata"]["version"]) for item in chosen}
    )


def _ask_uv(
    requirements: Sequence[str], python: str, source: ResolveSource, env: Mapping[str, str]
) -> ResolvedVersions:
    words = [
        str(find_uv()),
        "pip",
        "compile",
        "-",
        "--no-config",
        "--no-cache",
        "--no-header",
        "--no-annotate",
    ]
    words += [
        "--no-progress",
        "--no-python-downloads",
        "--python",
        sys.executable,
        "--python-version",
        python,
    ]
    words += ["--python-platform", _UV_PLATFORMS[source.platform], "--only-binary", ":all:"]
    words += ["--default-index", source.index_url, "--find-links", str(source.new)]
    words += ["--prerelease", "allow"] * source.pre + ["--no-deps"] * (not source.deps)
    requirement_lines = "".join(f"{requirement}\n" for requirement in requirements)
    clean = {key: value for key, value in env.items() if not key.startswith("UV_")}
    output = capture_output(
        words, env=_bypass_proxy(clean), stdin=requirement_lines.encode(), description="uv pip compile"
    )
    pinned = [line.partition("==") for line in output.splitlines() if "==" in line]
    return ResolvedVersions(
        {canonicalize_name(name): Version(version.split()[0]) for name, _, version in pinned}
    )


def _make_pip_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Without the user's options for pip (``--isolated`` leaves those of files out); certificates stay."""
    kept_variables = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY")
    return _bypass_proxy(
        {key: value for key, value in env.items() if not key.startswith("PIP_") or key in kept_variables}
    )


def _bypass_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """An index in a folder is served on this machine: that is no matter for a proxy."""
    passing = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), "127.0.0.1"]))
    return {**env, "NO_PROXY": passing, "no_proxy": passing}
