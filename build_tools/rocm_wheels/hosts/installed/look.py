"""Look at an environment: every package that belongs to torch or to ROCm, and what it was built for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.hosts.installed.builds import PackageBuild, BuildKind, detect_build, find_package_folder
from rocm_wheels.hosts.installed.distributions import InstalledDistribution, read_distributions
from rocm_wheels.hosts.installed.environment import PythonEnvironment, read_environment

_BUILT_PROJECTS = re.compile(
    r"torch|torchvision|torchaudio|torchao|torchcodec|apex|.*triton.*|flash-attn|xformers"
)
_UNKNOWN_BUILD = PackageBuild("unknown")


@dataclass(frozen=True)
class InstalledPackage:
    """An installed distribution, the folder that is imported (None: it is not there), and its build.

    ``shadowed`` says that a folder further in front on the path has the same distribution: that one is
    imported.
    """

    distribution: InstalledDistribution
    folder: Path | None
    build: PackageBuild
    shadowed: bool = False

    @property
    def name(self) -> str:
        """Return the normalised name."""
        return self.distribution.name

    @property
    def version(self) -> str:
        """Return the version as it is written."""
        return self.distribution.version

    @property
    def kind(self) -> BuildKind:
        """Return what it was built for."""
        return self.build.kind


@dataclass(frozen=True)
class InstalledSet:
    """What an environment holds of torch and ROCm, in the order of the path; ``faults``: what could not be
    read."""

    environment: PythonEnvironment
    packages: tuple[InstalledPackage, ...]
    faults: tuple[str, ...] = ()

    @property
    def site_packages(self) -> Path:
        """Return the folder that installers put packages into."""
        return self.environment.site_packages

    def get(self, name: str) -> InstalledPackage | None:
        """Return the distribution that is imported under a normalised name, ``None`` when there is none."""
        return next((package for package in self.packages if package.name == name), None)

    @property
    def torch(self) -> InstalledPackage | None:
        """Return torch."""
        return self.get("torch")

    @property
    def tritons(self) -> tuple[InstalledPackage, ...]:
        """Return every distribution that has a module ``triton``: one is right, two overwrite each other."""
        return tuple(
            package for package in self.packages if "triton" in package.name and not package.shadowed
        )

    @property
    def rocm_version(self) -> str | None:
        """Return the version of the ROCm packages in the environment, ``None`` without."""
        package = self.get("rocm-sdk-core") or self.get("rocm")
        return package.version if package else None


def read_installed_packages(python: Path | None, env: Mapping[str, str]) -> InstalledSet:
    """Read what is installed for ``python``: a Python or a virtual environment, ``None`` for the running one.

    Nothing is imported. UsageError when ``python`` is no Python that runs.
    """
    return read_environment_packages(read_environment(python, env))


def read_environment_packages(environment: PythonEnvironment) -> InstalledSet:
    """Read what is installed in the folders of an environment."""
    distributions, faults = read_distributions(environment.path)
    packages = []
    names: set[str] = set()
    for distribution in distributions:
        build = detect_build(distribution) if _BUILT_PROJECTS.fullmatch(distribution.name) else _UNKNOWN_BUILD
        packages.append(
            InstalledPackage(
                distribution, find_package_folder(distribution), build, shadowed=distribution.name in names
            )
        )
        names.add(distribution.name)
    return InstalledSet(environment, tuple(packages), faults)
