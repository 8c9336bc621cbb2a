"""Make thin wheels out of fat ones: keep the device code and kernel databases of some targets.

Bundles in ``.hip_fatbin`` are written again where they are, with their host entry and the targets that stay;
pages that become empty are given back to the file, or are zeros. A code object or ``.kpack`` archive of its
own, and a file of a kernel database that is labelled with another target, goes; unlabelled files stay. Code
stays that runs on a target that was asked for: its own, else that of a generic target it is one of, else
SPIR-V.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rocm_wheels.binaries import elf_pages, pe
from rocm_wheels.core import errors, installation, log, parallel, tables
from rocm_wheels.device_code import code_objects, kernel_databases, repack
from rocm_wheels.package import wheel_plan
from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels import stored_member
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

_PORTABLE = ("amdgcnspirv", "spirv")

_GONE = wheel_plan.WheelSizes(0, 0)

ChangeAction = Literal["pruned", "dropped"]
InspectContent = Callable[[str, memoryview], None]


class TargetFilter:
    """Says which code runs on one of some targets, and notes for which of them there was any."""

    def __init__(self, targets: Iterable[str]) -> None:
        self._targets = [code_objects.TargetId.parse(target) for target in targets]
        self._seen: set[code_objects.TargetId] = set()

    def keeps(self, code: code_objects.TargetId) -> bool:
        """Tell whether code for a target ID runs on one of the targets."""
        running = [target for target in self._targets if _runs_on(code, target)]
        self._seen.update(running)
        return bool(running)

    def choose_entries(self, names: Sequence[str]) -> set[str]:
        """Return the entries of a bundle that are needed, by their IDs; ValueError for what is none.

        The runtime takes a target's own code first, then that of a generic target, then SPIR-V: what it
        would never come to is not needed.
        """
        code_by_name = {
            name: code_objects.TargetId.parse(code_objects.BundleEntryId.parse(name).target) for name in names
        }
        chosen: set[str] = set()
        for target in self._targets:
            running = {name: code for name, code in code_by_name.items() if _runs_on(code, target)}
            for rank in range(3):
                group = {name: code for name, code in running.items() if _rank_code(code, target) == rank}
                chosen.update(group)
                if group:
                    self._seen.add(target)
                if _serves_all_settings(group.values(), target):
                    break
        return chosen

    def keeps_label(self, label: str) -> bool:
        """Tell so of the label of a file: ``gfx90a-xnack+``, ``gfx942130``, ``gfx11xx``."""
        code = kernel_databases.parse_label(label)
        if code is not None:
            return self.keeps(code)
        shape = label.removeprefix("gfx").replace("x", "[0-9a-f]")
        family = [target for target in self._targets if re.fullmatch(f"gfx{shape}", target.processor)]
        self._seen.update(family)
        return bool(family)

    def list_missing(self) -> list[str]:
        """Return the targets for which no code was seen."""
        return [str(target) for target in self._targets if target not in self._seen]


def _rank_code(code: code_objects.TargetId, target: code_objects.TargetId) -> int:
    """Return how soon the runtime takes code for a target: its own, that of a generic target, SPIR-V."""
    if code.processor in _PORTABLE:
        return 2
    return 0 if code.processor == target.processor else 1


def _serves_all_settings(codes: Iterable[code_objects.TargetId], target: code_objects.TargetId) -> bool:
    """Tell whether code runs in every setting of a GPU's features that the target leaves open."""
    stated = dict(target.features)
    settings = {tuple(item for item in code.features if item[0] not in stated) for code in codes}
    return () in settings or len(settings) > 1


def _runs_on(code: code_objects.TargetId, target: code_objects.TargetId) -> bool:
    """Tell whether code runs on a target; a feature that one leaves open agrees with either setting."""
    if code.processor in _PORTABLE:
        return True
    covered = {code.processor, *COMPILER_GENERICS.get(code.processor, ())}
    features = dict(target.features)
    return target.processor in covered and all(
        features.get(name, sign) == sign for name, sign in code.features
    )


@dataclass(frozen=True)
class PruneChange:
    """What becomes of a member: ``kept`` and ``removed`` are targets, sizes are (content, in the archive)."""

    member: str
    action: ChangeAction
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    before: wheel_plan.WheelSizes
    after: wheel_plan.WheelSizes = _GONE


