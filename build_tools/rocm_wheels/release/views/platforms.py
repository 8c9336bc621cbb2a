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
from rocm_wheels.release.promotion.overlaps import ANY_VALUE, list_installer_slots
from rocm_wheels.release.promotion.released import ReleasedSets
from rocm_wheels.release.promotion.ties import UNPINNED_PREFIXES
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.release.views.known import SetStatus


@dataclass(frozen=True)
class PlatformConflicts:
    """Tells which sets of two platforms cannot be in one view, and says so once of each pair."""

    released: ReleasedSets
    _found_by_pair: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def have_conflict(self, status: SetStatus, other_status: SetStatus) -> bool:
        """Tell whether wheels of a set would be taken in the place of another's."""
        pair = status.set, other_status.set
        if pair not in self._found_by_pair:
            has_unpinned = any(
                line.startswith(UNPINNED_PREFIXES) for line in (*status.told, *other_status.told)
            )
            self._found_by_pair[pair] = projects = find_platform_conflicts(
                *self.released.read_documents(pair), has_unpinned=has_unpinned
            )
            if projects:
                message = (
                    f"{status.set} ({status.os}) is in no view beside {other_status.set} ({other_status.os})"
                )
                log.log_warning(f"{message}: installers would take {', '.join(projects)} of one for both")
        return bool(self._found_by_pair[pair])


def find_platform_conflicts(
    first: SetDocument, second: SetDocument, *, has_unpinned: bool
) -> tuple[str, ...]:
    """Return the projects of which a wheel of one set would be taken for the other, sorted.

    ``has_unpinned``: there are wheels that are not pinned to their set.
    """
    return tuple(
        sorted(
            {
                *_find_taken_projects(first, second, has_unpinned),
                *_find_taken_projects(second, first, has_unpinned),
            }
        )
    )


def _find_taken_projects(document: SetDocument, rival: SetDocument, has_unpinned: bool) -> Iterator[str]:
    rivals: Mapping[str, list[SetFile]] = {
        project: [file for file in rival.files if file.project == project] for project in rival.projects
    }
    for file in document.files:
        slots = list_installer_slots(file)
        if file.sha256 in rival.hashes or not any(slot.platform == ANY_VALUE for slot in slots):
            continue
        rival_files = rivals.get(file.project, [])
        if rival_files and (
            has_unpinned
            or any(
                slot.overlaps(rival_slot)
                for slot in slots
                for f in rival_files
                for rival_slot in list_installer_slots(f)
            )
        ):
            yield file.project
