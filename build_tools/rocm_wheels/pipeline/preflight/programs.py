"""Checks of programs: is what a build starts there, does it run, is it new enough?"""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.pipeline.preflight.subject import PreflightFinding, Subject
from rocm_wheels.sources.git import OLDEST as OLDEST_GIT

# ROCm/TheRock external-builds/pytorch/README.md: earlier ones loop, or lose long command lines of links
_NINJA_ON_WINDOWS = (1, 13, 1)
_TIPS = {
    "git": "install git",
    "C compiler": "install one (gcc, clang), or let CC name it",
    "C++ compiler": "install one (g++, clang++), or let CXX name it",
}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def programs(subject: Subject) -> Iterator[PreflightFinding]:
    """Programs that every build starts must be there and run."""
    for program in subject.programs:
        tip = _TIPS.get(program.name, f"install {program.name} again")
        if program.path is None:
            yield PreflightFinding("error", f"there is no {program.name} on the PATH", tip)
        elif program.fault:
            yield PreflightFinding("error", f"{program.path} does not work: {program.fault}", tip)


def old_git(subject: Subject) -> Iterator[PreflightFinding]:
    """Git must know what it is asked for."""
    for program in subject.programs:
        if program.name == "git" and program.version and program.version[:2] < OLDEST_GIT:
            text = f"git {_dotted(program.version)} is too old: {_dotted(OLDEST_GIT)} is needed"
            yield PreflightFinding("error", text, "install a newer git")


def old_ninja(subject: Subject) -> Iterator[PreflightFinding]:
    """Flash attention on Windows needs a ninja that can."""
    if subject.platform != "windows" or not subject.flash_attention or "pytorch" not in subject.projects:
        return
    for program in subject.programs:
        if program.name == "ninja" and program.version and program.version < _NINJA_ON_WINDOWS:
            yield PreflightFinding(
                "warning",
                f"ninja {_dotted(program.version)} does not get through flash attention on Windows:"
                f" {_dotted(_NINJA_ON_WINDOWS)} does",
                f"put ninja {_dotted(_NINJA_ON_WINDOWS)} on the PATH, or --no-enable-pytorch-flash-attention",
            )


def released_pythons(subject: Subject) -> Iterator[PreflightFinding]:
    """A torch is built with the Pythons that its release line was released for."""
    for said in subject.unreleased:
        yield PreflightFinding("warning", said, "`rocm-wheels lines` has the Pythons of each line")


def python_headers(subject: Subject) -> Iterator[PreflightFinding]:
    """Extension modules are compiled against Python.h."""
    for python in subject.pythons:
        if python.fault:
            yield PreflightFinding("warning", python.fault, "take another Python")
        elif python.folder is None:
            yield PreflightFinding(
                "error",
                f"{python.python} has no Python.h",
                "install its headers (python3-dev, python3-devel), or take another Python",
            )
