"""Make thin wheels out of fat ones: keep the device code and kernel databases of some targets.

Bundles in ``.hip_fatbin`` are written again where they are, with their host entry and the targets that stay;
pages that become empty are given back to the file, or are zeros. A code object or ``.kpack`` archive of its
own, and a file of a kernel database that is labelled with another target, goes; unlabelled files stay. Code
stays that runs on a target that was asked for: its own, else that of a generic target it is one of, else
SPIR-V.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from rocm_wheels.binaries import elf, elf_pages
from rocm_wheels.core import errors, extras, log, parallel, tables
from rocm_wheels.device_code import code_objects, kernel_databases, repack
from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels import dist_info, rewrite, stored_member, zip_format, zip_layout
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

_PORTABLE = ("amdgcnspirv", "spirv")

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
            for kind in (_is_own, _is_generic, _is_portable):
                group = {name: code for name, code in running.items() if kind(code, target)}
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


def _is_own(code: code_objects.TargetId, target: code_objects.TargetId) -> bool:
    return code.processor == target.processor


def _is_portable(code: code_objects.TargetId, target: code_objects.TargetId) -> bool:
    return code.processor in _PORTABLE


def _is_generic(code: code_objects.TargetId, target: code_objects.TargetId) -> bool:
    return not _is_own(code, target) and not _is_portable(code, target)


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


def sizes_as_json(before: tuple[int, int], after: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Return sizes (content, in the archive) before and after as plain JSON values."""
    return {
        name: {"before": before[number], "after": after[number]}
        for number, name in enumerate(("content", "archive"))
    }


@dataclass(frozen=True)
class PruneChange:
    """What becomes of a member: ``kept`` and ``removed`` are targets, sizes are (content, in the archive)."""

    name: str
    action: ChangeAction
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    before: tuple[int, int]
    after: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class PrunedMembers:
    """What pruning makes of an archive: changes by name, and the new content of those that stay.

    ``targets`` are those that there was code for, ``kept`` those that there still is, ``held`` those of each
    member with code, before.
    """

    changes: Mapping[str, PruneChange] = field(default_factory=dict)
    stored: Mapping[str, stored_member.StoredMember] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def dropped(self) -> frozenset[str]:
        """The members that go."""
        return frozenset(name for name, change in self.changes.items() if change.action == "dropped")


