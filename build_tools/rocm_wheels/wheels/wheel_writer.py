"""Write a wheel: the same bytes for the same input, files of any size, nothing half-written.

Dates are fixed, members sorted with the dist-info folder last (PEP 427), modes 0644 or 0755,
digests urlsafe base64 without padding.
"""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.core import errors, files
from rocm_wheels.wheels import dist_info, metadata_wheel, rewrite, stored_member, zip_format

DEFAULT_EPOCH = 1_580_601_600
"""2020-02-02, when ``SOURCE_DATE_EPOCH`` says nothing else."""

_EARLIEST_EPOCH = 315_532_800  # 1980-01-01: a zip archive can hold no earlier date


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


def write_wheel(plan: WheelPlan, folder: Path, *, epoch: int = DEFAULT_EPOCH) -> Path:
    """Write the wheel into ``folder`` and return its path.

    ``epoch`` is the date of all members in seconds (UTC). SdkError when a file cannot be read or written, or
    the wheel is there with other bytes.
    """
    target = folder / plan.file_name
    members = {**dict(sorted(plan.files.items())), **_format_metadata(plan)}
    try:
        with files.open_hidden_file(target) as hidden:
            with rewrite.ArchiveWriter.open(hidden.descriptor, hidden.descriptor, target) as sink:
                rewrite.write_archive(sink, _pack_members(plan, members, epoch))
            hidden.commit(replace=False)
    except OSError as cause:
        raise errors.SdkError(f"{plan.file_name} cannot be written") from cause
    return target


def _pack_members(
    plan: WheelPlan, members: Mapping[str, PlannedMember], epoch: int
) -> Iterator[rewrite.NewMember]:
    """Yield the members, each packed into a file that is gone when the next one is asked for, and RECORD."""
    date, time = zip_format.encode_date(max(epoch, _EARLIEST_EPOCH))
    rows: list[dist_info.RecordEntry] = []
    for name, member in members.items():
        empty, _ = zip_format.make_zip_entry(name, b"", date=date, time=time)
        entry = empty._replace(external=(stat.S_IFREG | (0o755 if member.executable else 0o644)) << 16)
        with ExitStack() as stack:
            pieces: Iterable[bytes] = [member.source] if isinstance(member.source, bytes) else ()
            if isinstance(member.source, Path):
                pieces = files.read_pieces(stack.enter_context(member.source.open("rb")))
            packed = stored_member.pack_member(entry, pieces, stack)
            rows.append(dist_info.RecordEntry(name, packed.digest, packed.entry.size))
            yield rewrite.NewMember(packed.entry, packed)
    record = f"{plan.dist_info}/RECORD"
    rows.append(dist_info.RecordEntry(record, "", None))
    content = "".join(map(dist_info.format_record_row, rows)).encode()
    yield rewrite.NewMember(*zip_format.make_zip_entry(record, content, date=date, time=time))


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
    fields = dist_info.split_wheel_name(plan.file_name)
    wheel = metadata_wheel.format_wheel_text(fields, pure=fields.platform == "any")
    texts = {"METADATA": ("\n".join(lines) + "\n").encode(), "WHEEL": wheel}
    if plan.scripts:
        scripts = [f"{name} = {target}" for name, target in sorted(plan.scripts.items())]
        texts["entry_points.txt"] = ("[console_scripts]\n" + "\n".join(scripts) + "\n").encode()
    return {f"{plan.dist_info}/{name}": PlannedMember(text) for name, text in sorted(texts.items())}


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
    files.replace_folder(fresh, target)
    return True


def refuse_foreign_files(target: Path, names: Set[str]) -> None:
    """Raise SdkError when a folder holds files that are not among ``names``."""
    present = target.iterdir() if target.exists() else ()
    strangers = sorted(path.name for path in present if path.name not in names)
    if strangers:
        raise errors.SdkError(
            f"{target} holds {', '.join(strangers[:3])}{' …' if strangers[3:] else ''},"
            " which this run does not make",
            tip="give another --output-dir, or remove these files",
        )


def _is_same_file(first: Path, other: Path) -> bool:
    import filecmp

    return other.is_file() and filecmp.cmp(first, other, shallow=False)
