"""Repair finished wheels: the platform tag that they keep, libraries, run paths.

``plan_repairs`` reads each wheel once and decides what becomes of it and why: a ``RepairPlan``, which prints
as lines and as JSON. ``write_repairs`` carries plans out over the rewriter of ``wheels``: members that stay
are copied as they are. Nothing that a required package has is ever taken into a wheel, and nothing that was
not named: libraries to graft come from the folders that the request names.

What Linux asks for is in ``repair_linux``, what Windows does in ``repair_windows``.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

from rocm_wheels.binaries import asan
from rocm_wheels.core import errors, parallel, process, tables
from rocm_wheels.models.libraries import find_rocm_package, is_rocm_library
from rocm_wheels.models.project import find_project_of
from rocm_wheels.wheels import dist_info, rewrite, scan, statement, wheel_writer, write_together
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

if TYPE_CHECKING:
    from rocm_wheels.wheels import required_packages

_LIBRARY = re.compile(r"\.so(\.|$)|\.dll$", re.IGNORECASE)
_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # which auditwheel puts into names


@dataclass(frozen=True)
class RepairRequest:
    """What is asked of a repair.

    ``platform``: a tag to make, None: the oldest that the symbols allow. ``excludes``: libraries that users
    have, and on whose word; ``installed``: those of an installed ROCm, with where it is.
    ``library_dirs``: where libraries to graft are.
    """

    platform: str | None = None
    excludes: Mapping[str, str] = field(default_factory=dict)
    installed: Mapping[str, str] = field(default_factory=dict)
    library_dirs: tuple[Path, ...] = ()


class RunPathChange(NamedTuple):
    """Old and new text of a run path; "" as the new one removes it."""

    old: str
    new: str


@dataclass(frozen=True)
class LibraryChange:
    """What becomes of one library.

    ``run_paths`` are those that change; ``in_place``: nothing moves in the file, else ``patchelf`` writes it
    anew.
    """

    member: str
    run_paths: tuple[RunPathChange, ...] = ()
    in_place: bool = True

    def describe(self) -> list[str]:
        """Return the change as lines."""
        way = "" if self.in_place else " (by patchelf)"
        lines = []
        for old, new in self.run_paths:
            before, after = old.split(":") if old else [], new.split(":") if new else []
            gone = [entry or "(empty)" for entry in before if entry not in after]
            come = [entry for entry in after if entry not in before]
            parts = [f"without {', '.join(gone)}"] if gone else []
            parts += [f"with {', '.join(come)}"] if come else []
            lines.append(f"{self.member}: run path {' and '.join(parts) or 'without repetitions'}{way}")
        return lines


@dataclass(frozen=True)
class Graft:
    """A library that is taken into the wheel, from where, and who needs it."""

    library: str
    source: Path
    needed_by: tuple[str, ...]


@dataclass(frozen=True)
class RepairPlan:
    """What a repair makes of a wheel, and why.

    ``platforms``: the tags of the new name, () where they stay; ``reason`` says what decided them.
    ``excluded``: libraries that stay outside, with the package that has each. ``faults``: why it cannot
    be repaired.
    """

    source: Path
    system: str
    file_name: str
    platforms: tuple[str, ...] = ()
    reason: str = ""
    changes: tuple[LibraryChange, ...] = ()
    grafts: tuple[Graft, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is to be done: the wheel stays byte for byte."""
        return not (self.platforms or self.changes or self.grafts)

    def describe(self) -> list[str]:
        """Return the plan as lines for people."""
        lines = [self.source.name if self.is_empty else f"{self.source.name} -> {self.file_name}"]
        if self.platforms:
            lines.append(f"  tag {self.platforms[0]}{f': {self.reason}' if self.reason else ''}")
        lines += [f"  {line}" for change in self.changes for line in change.describe()]
        lines += [
            f"  graft {graft.library} from {graft.source}, needed by {shorten_list(graft.needed_by)}"
            for graft in self.grafts
        ]
        lines += [f"  outside: {library} ({owner})" for library, owner in sorted(self.excluded.items())]
        lines += [f"  note: {note}" for note in self.notes]
        if self.is_empty and not self.faults:
            lines.append("  nothing to repair")
        return lines