@dataclass(frozen=True)
class PrunePlan:
    """What a wheel becomes: ``targets`` are those that it keeps; sizes are (content, archive)."""

    wheel: Path
    targets: tuple[str, ...]
    changes: tuple[PruneChange, ...]
    before: tuple[int, int]
    after: tuple[int, int]
    edit: WheelEdit = field(repr=False, default_factory=WheelEdit)

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain JSON values."""
        return {
            "wheel": str(self.wheel),
            "targets": list(self.targets),
            **sizes_as_json(self.before, self.after),
            "changes": [
                {
                    "member": change.name,
                    "action": change.action,
                    "kept": list(change.kept),
                    "removed": list(change.removed),
                    **sizes_as_json(change.before, change.after),
                }
                for change in self.changes
            ],
        }


def plan_prune(
    wheels: Sequence[Path],
    targets: Sequence[str],
    stack: ExitStack,
    *,
    give_back: bool = True,
    jobs: int = 1,
) -> list[PrunePlan]:
    """Plan thin wheels; new contents are compressed into files without a name, which ``stack`` closes.

    With ``give_back`` libraries lose their empty pages where that can be done. A wheel without device code
    stays as it is. PackageError where no wheel has any, for a target without code in a wheel that has some,
    and for what an index would refuse.
    """
    extras.require_extras("pruning", "build")
    for wheel in wheels:
        require_plain_wheel(wheel)
    work = partial(_plan_wheel, targets=targets, stack=stack, give_back=give_back)
    plans = parallel.run_in_parallel(work, wheels, jobs=jobs)
    if not any(plan.targets for plan in plans):
        raise errors.PackageError(
            f"no device code inside: {', '.join(map(str, wheels))}",
            tip="a wheel whose code is in device wheels is thin already: see `rocm-wheels targets`",
        )
    return plans


def write_pruned_wheel(plan: PrunePlan, folder: Path) -> rewrite.RewrittenWheel:
    """Write a thin wheel into ``folder``; it is there whole or not at all. Raises as ``rewrite_wheel``."""
    return rewrite.rewrite_wheel(plan.wheel, folder, plan.edit)


def require_plain_wheel(wheel: Path) -> None:
    """Raise PackageError for a variant wheel: its properties would name GPUs that it has no code for."""
    if dist_info.split_wheel_name(wheel.name).label:
        raise errors.PackageError(
            f"{wheel.name} is a variant, whose properties would no longer be true",
            tip="`rocm-wheels wheel retag --label ''` makes a plain wheel of it: stamp it afterwards",
        )


def _plan_wheel(wheel: Path, *, targets: Sequence[str], stack: ExitStack, give_back: bool) -> PrunePlan:
    target_filter = TargetFilter(targets)
    log.log_note(f"pruning {wheel.name} ({tables.format_size(wheel.stat().st_size)})")
    with WheelArchive.open(wheel) as archive:
        folders = tuple(
            f"{name}/" for name in dist_info.list_dist_info_folders(entry.name for entry in archive.members)
        )
        names = {entry.name for entry in archive.members if not entry.name.startswith(folders)}
        pruned = prune_members(archive, names, target_filter, stack, give_back=give_back)
        content = sum(entry.size for entry in archive.members)
        size, packed = archive.size, sum(entry.compressed for entry in archive.members)
    if not pruned.targets:
        return PrunePlan(wheel, (), (), (content, size), (content, size), WheelEdit())
    if missing := target_filter.list_missing():
        raise errors.PackageError(
            f"{wheel} has no code for {', '.join(missing)}", tip=f"it has {' '.join(pruned.targets)}"
        )
    changes = tuple(pruned.changes[name] for name in sorted(pruned.changes))
    content_after = content + sum(change.after[0] - change.before[0] for change in changes)
    packed_after = packed + sum(change.after[1] - change.before[1] for change in changes)
    if zip_layout.exceeds_ratio(content_after, packed_after):
        raise errors.PackageError(
            f"{wheel}: pruned, its content ({content_after} bytes) would be more than 50 times its archive"
            f" ({packed_after} bytes), which PyPI refuses",
            tip="give the empty pages back: leave out --keep-pages",
        )
    step = f"prune {' '.join(pruned.kept)}" if changes else ""
    edit = WheelEdit(stored=pruned.stored, drop_members=pruned.dropped, step=step)
    return PrunePlan(
        wheel, pruned.kept, changes, (content, size), (content_after, size + packed_after - packed), edit
    )


def prune_members(
    archive: WheelArchive,
    names: Collection[str],
    target_filter: TargetFilter,
    stack: ExitStack,
    *,
    give_back: bool = True,
    inspect: InspectContent | None = None,
) -> PrunedMembers:
    """Return what becomes of members of an open archive; all others are not looked at.

    ``inspect`` gets the name and the content of each native binary among them, in a thread.
    """
    entry_by_name = {entry.name: entry for entry in archive.members}
    selected = frozenset(names)
    outcomes: dict[str, _Outcome] = {}

    def choose_reader(name: str, head: bytes) -> Callable[[memoryview], _Outcome] | None:
        if name not in selected or name in outcomes:
            return None
        if not code_objects.may_hold_code(name, head) and not (inspect and head.startswith(elf.PE_MAGIC)):
            return None
        return partial(
            _prune_content,
            wheel=archive.path,
            entry=entry_by_name[name],
            target_filter=target_filter,
            stack=stack,
            give_back=give_back,
            inspect=inspect,
        )

    for name in sorted(selected):
        if labels := kernel_databases.list_database_labels(name):
            keeping = [label for label in labels if target_filter.keeps_label(label)]
            targets = tuple(
                dict.fromkeys(str(kernel_databases.parse_label(label) or label) for label in labels)
            )
            outcomes[name] = _Outcome(targets, () if keeping else None)
    for content in archive.read_all(choose_reader, digest=False):
        if content.fault and content.name in selected:
            raise errors.DataError(content.fault)
        if content.result is not None:
            outcomes[content.name] = content.result
    changes, stored = {}, {}
    for name, outcome in outcomes.items():
        entry = entry_by_name[name]
        if outcome.stored is not None:
            stored[name] = outcome.stored
        if change := outcome.make_change(entry):
            changes[name] = change
    held_texts = (target for outcome in outcomes.values() for target in outcome.targets)
    kept_texts = (target for outcome in outcomes.values() for target in outcome.kept)
    held = {name: outcome.targets for name, outcome in outcomes.items() if outcome.targets}
    return PrunedMembers(changes, stored, _sort_targets(held_texts), _sort_targets(kept_texts), held)


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

    def make_change(self, entry: zip_format.ZipEntry) -> PruneChange | None:
        before = (entry.size, entry.compressed)
        if self.removed is None:
            return PruneChange(entry.name, "dropped", (), self.targets, before)
        if self.stored is None:
            return None
        after = (self.stored.entry.size, self.stored.entry.compressed)
        return PruneChange(entry.name, "pruned", self.kept, self.removed, before, after)


def _prune_content(
    data: memoryview,
    *,
    wheel: Path,
    entry: zip_format.ZipEntry,
    target_filter: TargetFilter,
    stack: ExitStack,
    give_back: bool,
    inspect: InspectContent | None,
) -> _Outcome:
    """Return what becomes of a file that may hold device code."""
    if inspect is not None:
        inspect(entry.name, data)
    place = f"{wheel}: {entry.name}"
    held = code_objects.find_held_code(data, place)
    if not held.bundle_spans:
        keeping = [target for target in held.targets if target_filter.keeps(target)]
        targets = _format_targets(held.targets)
        if len(keeping) == len(held.targets):
            return _Outcome(targets, ())
        if keeping or not held.is_whole_file:
            raise errors.PackageError(
                f"{place}: code for several targets in a file that cannot be pruned ({' '.join(targets)})",
                tip="leave the file out of the wheel, or prune the linked library instead",
            )
        return _Outcome(targets, None)
    repacked = []
    for span in held.bundle_spans:
        try:
            repacked.append(repack.repack_bundles(span, target_filter.choose_entries, stack))
        except ValueError as cause:
            raise span.make_fault(str(cause)) from None
    bundles = [bundle for group in repacked for bundle in group]
    kept = _parse_entries(name for bundle in bundles for name in bundle.kept)
    removed = _parse_entries(name for bundle in bundles for name in bundle.dropped)
    targets = _format_targets(kept | removed)
    if not any(bundle.is_changed for bundle in bundles):
        return _Outcome(targets, ())
    if held.is_whole_file and not kept:
        return _Outcome(targets, None)
    pieces = _make_pieces(data, place, held, repacked, give_back=give_back)
    return _Outcome(targets, _format_targets(removed - kept), stored_member.pack_member(entry, pieces, stack))


def _make_pieces(
    data: memoryview,
    place: str,
    held: code_objects.HeldCode,
    repacked: Sequence[Sequence[repack.RepackedBundle]],
    *,
    give_back: bool,
) -> Sequence[elf_pages.FilePiece]:
    """Return the new content of a file, piece by piece."""
    if len(repacked) != 1:
        raise errors.PackageError(
            f"{place}: {tables.format_count(len(repacked), 'section')} with device code, not one"
        )
    span, begin = held.bundle_spans[0], held.section_begin
    chunks = [chunk for bundle in repacked[0] for chunk in bundle.chunks]
    if held.is_whole_file:
        end = chunks[-1][0] + len(chunks[-1][1])
        return elf_pages.replace_section(data[:end], 0, end, chunks)
    cut = elf_pages.cut_section_pages(data, place, begin, len(span), chunks) if give_back else None
    return cut if cut is not None else elf_pages.replace_section(data, begin, len(span), chunks)


def _parse_entries(names: Iterable[str]) -> set[code_objects.TargetId]:
    return {code_objects.TargetId.parse(code_objects.BundleEntryId.parse(name).target) for name in names}


def _sort_targets(texts: Iterable[str]) -> tuple[str, ...]:
    """Return targets once each, sorted as people do; families of labels (``gfx11xx``) are left out."""
    named = {
        text
        for text in texts
        if not (kernel_databases.is_label(text) and kernel_databases.parse_label(text) is None)
    }
    return _format_targets(map(code_objects.TargetId.parse, named))


def _format_targets(targets: Iterable[code_objects.TargetId]) -> tuple[str, ...]:
    return tuple(str(target) for target in sorted(set(targets), key=code_objects.TargetId.get_sort_key))
