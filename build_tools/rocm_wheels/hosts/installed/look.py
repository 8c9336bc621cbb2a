"""Look at an environment: every package that belongs to torch or to ROCm, and what it was built for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.hosts.installed.builds import Build, Kind, build_of, package_of
from rocm_wheels.hosts.installed.distributions import Distribution, read_distributions
from rocm_wheels.hosts.installed.environment import Environment, read_environment

_BUILT = re.compile(r"torch|torchvision|torchaudio|torchao|torchcodec|apex|.*triton.*|flash-attn|xformers")
_PLAIN = Build("unknown")


@dataclass(frozen=True)
class Package:
    """An installed distribution, the folder that is imported (None: it is not there), and its build.

    ``shadowed`` says that a folder further in front on the path has the same distribution: that one is
    imported.
    """

    distribution: Distribution
    folder: Path | None
    build: Build
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
    def kind(self) -> Kind:
        """Return what it was built for."""
        return self.build.kind


@dataclass(frozen=True)
class InstalledSet:
    """What an environment holds of torch and ROCm, in the order of the path; ``faults``: what could not be
    read."""

    environment: Environment
    packages: tuple[Package, ...]
    faults: tuple[str, ...] = ()

    @property
    def site_packages(self) -> Path:
        """Return the folder that installers put packages into."""
        return self.environment.site_packages

    def get(self, name: str) -> Package | None:
        """Return the distribution that is imported under a normalised name, ``None`` when there is none."""
        return next((one for one in self.packages if one.name == name), None)

    @property
    def torch(self) -> Package | None:
        """Return torch."""
        return self.get("torch")

    @property
    def tritons(self) -> tuple[Package, ...]:
        """Return every distribution that has a module ``triton``: one is right, two overwrite each other."""
        return tuple(one for one in self.packages if "triton" in one.name and not one.shadowed)

    @property
    def rocm_version(self) -> str | None:
        """Return the version of the ROCm packages in the environment, ``None`` without."""
        found = self.get("rocm-sdk-core") or self.get("rocm")
        return found.version if found else None


def look_at_packages(python: Path | None, env: Mapping[str, str]) -> InstalledSet:
    """Read what is installed for ``python``: a Python or a virtual environment, ``None`` for the running one.

    Nothing is imported. UsageError when ``python`` is no Python that runs.
    """
    return read_installed(read_environment(python, env))


def read_installed(environment: Environment) -> InstalledSet:
    """Read what is installed in the folders of an environment."""
    distributions, faults = read_distributions(environment.path)
    packages = []
    seen: set[str] = set()
    for one in distributions:
        build = build_of(one) if _BUILT.fullmatch(one.name) else _PLAIN
        packages.append(Package(one, package_of(one), build, shadowed=one.name in seen))
        seen.add(one.name)
    return InstalledSet(environment, tuple(packages), faults)