@dataclass(frozen=True)
class Needs:
    """Where needed libraries are: those to graft, the packages that have others, and what is missing."""

    grafts: tuple[Graft, ...]
    excluded: Mapping[str, str]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Surroundings:
    """What needs are met from: where a wheel is for, what it requires, all that is at hand, the request."""

    platform: required_packages.WheelPlatform
    required: required_packages.RequiredPackages
    offers: required_packages.PackagePool
    request: RepairRequest

    def meet_needs(
        self,
        needed_by: Mapping[str, Sequence[str]],
        find_file: Callable[[str], Path | None],
        outside: Mapping[str, str],
        promise: str,
    ) -> Needs:
        """Decide for each library that is needed where it is.

        ``find_file`` finds one to graft, ``outside`` are those that users have, with who says so, ``promise``
        says what else does not have one that is missing.
        """
        excluded: dict[str, str] = {}
        grafts, faults = [], []
        for library, members in sorted(needed_by.items()):
            if library in self.required.libraries:
                excluded[library] = self.required.owners[library]
            elif library in outside:
                excluded[library] = outside[library]
            elif asan.is_runtime(library):  # a copy inside would come too late, and be a second one
                excluded[library] = "preloaded: the compiler's"
            elif owner := self.offers.find_owner(library, self.platform) or find_rocm_package(library):
                faults.append(self._explain_rocm_need(library, members, owner))
            elif (source := find_file(library)) is not None:
                grafts.append(Graft(library, source, tuple(members)))
            else:
                faults.append(
                    f"{library}, needed by {shorten_list(members)}, is neither in the wheel nor in what it"
                    f" requires, {promise}: --library-dir names a folder to graft it from"
                )
        return Needs(tuple(grafts), excluded, tuple(faults))

    def _explain_rocm_need(self, library: str, members: Sequence[str], owner: str) -> str:
        """Return the fault of a library that a package has which METADATA does not lead to."""
        text = f"{library}, needed by {shorten_list(members)}, is a library of {owner}"
        if not self.required.missing:
            return f"{text}, which the wheel does not require: METADATA must say so"
        missing = shorten_list(self.required.missing)
        return f"{text}; of what the wheel requires, --find-links and --python lead to no {missing}"


