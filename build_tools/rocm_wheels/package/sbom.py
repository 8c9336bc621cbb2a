"""Write into a finished wheel what it was built from: its lock, its bill of materials, and pins.

The lock is ``*.dist-info/sources.lock.json``: the part of the lock that made the wheel, its project and
those that it is built against. What else the lock pins may change without another byte in this wheel.

Pins are in METADATA: exact versions of what the wheel was built against. Some builds write them when they
are told the version (torchvision, torchaudio to 2.10), some never do (torchaudio since then, apex).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.models.project import load_project
from rocm_wheels.wheels import dist_info, rewrite, sbom
from rocm_wheels.wheels.edit import WheelEdit

if TYPE_CHECKING:
    from rocm_wheels.models.lock import Lock

LOCK_MEMBER = "sources.lock.json"
_NOT_CONTENT = tuple(f".dist-info/{name}" for name in (LOCK_MEMBER, sbom.SBOM_MEMBER, "RECORD", "WHEEL"))


def extract_lock_part(lock: Lock, name: str) -> str:
    """Return the text of the lock of one project and, of those locked, all that it is built after.

    Tools are left out: the statement beside a wheel has those that it was built with.
    """
    from rocm_wheels.sources.lock import format_lock

    selected: set[str] = set()
    pending = [name]
    while pending:
        project_name = pending.pop()
        if project_name in lock.projects and project_name not in selected:
            selected.add(project_name)
            pending += load_project(project_name).build.after
    projects = {
        project_name: project for project_name, project in lock.projects.items() if project_name in selected
    }
    part = lock.replace_tools({}).model_copy(update={"projects": projects})
    return format_lock(part)


def digest_lock_part(lock: Lock, name: str) -> str:
    """Return the SHA-256 of ``extract_lock_part``, in hex."""
    return hashlib.sha256(extract_lock_part(lock, name).encode()).hexdigest()


def list_source_parts(
    project: str, lock: Lock | None, commit: str, changed: str | None
) -> tuple[sbom.SourcePart, ...]:
    """Return the repositories of one project: those of its lock, else the ``commit`` of its tree alone.

    ``changed``: the digest of a tree that somebody has changed since its commit.
    """
    locked = lock.projects.get(project) if lock is not None else None
    if locked is None:
        return (sbom.SourcePart(project, "", commit, tree=changed),)
    patches = locked.patches.digest if locked.patches is not None else None
    root = sbom.SourcePart(project, locked.origin, locked.commit, patches=patches, tree=changed)
    submodules = [
        sbom.SourcePart(path.rpartition("/")[2], submodule.origin, submodule.commit, path)
        for path, submodule in sorted((locked.submodules or {}).items())
    ]
    return (root, *submodules)


def make_provenance_edit(text: bytes | None, parts: sbom.WheelParts) -> WheelEdit:
    """Return the edit that puts a lock, if there is one, and the bill of materials into a wheel."""
    put = {} if text is None else {LOCK_MEMBER: text}
    return WheelEdit(put=put, parts=parts, plain_modes=True)


def require_pins(wheel: Path, pins: Sequence[str], external: Sequence[str] = ()) -> None:
    """Have METADATA of a wheel require what it was built against; one that does so is not written again.

    ``pins``: see ``narrow_requirements``; ``external``: what it requires of the system, besides what its own
    build says. DataError for a wheel that is damaged; it is left as it was.
    """
    name = f"{wheel.name}: METADATA"
    fields, _ = dist_info.read_metadata_fields(rewrite.read_dist_info_files(wheel)["METADATA"], name)
    required, stated = (
        dist_info.get_field_values(fields, key) for key in ("Requires-Dist", "Requires-External")
    )
    requires = narrow_requirements(required, pins=pins)
    externals = list(dict.fromkeys([*stated, *external]))
    if (requires, externals) != (list(required), list(stated)):
        edit = WheelEdit(requirements=lambda _: requires, external=lambda _: externals)
        rewrite.rewrite_wheel(wheel, wheel.parent, edit, replace=True)


def narrow_requirements(requires: Sequence[str], *, pins: Sequence[str]) -> list[str]:
    """Return requirements narrowed to ``pins``; one that is missing is added.

    A requirement that does not admit the version of a pin stays as it is: its build knows of another
    version, and the checks of the wheel say so. So does one that holds only with an extra.
    """
    narrowed = list(requires)
    for pin in pins:
        pinned = Requirement(pin)
        (exact,) = pinned.specifier
        if not any(_contradicts_pin(text, pinned.name, exact.version) for text in narrowed):
            others = [text for text in narrowed if not _names_project(text, pinned.name)]
            position = next(
                (n for n, text in enumerate(narrowed) if _names_project(text, pinned.name)), len(others)
            )
            narrowed = [*others[:position], pin, *others[position:]]
    return narrowed


def _names_project(text: str, name: str) -> bool:
    requirement = Requirement(text)
    same = canonicalize_name(requirement.name) == canonicalize_name(name)
    return same and "extra" not in str(requirement.marker or "")


def _contradicts_pin(text: str, name: str, version: str) -> bool:
    requirement = Requirement(text)
    admits = requirement.url is None and requirement.specifier.contains(version, prereleases=True)
    return _names_project(text, name) and not admits


def digest_content(wheel: Path) -> str:
    """Return a digest of all that a wheel holds, as its RECORD lists it, but for what says where it is from.

    Its tags are no content: a repair that gives a wheel another changes nothing for what is built against it.
    Nothing is inflated.
    """
    files = rewrite.read_dist_info_files(wheel)
    return digest_record(dist_info.parse_wheel_record(files["RECORD"], name=f"RECORD of {wheel.name}"))


def digest_record(record: Iterable[dist_info.RecordEntry]) -> str:
    """Return the same digest of a RECORD that is read already."""
    lines = sorted(
        f"{entry.path}\0{entry.digest}\0{entry.size}\n"
        for entry in record
        if not entry.path.endswith(_NOT_CONTENT)
    )
    return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()
