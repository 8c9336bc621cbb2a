"""Checks of folders: space, permissions, and what file systems and paths cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.pipeline.preflight.subject import PreflightFolder, PreflightFinding, PreflightSubject
from rocm_wheels.pipeline.summary import format_size

_FULL_DISK_BYTES = 64 << 20  # not even a log and a configure step
_FEW_FILES = 50_000  # a checkout of torch and its build tree have about as many
_MAX_PATH = 260  # Windows, with the end of the string; learn.microsoft.com "Maximum Path Length Limitation"
# Longest path below a source tree while it is built, believed: CMake's object files repeat the source's path
_LONGEST_BELOW = {"pytorch": 180, "triton": 170}
_LONGEST_OF_OTHERS = 140


def estimate_longest_path(root: str, project: str) -> int:
    """Return how long the longest path of a build is expected to be, in characters, below ``root``."""
    return len(root) + 1 + _LONGEST_BELOW.get(project, _LONGEST_OF_OTHERS)


def check_disk_space(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """What a run is expected to add must fit, summed where folders share a file system."""
    needs: dict[int, dict[str, int]] = {}
    folders_by_name = {folder.description: folder for folder in subject.folders}
    of_project = {
        f.description.removeprefix("source tree of "): f for f in subject.folders if f.role == "source"
    }
    for cost in subject.costs:
        wheel = cost.estimate.wheel
        shares = [
            (of_project.get(cost.project or "", folders_by_name.get("work directory")), cost.estimate.disk)
        ]
        shares += [
            (folders_by_name.get("output folder"), wheel),
            (folders_by_name.get("work directory"), wheel),
        ]
        for folder, size in shares:
            if folder is not None and size:
                steps = needs.setdefault(folder.device, {})
                steps[cost.step] = steps.get(cost.step, 0) + size
    for device, folders in _group_by_device(subject).items():
        free, folder_names = min(folder.free for folder in folders), _name_folders(folders)
        if free < _FULL_DISK_BYTES:
            yield PreflightFinding(
                "error", f"{folder_names}: the disk is full ({format_size(free)} free)", _disk_space_tip()
            )
        elif (need := sum(needs.get(device, {}).values())) > free:
            largest = sorted(needs[device].items(), key=lambda item: (-item[1], item[0]))[:3]
            largest_text = ", ".join(f"{step} {format_size(size)}" for step, size in largest)
            more = f" and {len(needs[device]) - 3} more" if len(needs[device]) > 3 else ""
            yield PreflightFinding(
                "warning",
                f"{folder_names}: {format_size(free)} free, and this run may add {format_size(need)} ({largest_text}{more})",
                _disk_space_tip(),
            )
        counted = [folder.free_files for folder in folders if folder.free_files is not None]
        if counted and min(counted) < _FEW_FILES:
            none = min(counted) == 0
            text = f"{folder_names}: the file system has room for {min(counted)} more files"
            yield PreflightFinding("error" if none else "warning", text, _disk_space_tip())


def check_access(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """All folders are written to; compilers write to that of temporary files."""
    for folder in subject.folders:
        if folder.role == "temporary" and not folder.exists:
            text = f"temporary files go to {folder.path}, which is not a folder"
            yield PreflightFinding("error", text, "make it, or let TMPDIR name another one")
        elif not folder.writable:
            tip = "make it writable, or choose another folder"
            yield PreflightFinding(
                "error", f"the {folder.description} {folder.path} cannot be written to", tip
            )


def check_noexec(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Build environments and configure steps start programs out of their folders."""
    for folder in subject.folders:
        if folder.runs_programs or folder.role == "output":
            continue
        certain = folder.role in {"work", "source"}
        yield PreflightFinding(
            "error" if certain else "warning",
            f"the {folder.description} {folder.path} is on a file system mounted noexec:"
            " programs in it do not start",
            "let TMPDIR name another folder" if folder.role == "temporary" else "choose another folder",
        )


def check_file_systems(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Hard links save gigabytes; names that differ in case are two files."""
    for folder in subject.folders:
        if folder.role == "work" and folder.hard_links is False:
            yield PreflightFinding(
                "warning",
                f"the {folder.description} {folder.path} is on a file system without hard links: every build"
                " environment is a whole copy",
                "choose a file system that has them",
            )
        if folder.role == "source" and folder.tells_case is False and subject.platform == "linux":
            yield PreflightFinding(
                "warning",
                f"the {folder.description} {folder.path} is on a file system where case does not count: of two files"
                " one is lost",
                "check out on another file system",
            )


def check_odd_paths(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Some characters of a path end what builds make of it."""
    for folder in subject.folders:
        path, prefix = str(folder.path), f"the {folder.description} {folder.path} has"
        if folder.role not in {"work", "source"}:
            continue
        if folder.role == "work" and ":" in path and subject.platform == "linux":
            text = f"{prefix} a colon in its path: programs of its build environments are on no PATH"
            yield PreflightFinding("error", text, "choose another folder")
        if ";" in path:
            text = f"{prefix} a semicolon in its path, where CMake cuts lists"
            yield PreflightFinding("warning", text, "choose another folder")
        if any(letter.isspace() for letter in path):
            text = f"{prefix} a blank in its path, which not all build files quote"
            yield PreflightFinding("warning", text, "choose a folder without blanks")
    if subject.platform == "windows" and "pytorch_vision" in subject.projects:
        for python in subject.pythons:
            if " " in str(python.path):
                yield PreflightFinding(
                    "warning",
                    f"torchvision does not build with a Python whose path has a blank: {python.path}",
                    "install Python for one user (pytorch/vision#9165)",
                )


def check_long_paths(subject: PreflightSubject) -> Iterator[PreflightFinding]:
    """Windows programs stop at 260 characters, unless the registry and they themselves allow more."""
    if subject.platform != "windows":
        return
    for folder in subject.folders:
        project = folder.description.removeprefix("source tree of ")
        if (
            folder.role != "source"
            or (longest := estimate_longest_path(str(folder.path), project)) < _MAX_PATH
        ):
            continue
        off = "" if subject.long_paths else ", and long paths are switched off"
        yield PreflightFinding(
            "warning",
            f"paths below {folder.path} may have {longest} characters; many programs stop at"
            f" {_MAX_PATH}{off}",
            r"check out to a short path, such as D:\b, or switch LongPathsEnabled on in the registry",
        )


def _group_by_device(subject: PreflightSubject) -> dict[int, list[PreflightFolder]]:
    folders_by_device: dict[int, list[PreflightFolder]] = {}
    for folder in subject.folders:
        folders_by_device.setdefault(folder.device, []).append(folder)
    return folders_by_device


def _name_folders(folders: list[PreflightFolder]) -> str:
    """Name the folders of one file system, not more than three."""
    paths: list[Path] = list(dict.fromkeys(folder.path for folder in folders))
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(str(path) for path in paths[:3]) + more


def _disk_space_tip() -> str:
    return "`rocm-wheels clean --dry-run` shows what can go from a work directory; or choose another disk"
