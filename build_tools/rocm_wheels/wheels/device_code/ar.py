"""Static libraries (``ar``): GNU, BSD and Windows spellings of member names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocm_wheels.wheels.device_code.span import BinarySpan

AR_MAGIC = b"!<arch>\n"
THIN_AR_MAGIC = b"!<thin>\n"
_AR_HEADER_SIZE = 60
_AR_INDEXES = ("/", "/SYM64/", "/<ECSYMBOLS>/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64")


def read_ar_members(span: BinarySpan) -> Iterator[BinarySpan]:
    """Yield the object files of an archive; symbol indexes and name tables are left out.

    DataError for a thin archive (its members are elsewhere) and for a broken header.
    """
    if span.starts_with(THIN_AR_MAGIC):
        raise span.make_fault("a thin archive: its members are other files", tip="name those files instead")
    long_names = b""
    at = len(AR_MAGIC)
    while at < len(span):
        header = bytes(span.get_part(at, _AR_HEADER_SIZE, "a member header"))
        name, size = header[:16].decode("latin-1").rstrip(" "), header[48:58].strip()
        if header[58:60] != b"`\n" or not re.fullmatch(rb"[0-9]+", size):
            raise span.make_fault(f"the member header at {at} is broken")
        start, length = at + _AR_HEADER_SIZE, int(size)
        content = span.get_part(start, length, f"member {name}")
        at = start + length + length % 2
        if name == "//":
            long_names = bytes(content)
            continue
        if re.fullmatch(r"#1/[0-9]+", name):  # BSD: the name stands before the content
            cut = int(name[3:])
            if cut > length:
                raise span.make_fault(f"the member header at {start} has a name longer than the member")
            name = bytes(content[:cut]).rstrip(b"\0").decode("utf-8", "replace")
            content = content[cut:]
        elif re.fullmatch(r"/[0-9]+", name):  # GNU: an offset into the table of long names
            name = re.split(rb"[\n\0]", long_names[int(name[1:]) :], maxsplit=1)[0].decode("utf-8", "replace")
        if name in _AR_INDEXES:
            continue
        yield BinarySpan(content, f"{span.place}({name.removesuffix('/')})")
