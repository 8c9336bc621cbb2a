"""Make a wheel of METADATA alone, in memory: what an installer reads, and nothing to install.

Members are stored, and dated alike: the same METADATA gives the same bytes on every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import sha256
from itertools import product

from rocm_wheels.wheels import dist_info, zip_format


def format_metadata_text(
    name: str, version: object, summary: str, requires_python: str, requires: Iterable[str]
) -> bytes:
    """Return METADATA of a part of another wheel; ``requires_python`` is "" where none is stated."""
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", f"Summary: {summary}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "".join(f"{line}\n" for line in lines).encode()


def format_wheel_text(fields: dist_info.WheelNameFields, *, pure: bool = False) -> bytes:
    """Return WHEEL of a wheel with such a name; ``pure``: it is not installed beside compiled modules."""
    lines = ["Wheel-Version: 1.0", "Generator: rocm-wheels", f"Root-Is-Purelib: {str(pure).lower()}"]
    lines += [f"Build: {fields.build}"] if fields.build else []
    tags = product(*(part.split(".") for part in (fields.python, fields.abi, fields.platform)))
    lines += [f"Tag: {'-'.join(tag)}" for tag in tags]
    return "".join(f"{line}\n" for line in lines).encode()


def make_metadata_wheel(name: str, metadata: bytes) -> bytes:
    """Return the wheel that is called ``name``. DataError for what is no wheel's name."""
    fields = dist_info.split_wheel_name(name)
    folder = f"{fields.distribution}-{fields.version}.dist-info"
    texts = {f"{folder}/METADATA": metadata, f"{folder}/WHEEL": format_wheel_text(fields)}
    rows = [
        dist_info.RecordEntry(path, dist_info.encode_record_digest(sha256(content).digest()), len(content))
        for path, content in texts.items()
    ]
    rows.append(dist_info.RecordEntry(f"{folder}/RECORD", "", None))
    texts[f"{folder}/RECORD"] = "".join(map(dist_info.format_record_row, rows)).encode()
    date, time = zip_format.FIXED_DATE
    members, directory = b"", b""
    for path, content in texts.items():
        sizes = zlib.crc32(content), len(content), len(content)
        entry = zip_format.ZipEntry(
            path, path.encode(), 0, zip_format.METHOD_STORED, time, date, *sizes, 0o100644 << 16
        )
        directory += zip_format.pack_central_entry(entry, len(members))
        members += zip_format.pack_local_header(entry) + content
    return members + directory + zip_format.pack_end_records(len(texts), len(directory), len(members))
