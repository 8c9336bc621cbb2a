"""Zip archives put together byte by byte, so that each field can be given a wrong value."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

Values = dict[str, Any]


@dataclass
class Member:
    """A member; ``local`` and ``central`` are values that its two headers have instead of the right ones."""

    name: bytes
    content: bytes = b"x = 1\n"
    method: int = 8
    flags: int = 0
    mode: int = 0o100644
    extra: bytes = b""
    packed: bytes | None = None
    before: bytes = b""
    behind: bytes = b""
    local: Values = field(default_factory=dict)
    central: Values = field(default_factory=dict)

    def values(self) -> Values:
        """The right values of both headers."""
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        deflated = packer.compress(self.content) + packer.flush()
        data = self.packed if self.packed is not None else deflated if self.method == 8 else self.content
        return {
            "name": self.name,
            "flags": self.flags,
            "needed": 20,
            "method": self.method,
            "crc": zlib.crc32(self.content),
            "compressed": len(data),
            "size": len(self.content),
            "extra": self.extra,
            "external": self.mode << 16,
            "comment": b"",
            "disk": 0,
            "data": data,
        }


@dataclass
class Archive:
    """An archive; ``end`` and ``wide`` are values instead of the right ones, ``wide`` None means no ZIP64."""

    members: list[Member]
    prefix: bytes = b""
    between: bytes = b""  # in front of the directory
    after: bytes = b""  # behind the directory
    comment: bytes = b""
    tail: bytes = b""
    end: Values = field(default_factory=dict)
    wide: Values | None = None

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    def bytes(self) -> bytes:
        """The archive."""
        made, directory = bytearray(self.prefix), bytearray()
        for member in self.members:
            made += member.before
            right = member.values()
            offset = len(made)
            v = {**right, **member.local}
            made += pack("<4sHHHHHLLLHH", b"PK\3\4", 20, v["flags"], v["method"], 0, 33, v["crc"],
                         v["compressed"], v["size"], len(v["name"]), len(v["extra"]))  # fmt: skip
            made += v["name"] + v["extra"] + right["data"] + member.behind
            v = {"offset": offset, **right, **member.central}
            directory += pack("<4sBBHHHHHLLLHHHHHLL", b"PK\1\2", 20, 3, v["needed"], v["flags"], v["method"],
                              0, 33, v["crc"], v["compressed"], v["size"], len(v["name"]), len(v["extra"]),
                              len(v["comment"]), v["disk"], 0, v["external"], v["offset"])  # fmt: skip
            directory += v["name"] + v["extra"] + v["comment"]
        made += self.between
        at, count = len(made), len(self.members)
        made += directory + self.after
        right = {"disk": 0, "first": 0, "here": count, "count": count, "size": len(directory), "offset": at}
        if self.wide is not None:
            w = {"mark": b"PK\6\6", "length": 44, "at": len(made), "disks": 1, **right, **self.wide}
            made += pack("<4sQHHLLQQQQ", w["mark"], w["length"], 45, 45, w["disk"], w["first"], w["here"],
                         w["count"], w["size"], w["offset"])  # fmt: skip
            made += pack("<4sLQL", b"PK\6\7", 0, w["at"], w["disks"])
        e = {**right, "comment": len(self.comment), **self.end}
        made += pack("<4sHHHHLLH", b"PK\5\6", e["disk"], e["first"], e["here"], e["count"], e["size"],
                     e["offset"], e["comment"])  # fmt: skip
        return bytes(made + self.comment + self.tail)

    def write(self, folder: Path, name: str = "demo-1.0-py3-none-any.whl") -> Path:
        """Write the archive."""
        path = folder / name
        path.write_bytes(self.bytes())
        return path


def extra(number: int, content: bytes) -> bytes:
    """A field of an extra area."""
    return pack("<HH", number, len(content)) + content


def descriptor(member: Member, **wrong: int) -> bytes:
    """The data descriptor of a member."""
    v = {**member.values(), **wrong}
    return pack("<4sLLL", b"PK\7\10", v["crc"], v["compressed"], v["size"])