@dataclass(frozen=True)
class PrunedMembers:
    """What pruning makes of an archive: changes by name, and the new content of those that stay.

    ``targets`` are those that there was code for, ``kept`` those that there still is, ``held`` those of each
    member with code, before.
    """

    changes: Mapping[str, PruneChange]
    stored: Mapping[str, stored_member.StoredMember]
    targets: tuple[str, ...]
    kept: tuple[str, ...]
    held: Mapping[str, tuple[str, ...]]

    @property
    def dropped(self) -> frozenset[str]:
        """The members that go."""
        return frozenset(name for name, change in self.changes.items() if change.action == "dropped")


@dataclass(frozen=True, kw_only=True)
class PrunePlan(wheel_plan.WheelPlan):
    """What a wheel becomes: ``targets`` are those that it keeps, none where it has no device code."""

    targets: tuple[str, ...]
    changes: tuple[PruneChange, ...]


def plan_prune(wheels: Sequence[Path], targets: Sequence[str], stack: ExitStack) -> list[PrunePlan]:
    """Plan thin wheels; new contents are compressed into files without a name, which ``stack`` closes.

    Libraries lose their empty pages where that can be done. A wheel without device code stays as it is.
    PackageError where no wheel has any, for a target without code in a wheel that has some, and for what an
    index would refuse.
    """
    installation.require_extras("pruning", "build")
    archives = [wheel_plan.open_wheel(wheel, stack) for wheel in wheels]
    work = partial(_plan_wheel, targets=targets, stack=stack)
    plans = parallel.run_in_parallel(work, archives, jobs=os.cpu_count() or 1)
    if not any(plan.targets for plan in plans):
        raise errors.PackageError(
            f"no device code inside: {', '.join(map(str, wheels))}",
            tip="a wheel whose code is in device wheels is thin already: see `rocm-wheels targets`",
        )
    return plans


def _plan_wheel(archive: WheelArchive, *, targets: Sequence[str], stack: ExitStack) -> PrunePlan:
    target_filter = TargetFilter(targets)
    log.log_note(f"pruning {archive.path.name} ({tables.format_size(archive.size)})")
    names = wheel_plan.list_outside_info(archive)
    pruned = prune_members(archive, names, target_filter, stack)
    if pruned.targets and (missing := target_filter.list_missing()):
        raise errors.PackageError(
            f"{archive.path} has no code for {', '.join(missing)}", tip=f"it has {' '.join(pruned.targets)}"
        )
    step = f"prune {' '.join(pruned.kept)}" if pruned.changes else ""
    edit = WheelEdit(stored=pruned.stored, drop_members=pruned.dropped, step=step)
    before, after = wheel_plan.measure_edit(archive, edit)
    changes = tuple(pruned.changes[name] for name in sorted(pruned.changes))
    return PrunePlan(archive.path, before, after, archive, edit, targets=pruned.kept, changes=changes)


def prune_members(
    archive: WheelArchive,
    names: Collection[str],
    target_filter: TargetFilter,
    stack: ExitStack,
    *,
    inspect: InspectContent | None = None,
) -> PrunedMembers:
    """Return what becomes of members of an open archive; all others are hashed, and not looked at.

    ``inspect`` gets the name and the content of each native binary among them, in a thread.
    """
    outcomes: dict[str, _Outcome] = {}
    for name in names:
        if labels := kernel_databases.list_database_labels(name):
            keeping = list(filter(target_filter.keeps_label, labels))  # of all: it notes what it saw
            held = dict.fromkeys(str(kernel_databases.parse_label(label) or label) for label in labels)
            outcomes[name] = _Outcome(tuple(held), () if keeping else None)
    entries = archive.member_by_name
    selected = frozenset(names) - outcomes.keys()

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _Outcome] | None:
        is_library = code_objects.may_hold_code(name, head) or (inspect and head.startswith(pe.PE_MAGIC))
        return partial(read_content, name) if name in selected and is_library else None

    def read_content(name: str, data: memoryview) -> _Outcome:
        if inspect is not None:
            inspect(name, data)
        targets, removed, pieces = _prune_content(data, f"{archive.path}: {name}", target_filter, stack)
        stored = stored_member.pack_member(entries[name], pieces, stack) if pieces else None
        return _Outcome(targets, removed, stored)

    outcomes |= archive.read_chosen(choose_reader)
    changes, stored = {}, {}
    for name, outcome in outcomes.items():
        before = wheel_plan.WheelSizes(entries[name].size, entries[name].compressed)
        if outcome.removed is None:
            changes[name] = PruneChange(name, "dropped", (), outcome.targets, before)
        elif outcome.stored is not None:
            stored[name] = outcome.stored
            after = wheel_plan.WheelSizes(outcome.stored.entry.size, outcome.stored.entry.compressed)
            changes[name] = PruneChange(name, "pruned", outcome.kept, outcome.removed, before, after)
    return PrunedMembers(
        changes,
        stored,
        targets=_sort_targets(target for outcome in outcomes.values() for target in outcome.targets),
        kept=_sort_targets(target for outcome in outcomes.values() for target in outcome.kept),
        held={name: outcome.targets for name, outcome in outcomes.items() if outcome.targets},
    )


