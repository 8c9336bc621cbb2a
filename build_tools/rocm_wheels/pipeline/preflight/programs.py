"""Checks of programs: is what a build starts there, does it run, is it new enough?"""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.pipeline.preflight.subject import PreflightFinding, PreflightSubject
from rocm_wheels.sources.git import OLDEST_GIT as OLDEST_GIT

# ROCm/TheRock external-builds/pytorch/README.md: earlier ones loop, or lose long command lines of links
_NINJA_ON_WINDOWS = (1, 13, 1)
_INSTALL_TIPS = {
    "git": "install git",
    "C compiler": "install one (gcc, clang), or let CC name it",
    "C++ compiler": "install one (g++, clang++), or let CXX name it",
}


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_programs(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Programs that every build starts must be there and run."""
    for program in subject.programs:
        tip = _INSTALL_TIPS.get(program.name, f"install {program.name} again")
        if program.path is None:
            yield PreflightFinding("error", f"there is no {program.name} on the PATH", tip)
        elif program.fault:
            yield PreflightFinding("error", f"{program.path} does not work: {program.fault}", tip)


def check_git(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Git must know what it is asked for."""
    for program in subject.programs:
        if program.name == "git" and program.version and program.version[:2] < OLDEST_GIT:
            text = (
                f"git {_format_version(program.version)} is too old: {_format_version(OLDEST_GIT)} is needed"
            )
            yield PreflightFinding("error", text, "install a newer git")


def check_ninja(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Flash attention on Windows needs a ninja that can."""
    if subject.platform != "windows" or not subject.flash_attention or "pytorch" not in subject.projects:
        return
    for program in subject.programs:
        if program.name == "ninja" and program.version and program.version < _NINJA_ON_WINDOWS:
            yield PreflightFinding(
                "warning",
                f"ninja {_format_version(program.version)} does not get through flash attention on Windows:"
                f" {_format_version(_NINJA_ON_WINDOWS)} does",
                f"put ninja {_format_version(_NINJA_ON_WINDOWS)} on the PATH, or --no-enable-pytorch-flash-attention",
            )


def check_released_pythons(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """A torch is built with the Pythons that its release line was released for."""
    for message in subject.unreleased:
        yield PreflightFinding("warning", message, "`rocm-wheels lines` has the Pythons of each line")


def check_python_headers(subject: PreflightSubject) -> Iterator[PreflightFinding]:
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
