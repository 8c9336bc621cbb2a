"""Targets that a set for all GPUs would take from people: what they get now has code for them.

Such sets can be built and staged for some families alone. Shown on a channel one is the newest for all, and
who has another GPU gets wheels without code for it. So it is held against what people get now: the newest set
of its platform and torch line (2.13) that the channel shows. No gate asks that: it sees one set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.errors import ReleaseError
from rocm_wheels.model.ci import MULTI_ARCH
from rocm_wheels.model.gfx import base_target
from rocm_wheels.release.gate.needed import platform_of
from rocm_wheels.release.newest import TORCH, Rank, of_torch, rank
from rocm_wheels.release.sets import SetDocument

FEWER = "fewer targets: "  # how the line begins that tells of what is allowed nevertheless


def require_targets(
    document: SetDocument, shown: Sequence[SetDocument], channel: str, *, allow: bool = False
) -> tuple[str, ...]:
    """Raise ReleaseError for a set for all GPUs without code for some that people get code for now.

    With ``allow`` that is returned, in a sentence, to be shown with the set.
    """

    def key(one: SetDocument) -> Rank:
        return rank(one.projects, one.version, one.created, one.id, channel=channel)

    if MULTI_ARCH not in {document.family, document.layout}:
        return ()
    newest = max((one for one in shown if _kind(one) == _kind(document)), key=key, default=None)
    if newest is None or not (lacking := _lacking(document, newest)):
        return ()
    said = "; ".join(f"{project} for {', '.join(gfx)}" for project, gfx in lacking.items())
    if not allow:
        raise ReleaseError(
            f"{document.id} has no code of {said}, and {newest.id}, which {channel} shows, has: people with "
            "these GPUs would get it as the newest",
            tip="promote a set for all of them; where this is meant, say --allow-fewer-targets",
        )
    return (f"{FEWER}no code of {said}, which {newest.id} has",)


def _kind(document: SetDocument) -> tuple[str, tuple[int, int] | None]:
    line = of_torch(document.version) if TORCH in document.projects else None
    return platform_of(document), line


def _lacking(document: SetDocument, newest: SetDocument) -> dict[str, list[str]]:
    """Return the targets that projects of both have code for in the other alone, by project."""
    own, other = _code(document), _code(newest)
    found = {project: sorted(other[project] - own[project]) for project in sorted({*own} & {*other})}
    return {project: gfx for project, gfx in found.items() if gfx}


def _code(document: SetDocument) -> Mapping[str, set[str]]:
    """Return the targets of each project; parts that hold kernels (``torch-device-gfx942``) are of it."""
    found: dict[str, set[str]] = {}
    for file in document.files:
        project = file.project.partition("-device-")[0]
        found.setdefault(project, set()).update(base_target(one) for one in file.targets)
    return found
