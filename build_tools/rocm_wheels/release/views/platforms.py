"""May the sets of two platforms be in one index: do people with one of them get wheels of the other?

A wheel for Linux is nothing to Windows, so it is about wheels for every platform (``py3-none-any``) alone.
The same file in both sets is no matter. Else one may be taken for both where

- both sets have its version, with other bytes: no pin tells them apart (promotion refuses that today), or
- wheels of either set are not pinned to it: what is pinned takes none of another version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rocm_wheels import log
from rocm_wheels.release.promotion.overlaps import ANY, slots_of
from rocm_wheels.release.promotion.released import Released
from rocm_wheels.release.promotion.ties import LOOSE
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.release.views.known import Known


@dataclass(frozen=True)
class Apart:
    """Tells which sets of two platforms cannot be in one view, and says so once of each pair."""

    released: Released
    _found: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def clash(self, one: Known, other: Known) -> bool:
        """Tell whether wheels of a set would be taken in the place of another's."""
        pair = one.set, other.set
        if pair not in self._found:
            loose = any(line.startswith(LOOSE) for line in (*one.told, *other.told))
            self._found[pair] = found = clashing(*self.released.documents(pair), loose=loose)
            if found:
                what = f"{one.set} ({one.os}) is in no view beside {other.set} ({other.os})"
                log.warn(f"{what}: installers would take {', '.join(found)} of one for both")
        return bool(self._found[pair])


def clashing(one: SetDocument, other: SetDocument, *, loose: bool) -> tuple[str, ...]:
    """Return the projects of which a wheel of one set would be taken for the other, sorted.

    ``loose``: there are wheels that are not pinned to their set.
    """
    return tuple(sorted({*_taken(one, other, loose), *_taken(other, one, loose)}))


def _taken(one: SetDocument, other: SetDocument, loose: bool) -> Iterator[str]:
    rivals: Mapping[str, list[SetFile]] = {
        project: [file for file in other.files if file.project == project] for project in other.projects
    }
    for file in one.files:
        mine = slots_of(file)
        if file.sha256 in other.hashes or not any(slot.platform == ANY for slot in mine):
            continue
        beside = rivals.get(file.project, [])
        if beside and (loose or any(slot.meets(it) for slot in mine for f in beside for it in slots_of(f))):
            yield file.project
