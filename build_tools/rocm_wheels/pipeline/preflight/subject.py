"""What preflight checks look at, and what they say: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocm_wheels.machine import MachineResources
from rocm_wheels.model.project import BuildDownload, Platform
from rocm_wheels.pipeline.estimates import Estimate

PreflightSeverity = Literal["error", "warning"]
FolderRole = Literal["work", "output", "source", "temporary"]


@dataclass(frozen=True)
class PreflightFinding:
    """What one check found. ``check`` is filled in by whoever runs it."""

    severity: PreflightSeverity
    text: str
    tip: str
    check: str = ""


@dataclass(frozen=True)
class PreflightFolder:
    """A folder of a run, as it is or, where it is not there yet, as the nearest one above it is.

    ``device`` is the number of its file system, ``free`` its bytes, ``free_files`` its inodes (``None``: it
    does not count them). ``hard_links`` and ``tells_case``: ``None`` where that was not tried.
    """

    role: FolderRole
    description: str  # in words
    path: Path
    device: int
    free: int
    free_files: int | None = None
    exists: bool = True
    writable: bool = True
    runs_programs: bool = True
    hard_links: bool | None = None
    tells_case: bool | None = None


@dataclass(frozen=True)
class BuildProgram:
    """A program that a build starts. ``fault``: why it cannot be used, in the words of who said it."""

    name: str
    path: Path | None
    version: tuple[int, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class StepCost:
    """A step that will run: its id, its project (where it has one), what it is expected to take."""

    step: str
    project: str | None
    estimate: Estimate


@dataclass(frozen=True)
class PythonHeaders:
    """An interpreter in words, its file, and the folder of its Python.h (``None``: it has none).

    ``fault``: what is wrong with it, in words.
    """

    python: str
    path: Path
    folder: Path | None
    fault: str = ""


@dataclass(frozen=True)
class BuildFetch:
    """What the build of a project downloads, and the folder that its variable names instead.

    ``folder``: ``None`` where the variable is not set; ``lacks``: what is not in it.
    """

    project: str
    download: BuildDownload
    folder: Path | None = None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreflightSubject:
    """Everything that checks look at: what a plan says, then what ``look`` finds on the machine.

    ``check_sdk_targets`` is ``None`` while it is not known; ``sdk_lacks``, ``unreleased``, ``foreign``: sentences.
    ``newest`` is the newest time of the sources and their commits; ``check_long_paths`` what the registry of
    Windows says (``None`` elsewhere); ``check_open_files`` the limit of open files (``None``: there is none).
    """

    platform: Platform
    machine: MachineResources
    projects: tuple[str, ...]
    costs: tuple[StepCost, ...] = ()  # of the steps that will run
    pythons: tuple[PythonHeaders, ...] = ()
    targets: tuple[str, ...] = ()
    sdk_targets: tuple[str, ...] | None = None
    unreleased: tuple[str, ...] = ()
    flash_attention: bool = False
    aotriton: str | None = None
    jobs: int | None = None  # that the user asked for
    folders: tuple[PreflightFolder, ...] = ()
    programs: tuple[BuildProgram, ...] = ()
    sdk_lacks: tuple[str, ...] = ()
    fetches: tuple[BuildFetch, ...] = ()
    offline: bool = False
    foreign: tuple[str, ...] = ()
    now: float = 0.0
    newest: float | None = None
    long_paths: bool | None = None
    open_files: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # LANG and the like