@dataclass(frozen=True)
class _Outcome:
    """What becomes of one member: ``removed`` is None for all of ``targets``; nothing removed: it stays."""

    targets: tuple[str, ...]
    removed: tuple[str, ...] | None
    stored: stored_member.StoredMember | None = None

    @property
    def kept(self) -> tuple[str, ...]:
        """The targets that are left."""
        gone = self.targets if self.removed is None else self.removed
        return tuple(target for target in self.targets if target not in gone)


def _prune_content(
    data: memoryview, place: str, target_filter: TargetFilter, stack: ExitStack
) -> tuple[tuple[str, ...], tuple[str, ...] | None, Sequence[elf_pages.FilePiece]]:
    """Return the targets of a file, those that are removed (None: the file goes), and its new content."""
    held = code_objects.find_held_code(data, place)
    if not held.bundle_spans:
        targets = wheel_plan.format_targets(held.targets)
        kept_targets = [target for target in held.targets if target_filter.keeps(target)]
        if len(kept_targets) == len(held.targets):
            return targets, (), ()
        if kept_targets or not held.is_whole_file:
            raise errors.PackageError(
                f"{place}: code for several targets in a file that cannot be pruned ({' '.join(targets)})",
                tip="leave the file out of the wheel, or prune the linked library instead",
            )
        return targets, None, ()
    repacked = []
    for span in held.bundle_spans:
        try:
            repacked.append(repack.repack_bundles(span, target_filter.choose_entries, stack))
        except ValueError as cause:
            raise span.make_fault(str(cause)) from None
    bundles = [bundle for group in repacked for bundle in group]
    kept = _parse_entries(name for bundle in bundles for name in bundle.kept)
    removed = _parse_entries(name for bundle in bundles for name in bundle.dropped)
    targets = wheel_plan.format_targets(kept | removed)
    if not any(bundle.is_changed for bundle in bundles):
        return targets, (), ()
    if held.is_whole_file and not kept:
        return targets, None, ()
    if len(repacked) != 1:
        raise errors.PackageError(
            f"{place}: {tables.format_count(len(repacked), 'section')} with device code, not one"
        )
    begin, size = held.section_begin, len(held.bundle_spans[0])
    chunks = [chunk for bundle in bundles for chunk in bundle.chunks]
    if held.is_whole_file:
        size = chunks[-1][0] + len(chunks[-1][1])
        pieces = elf_pages.replace_section(data[:size], 0, size, chunks)
    else:
        cut = elf_pages.cut_section_pages(data, place, begin, size, chunks)
        pieces = elf_pages.replace_section(data, begin, size, chunks) if cut is None else cut
    return targets, wheel_plan.format_targets(removed - kept), pieces


def _parse_entries(names: Iterable[str]) -> set[code_objects.TargetId]:
    return {code_objects.TargetId.parse(code_objects.BundleEntryId.parse(name).target) for name in names}


def _sort_targets(texts: Iterable[str]) -> tuple[str, ...]:
    """Return targets once each, sorted as people do; families of labels (``gfx11xx``) are left out."""
    named = {
        text
        for text in texts
        if not (kernel_databases.is_label(text) and kernel_databases.parse_label(text) is None)
    }
    return wheel_plan.format_targets(map(code_objects.TargetId.parse, named))
