"""METADATA and WHEEL edited by the line: what is not meant stays as it is, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.errors import DataError

MetadataField = tuple[
    str, list[bytes]
]  # name in lower case, lines with their ends: the first and its folded ones


def read_metadata_fields(content: bytes, name: str) -> tuple[list[MetadataField], bytes]:
    """Take the header of METADATA or WHEEL apart: its fields, and the rest from the empty line on."""
    fields: list[MetadataField] = []
    at = 0
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line = content[at:end]
        if not line.strip(b"\r\n"):
            break
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1][1].append(line)
        else:
            key, colon, _ = line.partition(b":")
            if not colon:
                raise DataError(f"{name}: {line!r} is not a field")
            fields.append((key.decode("ascii", "replace").strip().lower(), [line]))
        at = end
    return fields, content[at:]


def get_field_value(field: MetadataField) -> str:
    """Return the value of a field, unfolded."""
    text = b"".join(field[1]).partition(b":")[2].decode("utf-8", "surrogateescape")
    return " ".join(part.strip() for part in text.splitlines()).strip()


def get_field_values(fields: Sequence[MetadataField], name: str) -> tuple[str, ...]:
    """Return the values of all fields of one name."""
    return tuple(get_field_value(field) for field in fields if field[0] == name.lower())


def replace_field_values(content: bytes, changes: Mapping[str, Sequence[str]], name: str) -> bytes:
    """Return METADATA or WHEEL with other values for the named fields; no values remove a field.

    They stand where the first one stood, else behind the last field. A value that stays keeps its lines
    as they are written.
    """
    fields, rest = read_metadata_fields(content, name)
    end = b"\r\n" if fields and fields[0][1][0].endswith(b"\r\n") else b"\n"
    for key, values in changes.items():
        old = [field for field in fields if field[0] == key.lower()]
        if [get_field_value(field) for field in old] == list(values):
            continue
        by_value = {get_field_value(field): field for field in old}
        new = [by_value.get(v) or (key.lower(), [f"{key}: {v}".encode() + end]) for v in values]
        at = next((i for i, field in enumerate(fields) if field[0] == key.lower()), len(fields))
        before = [field for field in fields[:at] if field[0] != key.lower()]
        fields = [*before, *new, *(field for field in fields[at:] if field[0] != key.lower())]
    for _, lines in fields:  # the last line of a file may lack its end, and may no longer be the last
        if not lines[-1].endswith(b"\n"):
            lines[-1] += end
    return b"".join(line for _, lines in fields for line in lines) + rest
