"""Checks of folders: space, permissions, and what file systems and paths cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.pipeline.preflight.subject import Folder, PreflightFinding, Subject
from rocm_wheels.pipeline.summary import human_size

_FULL = 64 << 20  # not even a log and a configure step
_FEW_FILES = 50_000  # a checkout of torch and its build tree have about as many
_MAX_PATH = 260  # Windows, with the end of the string; learn.microsoft.com "Maximum Path Length Limitation"
# Longest path below a source tree while it is built, believed: CMake's object files repeat the source's path
_LONGEST_BELOW = {"pytorch": 180, "triton": 170}
_LONGEST_OF_OTHERS = 140


def longest_path(root: str, project: str) -> int:
    """Return how long the longest path of a build is expected to be, in characters, below ``root``."""
    return len(root) + 1 + _LONGEST_BELOW.get(project, _LONGEST_OF_OTHERS)


def disk(subject: Subject) -> Iterator[PreflightFinding]:
    """What a run is expected to add must fit, summed where folders share a file system."""
    needs: dict[int, dict[str, int]] = {}
    places = {folder.what: folder for folder in subject.folders}
    of_project = {f.what.removeprefix("source tree of "): f for f in subject.folders if f.role == "source"}
    for cost in subject.costs:
        wheel = cost.estimate.wheel
        shares = [(of_project.get(cost.project or "", places.get("work directory")), cost.estimate.disk)]
        shares += [(places.get("output folder"), wheel), (places.get("work directory"), wheel)]
        for folder, size in shares:
            if folder is not None and size:
                steps = needs.setdefault(folder.device, {})
                steps[cost.step] = steps.get(cost.step, 0) + size
    for device, folders in _by_device(subject).items():
        free, said = min(folder.free for folder in folders), _said(folders)
        if free < _FULL:
            yield PreflightFinding("error", f"{said}: the disk is full ({human_size(free)} free)", _tip())
        elif (need := sum(needs.get(device, {}).values())) > free:
            largest = sorted(needs[device].items(), key=lambda item: (-item[1], item[0]))[:3]
            shown = ", ".join(f"{step} {human_size(size)}" for step, size in largest)
            more = f" and {len(needs[device]) - 3} more" if len(needs[device]) > 3 else ""
            yield PreflightFinding(
                "warning",
                f"{said}: {human_size(free)} free, and this run may add {human_size(need)} ({shown}{more})",
                _tip(),
            )
        counted = [folder.free_files for folder in folders if folder.free_files is not None]
        if counted and min(counted) < _FEW_FILES:
            none = min(counted) == 0
            text = f"{said}: the file system has room for {min(counted)} more files"
            yield PreflightFinding("error" if none else "warning", text, _tip())


def access(subject: Subject) -> Iterator[PreflightFinding]:
    """All folders are written to; compilers write to that of temporary files."""
    for folder in subject.folders:
        if folder.role == "temporary" and not folder.exists:
            text = f"temporary files go to {folder.path}, which is not a folder"
            yield PreflightFinding("error", text, "make it, or let TMPDIR name another one")
        elif not folder.writable:
            tip = "make it writable, or choose another folder"
            yield PreflightFinding("error", f"the {folder.what} {folder.path} cannot be written to", tip)


def runs_programs(subject: Subject) -> Iterator[PreflightFinding]:
    """Build environments and configure steps start programs out of their folders."""
    for folder in subject.folders:
        if folder.runs_programs or folder.role == "output":
            continue
        certain = folder.role in {"work", "source"}
        yield PreflightFinding(
            "error" if certain else "warning",
            f"the {folder.what} {folder.path} is on a file system mounted noexec:"
            " programs in it do not start",
            "let TMPDIR name another folder" if folder.role == "temporary" else "choose another folder",
        )


def file_systems(subject: Subject) -> Iterator[PreflightFinding]:
    """Hard links save gigabytes; names that differ in case are two files."""
    for folder in subject.folders:
        if folder.role == "work" and folder.hard_links is False:
            yield PreflightFinding(
                "warning",
                f"the {folder.what} {folder.path} is on a file system without hard links: every build"
                " environment is a whole copy",
                "choose a file system that has them",
            )
        if folder.role == "source" and folder.tells_case is False and subject.platform == "linux":
            yield PreflightFinding(
                "warning",
                f"the {folder.what} {folder.path} is on a file system where case does not count: of two files"
                " one is lost",
                "check out on another file system",
            )


def odd_paths(subject: Subject) -> Iterator[PreflightFinding]:
    """Some characters of a path end what builds make of it."""
    for folder in subject.folders:
        path, said = str(folder.path), f"the {folder.what} {folder.path} has"
        if folder.role not in {"work", "source"}:
            continue
        if folder.role == "work" and ":" in path and subject.platform == "linux":
            text = f"{said} a colon in its path: programs of its build environments are on no PATH"
            yield PreflightFinding("error", text, "choose another folder")
        if ";" in path:
            text = f"{said} a semicolon in its path, where CMake cuts lists"
            yield PreflightFinding("warning", text, "choose another folder")
        if any(letter.isspace() for letter in path):
            text = f"{said} a blank in its path, which not all build files quote"
            yield PreflightFinding("warning", text, "choose a folder without blanks")
    if subject.platform == "windows" and "pytorch_vision" in subject.projects:
        for python in subject.pythons:
            if " " in str(python.path):
                yield PreflightFinding(
                    "warning",
                    f"torchvision does not build with a Python whose path has a blank: {python.path}",
                    "install Python for one user (pytorch/vision#9165)",
                )


def long_paths(subject: Subject) -> Iterator[PreflightFinding]:
    """Windows programs stop at 260 characters, unless the registry and they themselves allow more."""
    if subject.platform != "windows":
        return
    for folder in subject.folders:
        project = folder.what.removeprefix("source tree of ")
        if folder.role != "source" or (longest := longest_path(str(folder.path), project)) < _MAX_PATH:
            continue
        off = "" if subject.long_paths else ", and long paths are switched off"
        yield PreflightFinding(
            "warning",
            f"paths below {folder.path} may have {longest} characters; many programs stop at"
            f" {_MAX_PATH}{off}",
            r"check out to a short path, such as D:\b, or switch LongPathsEnabled on in the registry",
        )


def _by_device(subject: Subject) -> dict[int, list[Folder]]:
    found: dict[int, list[Folder]] = {}
    for folder in subject.folders:
        found.setdefault(folder.device, []).append(folder)
    return found


def _said(folders: list[Folder]) -> str:
    """Name the folders of one file system, not more than three."""
    paths: list[Path] = list(dict.fromkeys(folder.path for folder in folders))
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(str(path) for path in paths[:3]) + more


def _tip() -> str:
    return "`rocm-wheels clean --dry-run` shows what can go from a work directory; or choose another disk"