def shorten_list(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def plan_repairs(
    wheels: Sequence[Path], offers: required_packages.PackagePool, request: RepairRequest
) -> tuple[RepairPlan, ...]:
    """Return what becomes of each wheel, in their order; faults are in the plans.

    UsageError for a variant wheel, DataError for a wheel that cannot be read or is for another system.
    """
    for wheel in wheels:
        if label := dist_info.parse_wheel_name(wheel.name).label:
            raise errors.UsageError(
                f"{wheel} is a variant wheel: {label}",
                tip="repair before `wheel stamp`; `wheel retag --label ''` makes a plain wheel of it",
            )
    searched, notes = [], []
    for folder in request.library_dirs:
        if not folder.is_dir():
            raise errors.UsageError(
                f"there is no folder {folder} to graft libraries from",
                tip="correct --library-dir of `wheel repair`, or ROCM_WHEELS_LIBRARY_DIRS of a build",
            )
        names = sorted(file.name for file in folder.iterdir() if _LIBRARY.search(file.name))
        if name := next(filter(is_rocm_library, names), None):
            notes.append(f"{folder} is not searched: it has {name}, and nothing of ROCm is grafted")
        else:
            searched.append(folder)
    searching = replace(request, library_dirs=tuple(searched))
    plans = parallel.run_in_parallel(
        lambda wheel: _plan_repair(wheel, offers, searching), wheels, jobs=os.cpu_count() or 1
    )
    return tuple(replace(plan, notes=(*plan.notes, *notes)) for plan in plans)


def _plan_repair(wheel: Path, offers: required_packages.PackagePool, request: RepairRequest) -> RepairPlan:
    from rocm_wheels.package import repair_linux, repair_windows
    from rocm_wheels.wheels import required_packages

    if recipe := find_project_of(canonicalize_name(dist_info.parse_wheel_name(wheel.name).distribution)):
        said = dict.fromkeys(recipe.repair.exclude, f"the recipe of {recipe.name}")
        request = replace(request, excludes={**said, **request.excludes})
    platform = required_packages.read_wheel_platform(wheel)
    if platform is None:
        libraries = required_packages.read_host_binaries(wheel)
        fault = f"its name says any machine, and it holds {shorten_list(sorted(libraries))}"
        return RepairPlan(wheel, "any", wheel.name, faults=(fault,) if libraries else ())
    if platform.system == "windows":
        return repair_windows.plan_windows_repair(wheel, platform, offers, request)
    return repair_linux.plan_linux_repair(wheel, platform, offers, request)


def require_repairable(plans: Sequence[RepairPlan]) -> None:
    """Raise PackageError with every fault of every wheel."""
    faults = [
        f"{plan.source.name}: {text}" for plan in plans if plan.faults for text in (*plan.faults, *plan.notes)
    ]
    if not faults:
        return
    failed = sum(bool(plan.faults) for plan in plans)
    which = "the wheel" if len(plans) == 1 else f"{failed} of {tables.format_count(len(plans), 'wheel')}"
    head = f"{which} cannot be repaired; nothing was written"
    raise errors.PackageError("\n  ".join([head, *faults]))


def write_repairs(
    plans: Sequence[RepairPlan],
    folder: Path | None,
    env: Mapping[str, str],
    *,
    addition: WheelEdit | None = None,
) -> list[Path]:
    """Write the repaired wheels into ``folder`` (None: beside each wheel): all of them, or none.

    ``addition``: what they are given besides, in the same pass; then those are written, too, that need no
    repair.
    PackageError for a plan with faults and when a tool fails; DataError when a file of that name has another
    content.
    """
    require_repairable(plans)
    targets = [(folder or plan.source.parent) / plan.file_name for plan in plans]
    rewrite.require_distinct_targets(
        (plan.source, target) for plan, target in zip(plans, targets, strict=True)
    )
    with write_together.write_together() as batch:

        def make_wheel(number: int) -> None:
            _make_repaired(plans[number], batch.find_stage(targets[number].parent), env, addition)

        parallel.run_in_parallel(make_wheel, range(len(plans)), jobs=os.cpu_count() or 1)
    return targets


def _make_repaired(plan: RepairPlan, stage: Path, env: Mapping[str, str], addition: WheelEdit | None) -> None:
    """Write one wheel and what goes with it into a folder; nothing of one that stays where it is."""
    from rocm_wheels.package import repair_linux, repair_windows

    if plan.is_empty and addition is not None:
        rewrite.rewrite_wheel(plan.source, stage, addition)
        return
    if not plan.is_empty:
        is_windows = plan.system == "windows"
        write = repair_windows.write_windows_repair if is_windows else repair_linux.write_linux_repair
        path = write(plan, stage, env, addition or WheelEdit())
        # another tool wrote it where something was grafted
        if plan.grafts and (origin := statement.read_origin(plan.source)) is not None:
            statement.write_step_statement([origin], path, "repair")
    elif stage.parent.resolve() != plan.source.parent.resolve():
        rewrite.copy_wheel(plan.source, stage / plan.file_name)
    else:
        with WheelArchive.open(plan.source) as archive:
            scan.require_whole(archive)  # copying and rewriting do so, too


def graft_libraries(
    plan: RepairPlan,
    wheel: Path,
    tool: tuple[str, Sequence[str]],
    env: Mapping[str, str],
    list_libraries: Callable[[Path], Iterable[str]],
) -> Path:
    """Have a tool (its name and words) take the libraries of a plan into a wheel; return the new wheel.

    ``list_libraries`` returns the libraries in a wheel. PackageError when the tool fails, or took anything
    else: what it puts into their names is left out of account.
    """
    name, words = tool
    target = Path(words[words.index("--wheel-dir") + 1])
    process.capture_output(
        [sys.executable, "-m", name, "repair", *words, wheel],
        env={**env, "SOURCE_DATE_EPOCH": env.get("SOURCE_DATE_EPOCH", str(wheel_writer.DEFAULT_EPOCH))},
        check=errors.PackageError,
        timeout=None,
        description=f"{name} repair",
    )
    (grafted,) = target.glob("*.whl")
    new = set(list_libraries(grafted)) - set(list_libraries(wheel))
    taken = sorted(_HASH.sub("", posixpath.basename(library)) for library in new)
    if taken != sorted(graft.source.resolve().name for graft in plan.grafts):
        raise errors.PackageError(f"{name} took {', '.join(taken) or 'nothing'} into {plan.source.name}")
    return grafted
