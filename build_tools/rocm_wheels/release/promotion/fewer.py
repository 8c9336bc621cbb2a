"""Targets that a set for all GPUs would take from people: what they get now has code for them.

Such sets can be built and staged for some families alone. Shown on a channel one is the newest for all, and
who has another GPU gets wheels without code for it. So it is held against what people get now: the newest set
of its platform and torch line (2.13) that the channel shows. No gate asks that: it sees one set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.ci import MULTI_ARCH
from rocm_wheels.model.gfx import strip_features
from rocm_wheels.release.gate.needed import find_set_platform
from rocm_wheels.release.newest import TORCH_PROJECT, SetRank, parse_torch_line, rank_set
from rocm_wheels.release.sets import SetDocument

FEWER_TARGETS_PREFIX = "fewer targets: "  # how the line begins that tells of what is allowed nevertheless


def require_no_lost_targets(
    document: SetDocument, shown_documents: Sequence[SetDocument], channel: str, *, allow: bool = False
) -> tuple[str, ...]:
    """Raise ReleaseError for a set for all GPUs without code for some that people get code for now.

    With ``allow`` that is returned, in a sentence, to be shown with the set.
    """

    def key(candidate: SetDocument) -> SetRank:
        return rank_set(
            candidate.projects, candidate.version, candidate.created, candidate.id, channel=channel
        )

    if MULTI_ARCH not in {document.family, document.layout}:
        return ()
    newest = max(
        (
            candidate
            for candidate in shown_documents
            if _platform_and_line(candidate) == _platform_and_line(document)
        ),
        key=key,
        default=None,
    )
    if newest is None or not (lost_targets := _find_lost_targets(document, newest)):
        return ()
    lost_code = "; ".join(f"{project} for {', '.join(gfx)}" for project, gfx in lost_targets.items())
    if not allow:
        raise ReleaseError(
            f"{document.id} has no code of {lost_code}, and {newest.id}, which {channel} shows, has: people with "
            "these GPUs would get it as the newest",
            tip="promote a set for all of them; where this is meant, say --allow-fewer-targets",
        )
    return (f"{FEWER_TARGETS_PREFIX}no code of {lost_code}, which {newest.id} has",)


def _platform_and_line(document: SetDocument) -> tuple[str, tuple[int, int] | None]:
    line = parse_torch_line(document.version) if TORCH_PROJECT in document.projects else None
    return find_set_platform(document), line


def _find_lost_targets(document: SetDocument, newest: SetDocument) -> dict[str, list[str]]:
    """Return the targets that projects of both have code for in the other alone, by project."""
    targets, newest_targets = _list_code_targets(document), _list_code_targets(newest)
    lost = {
        project: sorted(newest_targets[project] - targets[project])
        for project in sorted({*targets} & {*newest_targets})
    }
    return {project: gfx for project, gfx in lost.items() if gfx}


def _list_code_targets(document: SetDocument) -> Mapping[str, set[str]]:
    """Return the targets of each project; parts that hold kernels (``torch-device-gfx942``) are of it."""
    targets_by_project: dict[str, set[str]] = {}
    for file in document.files:
        project = file.project.partition("-device-")[0]
        targets_by_project.setdefault(project, set()).update(
            strip_features(target) for target in file.targets
        )
    return targets_by_project
