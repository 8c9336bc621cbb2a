"""Write a wheel: the same bytes for the same input, files of any size, nothing half-written.

Dates are fixed, members sorted with the dist-info folder last (PEP 427), modes 0644 or 0755,
digests urlsafe base64 without padding.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rocm_wheels.core import errors
from rocm_wheels.core.files import hash_pieces, read_pieces, replace_folder
from rocm_wheels.wheels.dist_info import encode_record_digest

DEFAULT_EPOCH = 1_580_601_600
"""2020-02-02, when ``SOURCE_DATE_EPOCH`` says nothing else."""

_EARLIEST_EPOCH = 315_532_800  # 1980-01-01: a zip archive can hold no earlier date
_LARGE = 1 << 31


@dataclass(frozen=True)
class PlannedMember:
    """A file of a wheel: bytes, or a file on disk (its link, if it is one, followed)."""

    source: bytes | Path
    executable: bool = False


@dataclass(frozen=True)
class WheelPlan:
    """All that a wheel will be; ``files`` maps paths in the archive to their content.

    ``extras`` maps an extra to its requirements, ``scripts`` a console script to ``module:function``.
    """

    distribution: str
    version: str
    summary: str
    tag: str
    files: Mapping[str, PlannedMember]
    requires: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    description: str = ""

    @property
    def file_name(self) -> str:
        """The wheel's file name (binary distribution format, escaped name)."""
        return f"{self._stem}-{self.tag}.whl"

    @property
    def dist_info(self) -> str:
        """The name of the metadata folder inside."""
        return f"{self._stem}.dist-info"

    @property
    def _stem(self) -> str:
        return f"{re.sub(r'[-_.]+', '_', self.distribution).lower()}-{self.version}"


def write_wheel(plan: WheelPlan, folder: Path, *, epoch: int = DEFAULT_EPOCH, compress: bool = True) -> Path:
    """Write the wheel into ``folder`` and return its path.

    ``epoch`` is the date of all members in seconds (UTC). SdkError when a file cannot be read.
    """
    target = folder / plan.file_name
    rows: list[tuple[str, str, str]] = []
    members = {**dict(sorted(plan.files.items())), **_format_metadata(plan)}
    try:
        with zipfile.ZipFile(
            target, "x", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        ) as archive:
            for name, member in members.items():
                rows.append((name, *_add_member(archive, name, member, epoch, compress)))
            record = f"{plan.dist_info}/RECORD"
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
            _add_member(archive, record, PlannedMember(text.getvalue().encode()), epoch, compress)
    except OSError as cause:
        target.unlink(missing_ok=True)
        raise errors.SdkError(f"{plan.file_name} cannot be written") from cause
    return target


def write_wheel_folder(plan: WheelPlan, folder: Path) -> None:
    """Write the content of a wheel into a new folder, with METADATA and without RECORD. Raises SdkError."""
    try:
        for name, member in {**plan.files, **_format_metadata(plan)}.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(member.source, bytes):
                target.write_bytes(member.source)
            else:
                shutil.copyfile(member.source, target)
            target.chmod(0o755 if member.executable else 0o644)
    except OSError as cause:
        raise errors.SdkError(f"{folder} cannot be written") from cause


def _add_member(
    archive: zipfile.ZipFile, name: str, member: PlannedMember, epoch: int, compress: bool
) -> tuple[str, str]:
    """Stream one member into the archive; its digest and size for RECORD."""
    info = zipfile.ZipInfo(name, time.gmtime(max(epoch, _EARLIEST_EPOCH))[:6])
    info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    info.external_attr = (stat.S_IFREG | (0o755 if member.executable else 0o644)) << 16
    info.create_system = 3  # Unix, wherever we run: the modes count
    if isinstance(member.source, bytes):
        source: BinaryIO = io.BytesIO(member.source)
        size = len(member.source)
    else:
        source = member.source.open("rb")
        size = member.source.stat().st_size
    with source, archive.open(info, "w", force_zip64=size >= _LARGE) as sink:
        digest = hash_pieces(read_pieces(source), sink.write)
    return encode_record_digest(bytes.fromhex(digest)), str(info.file_size)


def _format_metadata(plan: WheelPlan) -> dict[str, PlannedMember]:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {plan.distribution}",
        f"Version: {plan.version}",
        f"Summary: {plan.summary}",
        "Requires-Python: >=3.10",
        *(f"Requires-Dist: {requirement}" for requirement in plan.requires),
    ]
    for extra, requirements in sorted(plan.extras.items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {_add_extra_marker(requirement, extra)}" for requirement in requirements]
    if plan.description:
        lines += ["Description-Content-Type: text/markdown", "", plan.description.rstrip()]
    pure = plan.tag.endswith("-any")
    wheel = (
        f"Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: {str(pure).lower()}\nTag: {plan.tag}\n"
    )
    files = {"METADATA": "\n".join(lines) + "\n", "WHEEL": wheel}
    if plan.scripts:
        scripts = [f"{name} = {target}" for name, target in sorted(plan.scripts.items())]
        files["entry_points.txt"] = "[console_scripts]\n" + "\n".join(scripts) + "\n"
    return {f"{plan.dist_info}/{name}": PlannedMember(text.encode()) for name, text in sorted(files.items())}


def _add_extra_marker(requirement: str, extra: str) -> str:
    name, _, marker = requirement.partition(";")
    return f'{name}; {marker.strip()} and extra == "{extra}"' if marker else f'{name}; extra == "{extra}"'


def publish_wheels(fresh: Path, target: Path) -> bool:
    """Put a finished folder of wheels in place of ``target``, by renaming both.

    Returns ``False``, leaving everything as it was, when ``target`` already holds the same
    bytes. SdkError when it holds a file that ``fresh`` has not: nobody's work is thrown away.
    Killed between the renames, the old wheels are in ``.<name>.old`` until the next run.
    """
    names = {path.name for path in fresh.iterdir()}
    refuse_foreign_files(target, names)
    if target.exists() and all(_is_same_file(fresh / name, target / name) for name in names):
        shutil.rmtree(fresh)
        return False
    replace_folder(fresh, target)
    return True


def refuse_foreign_files(target: Path, names: Set[str]) -> None:
    """Raise SdkError when a folder holds files that are not among ``names``."""
    files = target.iterdir() if target.exists() else ()
    strangers = sorted(path.name for path in files if path.name not in names)
    if strangers:
        raise errors.SdkError(
            f"{target} holds {', '.join(strangers[:3])}{' …' if strangers[3:] else ''},"
            " which this run does not make",
            tip="give another --output-dir, or remove these files",
        )


def _is_same_file(first: Path, other: Path) -> bool:
    import filecmp

    return other.is_file() and filecmp.cmp(first, other, shallow=False)
