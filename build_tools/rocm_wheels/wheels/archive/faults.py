"""Every fault of an archive by name: a table, so that none is refused without one.

Sources: PKWARE APPNOTE 6.3.10; what PyPI refuses since 2025-08 (warehouse, ``utils/zipfiles.py``)
and uv since 0.8.6 and 0.9.6 (CVE-2025-54368, GHSA-pqhf-p39g-3x64): archives that two readers read
in two ways. We refuse all of those, and what leads out of the folder it is unpacked to.
"""

from __future__ import annotations

from dataclasses import dataclass

ARCHIVE_FAULTS = {
    # the archive: nothing behind these can be relied on
    "no-end": "no end record where an archive ends: cut short, or no archive",
    "two-ends": "a second end record behind the first: readers disagree about which counts",
    "trailing-bytes": "bytes behind the end of the archive",
    "prefix": "bytes in front of the first member",
    "several-disks": "a part of an archive on several disks",
    "directory-place": "the directory does not lie where the end record says",
    "directory-damaged": "the directory holds something that is no entry",
    "directory-size": "a directory larger than any wheel has",
    "entry-count": "more or fewer entries than the end record says",
    "zip64-end": "the ZIP64 end record is missing, misplaced or of another form",
    "zip64-end-disagrees": "the ZIP64 end record contradicts the end record",
    "hidden-bytes": "bytes between members that belong to none: readers from the front find members there",
    "ratio": "over 64 MB of content that is more than 50 times the archive (the limits of PyPI)",
    # names
    "name-empty": "an empty name",
    "name-control": "NUL or another control character in a name: readers cut it there or skip it",
    "name-encoding": "a name that is neither ASCII nor marked, valid UTF-8: readers decode it in two ways",
    "name-unicode-extra": "an extra field gives the member another name",
    "name-absolute": "an absolute name",
    "name-upward": "a name with ..",
    "name-backslash": "a backslash in a name: a separator to some readers",
    "name-drive": "a name with a drive",
    "name-dots": "a name with . or an empty part: readers drop those",
    "name-twice": "several members of one name",
    "name-collides": "names that are one on a file system that folds case or Unicode forms",
    "file-and-folder": "a file that is a folder to other members",
    # entries
    "encrypted": "an encrypted member",
    "method": "a compression method other than stored and deflated",
    "version": "a member that asks for a reader of a version that does not exist",
    "flags": "patched data or a masked header",
    "file-type": "a device, pipe or socket",
    "folder-content": "a folder with content",
    "extra-damaged": "an extra field that is cut short, or one that may come once comes twice",
    "zip64-extra": "ZIP64 values that are missing, superfluous or of another form",
    "stored-size": "a stored member of two sizes",
    "bomb": "more content than its bytes can inflate to",
    "past-end": "a member that reaches past the end of the members: cut short",
    "overlap": "members on top of each other",
    "local-missing": "no member where the directory says",
    "local-name": "its own header gives another name",
    "local-flags": "its own header gives other flags",
    "local-method": "its own header gives another compression method",
    "local-crc": "its own header gives another CRC",
    "local-size": "its own header gives other sizes",
    "descriptor": "the data descriptor behind the member is missing or gives other values",
    # contents, seen when they are inflated
    "crc": "content that does not have the CRC of the directory",
    "size": "content of another size than the directory says",
    "deflate": "a deflate stream that is damaged or cut short",
    "deflate-rest": "bytes behind the end of the deflate stream",
    "link-out": "a symbolic link out of the folder it is unpacked to",
    # harmless to us, refused by PyPI: rewriting leaves them out
    "data-descriptor": "sizes behind the content instead of before it (PyPI refuses this)",
    "comment": "a comment of the archive or a member (PyPI refuses those of members)",
}

REPAIRED_FAULTS = frozenset({"data-descriptor", "comment"})
"""Faults that a rewritten wheel no longer has, and that do not keep anybody from reading this one."""

_NAME_FAULTS = frozenset(
    {"name-upward", "name-absolute", "name-backslash", "name-drive", "name-twice", "name-dots", "name-empty"}
    | {"name-control", "name-encoding", "name-unicode-extra", "name-collides", "file-and-folder"}
)


@dataclass(frozen=True)
class ArchiveFault:
    """A fault: its name in ``ARCHIVE_FAULTS``, the member ("" for the archive), and what is the matter."""

    kind: str
    member: str
    text: str

    def __str__(self) -> str:
        return f"{self.member}: {self.text}" if self.member else self.text

    @property
    def is_repairable(self) -> bool:
        """Tell whether rewriting the wheel is all it needs."""
        return self.kind in REPAIRED_FAULTS

    @property
    def is_readable(self) -> bool:
        """Tell whether the member's content can be read all the same: only its name is wrong."""
        return self.kind in _NAME_FAULTS or self.is_repairable
