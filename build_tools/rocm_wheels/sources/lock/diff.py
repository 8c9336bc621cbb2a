"""What changed between two locks, from what they say alone: no repository is asked.

A manifest of another tool leaves things out (``None``). What one of the two does not say is never taken
for a change: it is listed as not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rocm_wheels.model.lock import Lock, LockedProject, LockedSubmodule

ChangeKind = Literal["added", "removed", "changed"]
FieldValue = str | tuple[str, ...] | None


@dataclass(frozen=True)
class FieldChange:
    """One thing by its name in the lock, as it was and as it is; ``None`` where there is none."""

    name: str
    old: FieldValue
    new: FieldValue


@dataclass(frozen=True)
class SubmoduleChange:
    """A submodule by its path from the root; ``old`` or ``new`` is ``None`` where it is not there."""

    path: str
    old: LockedSubmodule | None
    new: LockedSubmodule | None

    @property
    def kind(self) -> ChangeKind:
        """Say what happened to it."""
        return _classify_change(self.old, self.new)


@dataclass(frozen=True)
class ProjectChange:
    """A project; ``fields`` and ``submodules`` are empty unless both locks have it.

    ``not_compared``: what only one of the locks says.
    """

    name: str
    old: LockedProject | None
    new: LockedProject | None
    fields: tuple[FieldChange, ...] = ()
    submodules: tuple[SubmoduleChange, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def kind(self) -> ChangeKind:
        """Say what happened to it."""
        return _classify_change(self.old, self.new)

    @property
    def same(self) -> bool:
        """Tell whether nothing that both locks say differs."""
        return self.old is not None and self.new is not None and not (self.fields or self.submodules)

    @property
    def same_files(self) -> bool:
        """Tell whether the commit is another one and yet holds the same files."""
        old, new = self.old, self.new
        if old is None or new is None or old.commit == new.commit:
            return False
        return old.tree is not None and old.tree == new.tree


@dataclass(frozen=True)
class LockDiff:
    """Everything that differs. ``projects`` has every project of either lock, by name."""

    fields: tuple[FieldChange, ...]
    projects: tuple[ProjectChange, ...]
    not_compared: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Tell whether nothing that both locks say differs."""
        return not self.fields and all(project.same for project in self.projects)

    @property
    def complete(self) -> bool:
        """Tell whether both locks say everything that either says."""
        return not self.not_compared and not any(project.not_compared for project in self.projects)


def compare_locks(a: Lock, b: Lock) -> LockDiff:
    """Return what changed from ``a`` to ``b``. Who asked for a ref is no difference."""
    brief = _is_brief(*a.projects.values()), _is_brief(*b.projects.values())
    comparison = _FieldComparison()
    comparison.compare_field("platform", a.platform, b.platform)
    for field_name in ("line", "rocm", "targets", "pythons", "local_version", "named_torch"):
        old, new = getattr(a, field_name), getattr(b, field_name)
        comparison.compare_field(field_name, old, new, unsaid=(brief[0] and not old, brief[1] and not new))
    names = sorted(a.projects.keys() | b.projects.keys())
    projects = tuple(_compare_projects(name, a.projects.get(name), b.projects.get(name)) for name in names)
    return LockDiff(tuple(comparison.fields), projects, tuple(comparison.unsaid))


@dataclass
class _FieldComparison:
    """What differs, and what only one of two says."""

    fields: list[FieldChange] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)

    def compare_field(
        self, name: str, old: FieldValue, new: FieldValue, *, unsaid: tuple[bool, bool] = (False, False)
    ) -> None:
        """Compare one thing; ``unsaid`` tells for each lock whether it does not say it."""
        if old == new or all(unsaid):
            return
        if any(unsaid):
            self.unsaid.append(name)
        else:
            self.fields.append(FieldChange(name, old, new))


def _compare_projects(name: str, old: LockedProject | None, new: LockedProject | None) -> ProjectChange:
    if old is None or new is None:
        return ProjectChange(name, old, new)
    brief = _is_brief(old), _is_brief(new)
    comparison = _FieldComparison()
    comparison.compare_field("origin", old.origin, new.origin)
    # for a pin of which it names no branch, a manifest has the commit alone
    unsaid = brief[0] and old.ref == old.commit, brief[1] and new.ref == new.commit
    comparison.compare_field("ref", old.ref, new.ref, unsaid=unsaid)
    comparison.compare_field("commit", old.commit, new.commit)
    comparison.compare_field(
        "version", old.version, new.version, unsaid=(old.version is None, new.version is None)
    )
    if old.commit == new.commit:  # else the trees are other ones; here one of the locks is wrong
        comparison.compare_field("tree", old.tree, new.tree, unsaid=(old.tree is None, new.tree is None))
    unsaid = brief[0] and old.patches is None, brief[1] and new.patches is None
    comparison.compare_field("patches", _identify_patches(old), _identify_patches(new), unsaid=unsaid)
    submodules: tuple[SubmoduleChange, ...] = ()
    if old.submodules is not None and new.submodules is not None:
        submodules = tuple(_compare_submodules(old.submodules, new.submodules))
    elif old.submodules is not None or new.submodules is not None:
        comparison.unsaid.append("submodules")
    return ProjectChange(name, old, new, tuple(comparison.fields), submodules, tuple(comparison.unsaid))


def _is_brief(*projects: LockedProject) -> bool:
    """Tell whether projects come from a manifest, which leaves out what is not in its schema."""
    return all(project.tree is None and project.submodules is None for project in projects)


def _identify_patches(project: LockedProject) -> tuple[str, ...]:
    return () if project.patches is None else (project.patches.name, project.patches.digest)


def _compare_submodules(
    old: Mapping[str, LockedSubmodule], new: Mapping[str, LockedSubmodule]
) -> Iterator[SubmoduleChange]:
    for path in sorted(old.keys() | new.keys()):
        change = SubmoduleChange(path, old.get(path), new.get(path))
        if change.old is None or change.new is None or not _is_same_submodule(change.old, change.new):
            yield change


def _is_same_submodule(old: LockedSubmodule, new: LockedSubmodule) -> bool:
    trees = {old.tree, new.tree} - {None}
    return (old.origin, old.commit) == (new.origin, new.commit) and len(trees) < 2


def _classify_change(old: object, new: object) -> ChangeKind:
    if old is None:
        return "added"
    return "removed" if new is None else "changed"
