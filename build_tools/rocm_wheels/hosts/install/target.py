"""The environment that packages are installed into: which Python, what it may use, what is in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from rocm_wheels.errors import HostError, UsageError
from rocm_wheels.hosts.installed.distributions import InstalledDistribution, read_distributions
from rocm_wheels.hosts.installed.environment import PythonEnvironment, find_active_python, read_environment
from rocm_wheels.process import capture_output

LOCK_NAME = ".rocm-wheels"  # folder among the packages: held while somebody installs into an environment
_ANY_PROJECT = re.compile(r".+")
# PEP 668: an environment is managed when the file is beside the standard library and it is not a virtual one
_TARGET_QUERY = """
import json, os, platform, sys, sysconfig
try:
    from importlib.util import find_spec
    pip = find_spec("pip") is not None
except ImportError:
    pip = False
v = sys.implementation.version
full = "%d.%d.%d" % v[:3] + ("" if v[3] == "final" else v[3][0] + str(v[4]))
print(json.dumps({
    "pip": pip, "purelib": sysconfig.get_path("purelib"), "platlib": sysconfig.get_path("platlib"),
    "managed": sys.prefix == sys.base_prefix
    and os.path.isfile(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")),
    "markers": {
        "implementation_name": sys.implementation.name, "implementation_version": full,
        "os_name": os.name, "platform_machine": platform.machine(), "platform_release": platform.release(),
        "platform_system": platform.system(), "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "platform_python_implementation": platform.python_implementation(),
        "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform,
    },
}))
"""


@dataclass(frozen=True)
class InstallTarget:
    """An environment: ``markers`` are those of PEP 508, ``package_folders`` the folders that installers write to.

    ``has_pip``: it has a pip of its own. ``base_python``: the Python that it is to be made of; None where it is
    there.
    """

    environment: PythonEnvironment
    markers: Mapping[str, str]
    package_folders: tuple[Path, ...]
    has_pip: bool
    base_python: Path | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.environment.python

    @property
    def runnable_python(self) -> Path:
        """An interpreter of it that can be started now."""
        return self.base_python or self.python

    @property
    def version(self) -> Version:
        """The version of the interpreter."""
        return Version(self.markers["python_full_version"].rstrip("+"))

    def __str__(self) -> str:
        new = f", new, of {self.base_python}" if self.base_python else ""
        return f"{self.environment.prefix} (Python {self.environment.version}{new})"


def inspect_target(python: Path | None, env: Mapping[str, str], *, changes: bool = True) -> InstallTarget:
    """Ask an environment what it is.

    UsageError for no Python that runs or that no torch is built for; HostError, where it ``changes``, for one
    that belongs to the system (PEP 668) or cannot be written to.
    """
    chosen_python = find_active_python(python, env)
    clean = {name: value for name, value in env.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    environment = read_environment(chosen_python, clean)
    answer = _query_python(environment.python, clean)
    if environment.implementation != "cpython":
        raise UsageError(
            f"{environment.python} is {environment.implementation}; wheels of torch are built for CPython",
            tip="name another one with --target-python",
        )
    folders = tuple(dict.fromkeys(Path(answer[name]) for name in ("purelib", "platlib")))
    if changes and answer["managed"]:
        raise HostError(
            f"{environment.python} belongs to the system, which forbids installing into it (PEP 668)",
            tip="install into an environment of your own: --venv .venv makes one",
        )
    for folder in folders if changes else ():
        require_writable_folder(folder)
    return InstallTarget(environment, answer["markers"], folders, answer["pip"])


def list_installed(target: InstallTarget) -> dict[str, InstalledDistribution]:
    """Return what is installed in an environment, by normalized name: of two the one that is imported."""
    distributions: dict[str, InstalledDistribution] = {}
    for distribution in read_distributions(target.environment.path, _ANY_PROJECT)[0]:
        distributions.setdefault(distribution.name, distribution)
    return distributions


def _query_python(python: Path, env: Mapping[str, str]) -> dict[str, Any]:
    output = capture_output(
        [python, "-I", "-c", _TARGET_QUERY],
        env=env,
        timeout=60,
        check=UsageError,
        description=f"asking {python} what it is",
        tip="is it a Python 3 that runs on this machine?",
    )
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError as cause:
        raise UsageError(f"{python}, asked what it is, said {output[:200]!r}") from cause
    return answer


def require_writable_folder(folder: Path) -> None:
    """Raise HostError when this user cannot write to a folder, or make it."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        raise HostError(
            f"{folder} cannot be written by this user",
            tip="install into an environment of your own: --venv .venv makes one",
        )
