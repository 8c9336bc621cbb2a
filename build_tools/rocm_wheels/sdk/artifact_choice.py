"""Which archives of a ROCm build are meant: by GPU target, family and patterns of file names.

Names are ``<name>_<component>_<family>.tar.zst`` or ``.tar.xz`` (ROCm/TheRock, ``artifacts.py``); of an
archive that is there in both forms the first is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocm_wheels.errors import SdkError, UsageError
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.sdk.artifacts import GENERIC, sort_targets

_ARCHIVE = re.compile(
    r"(?P<stem>(?P<name>[^_/\\]+)_(?P<component>[^_/\\]+)_(?P<family>[^_/\\]+))\.tar\.(?:zst|xz)"
)
_MOST_SHOWN = 12


@dataclass(frozen=True)
class ArchiveName:
    """The name of an archive and its parts; ``stem`` names the folder that it is unpacked to."""

    file: str
    stem: str
    name: str
    component: str
    family: str


@dataclass(frozen=True)
class ArtifactChoice:
    """What is meant. Without ``targets`` and ``family``: of all GPUs.

    ``include`` and ``exclude`` are regular expressions that are searched for in file names. Every target, the
    family and every pattern of ``include`` must be found, but for those in ``optional``; of ``any_of`` one at
    least of the targets in it.
    """

    targets: tuple[str, ...] = ()
    family: str | None = None
    any_of: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def read_archive_names(files: Iterable[str]) -> list[ArchiveName]:
    """Return the archives among files, sorted by name; each artifact once."""
    by_stem: dict[str, ArchiveName] = {}
    for file in sorted(files, reverse=True):  # .zst comes before .xz
        match = _ARCHIVE.fullmatch(file)
        if match and file.isprintable() and match["stem"] not in by_stem:
            by_stem[match["stem"]] = ArchiveName(file, **match.groupdict())
    return sorted(by_stem.values(), key=lambda archive: archive.file)


def choose_archives(files: Iterable[str], choice: ArtifactChoice, *, where: str) -> list[ArchiveName]:
    """Return the archives that are meant. Raises SdkError for what is asked for and not there."""
    archives = read_archive_names(files)
    if not archives:
        raise SdkError(f"no artifact in {where}", tip="its files must be named like blas_lib_gfx942.tar.zst")
    include, exclude = compile_patterns(choice.include), compile_patterns(choice.exclude)
    of_gpus = _select_for_gpus(archives, choice, where)
    for text, pattern in zip(choice.include, include, strict=True):
        if text not in choice.optional and not any(pattern.search(archive.file) for archive in of_gpus):
            raise SdkError(
                f"no artifact in {where} matches {text!r}{_suggest_names(archives)}",
                tip="correct the pattern, or leave it out; --dry-run lists what would be fetched",
            )
    chosen = [
        archive
        for archive in of_gpus
        if (not include or any(pattern.search(archive.file) for pattern in include))
        and not any(pattern.search(archive.file) for pattern in exclude)
    ]
    if not chosen:
        raise SdkError(f"--exclude leaves no artifact of {where}", tip="exclude less")
    return chosen


def compile_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Return regular expressions. Raises UsageError for what is none."""
    compiled = []
    for text in patterns:
        try:
            compiled.append(re.compile(text))
        except re.error as cause:
            raise UsageError(
                f"{text!r} is not a regular expression: {cause}",
                tip=f"for the text itself: {re.escape(text)!r}",
            ) from None
    return compiled


def _select_for_gpus(
    archives: Sequence[ArchiveName], choice: ArtifactChoice, where: str
) -> list[ArchiveName]:
    required = {strip_features(target) for target in choice.targets}
    families = {strip_features(archive.family) for archive in archives} - {GENERIC}
    others = {strip_features(target) for target in choice.any_of}
    if choice.family is not None:
        others.add(choice.family)
    if not required and not others:
        return list(archives)
    missing = [target for target in sort_targets(required) if target not in families]
    if not missing and not required & families and not others & families:
        missing = [choice.family or ", ".join(choice.any_of)]
    if missing:
        available = ", ".join(sort_targets(families)) or "no GPU in particular"
        raise SdkError(
            f"no artifact for {', '.join(missing)} in {where}; there are some for {available}",
            tip="name targets that the build has with --amdgpu-targets, or another run",
        )
    meant = {GENERIC} | required | others
    return [archive for archive in archives if strip_features(archive.family) in meant]


def _suggest_names(archives: Sequence[ArchiveName]) -> str:
    names = sorted({archive.name for archive in archives})
    return f"; there are {', '.join(names[:_MOST_SHOWN])}{' …' if names[_MOST_SHOWN:] else ''}"
