"""What is asked of one build: plain values, decided before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.compile import compiler_cache, sdk_tree
from rocm_wheels.core import errors
from rocm_wheels.models import project_names, versions
from rocm_wheels.models.project import Project

_FRONT_END_FILES = {"pep517": ("pyproject.toml", "setup.py"), "setup.py": ("setup.py",)}


@dataclass(frozen=True)
class BuildRequest:
    """One project, one configuration. A relative ``source`` is taken from the current folder.

    ``version`` is the whole version, ``None`` for a project that makes its own from ``suffix``.
    ``triton_requirement`` (``triton==3.7.0+…``) is what torch shall require; ``triton_environment``
    is what the checkout of triton left for its build. ``against``: the versions of the wheels that it is
    built against and that its recipe pins, by project. ``flash_attention`` matters to torch alone.
    ``commit_epoch`` is the date of the source commit in seconds; ``commit`` is the one that the wheel shall
    name, where HEAD is another one. ``torch_line`` (``2.10``) is the series of the torch that is built, or
    built against. ``offline``: nothing may be downloaded. ``set_env`` goes over everything else.
    ``editable``: the wheel holds no code, it leads to the source tree. ``source_names``: a digest of which
    files are in the source; CMake looks for them again where it is another one.
    """

    project: Project
    source: Path
    platform: project_names.Platform
    sdk: sdk_tree.SdkTree
    targets: tuple[str, ...]
    version: str | None
    suffix: str
    build_number: str = "1"
    triton_requirement: str | None = None
    triton_environment: Mapping[str, str] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)
    flash_attention: bool | None = None
    commit_epoch: int | None = None
    torch_line: str | None = None
    offline: bool = False
    commit: str | None = None
    cache: compiler_cache.CompilerCache | None = None
    set_env: Mapping[str, str] = field(default_factory=dict)
    editable: bool = False
    source_names: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.source.absolute())
        if not self.targets:
            raise errors.UsageError(f"{self.project.name}: no GPU target to compile for")
        if not self.build_number.isdecimal() or int(self.build_number) < 1:
            raise errors.UsageError(
                f"--pytorch-build-number {self.build_number} is not a number", tip="count from 1"
            )
        if self.triton_requirement is not None:
            versions.check_exact_requirement(self.triton_requirement)
        if self.platform not in self.project.build.platforms:
            raise errors.UsageError(f"{self.project.name} is not built on {self.platform}")

    @property
    def recipe_variables(self) -> dict[str, str]:
        """The variables that the recipe sets for this build, as they stand there."""
        fixed = self.project.get_environment(self.platform, self.torch_line)
        return {**fixed, **(self.project.offline_environment if self.offline else {})}

    @property
    def rocm_requirement(self) -> str | None:
        """What the wheel requires of ROCm, where its recipe says so; nothing of an installed ROCm."""
        if self.sdk.is_installed or not self.project.checks.requires_rocm:
            return None
        return versions.make_rocm_requirement(self.sdk.version)

    @property
    def folder(self) -> Path:
        """The folder that the front end runs in: the first of the recipe's that has its file."""
        names = _FRONT_END_FILES[self.project.build.front_end]
        candidates = [self.source / folder for folder in self.project.build.folders]
        for candidate in candidates:
            if any((candidate / name).is_file() for name in names):
                return candidate
        raise errors.BuildError(
            f"{self.project.name}: no {' or '.join(names)} in {' or '.join(map(str, candidates))}",
            tip="is this the right folder, and is its checkout complete?",
        )


def uses_scikit_build_core(folder: Path) -> bool:
    """Tell whether a tree's back end is scikit-build-core, also behind a wrapper of the tree's own."""
    path = folder / "pyproject.toml"
    if not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8").splitlines()
    return any(re.search(r"\bscikit_build_core\.build\b", line.split("#", 1)[0]) for line in lines)
