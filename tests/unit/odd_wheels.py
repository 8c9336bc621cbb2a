"""Odd wheels, a table: each is a small wheel in which nothing is odd but what its name says.

They are put together byte by byte: no library would write most of them.
"""

from __future__ import annotations

import base64
import bz2
import hashlib
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wheels import Archive, Member, descriptor, extra

_LATIN = "café".encode("latin-1")
_MARK = b"\xef\xbb\xbf"


@dataclass
class SmallWheel:
    """A wheel that is right as it is; ``record`` changes RECORD, ``layout`` the archive, when it is made."""

    name: str = "demo"
    version: str = "1.0"
    tag: str = "py3-none-any"
    fields: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"demo.py": b"x = 1\n"})
    texts: dict[str, bytes] = field(default_factory=dict)
    file_name: str = ""
    folder: str = ""
    record: Callable[[bytes], bytes] = bytes
    layout: Callable[[Archive], object] = id

    def __post_init__(self) -> None:
        """Fill in what follows from name, version and tag."""
        stem = f"{self.name}-{self.version}"
        self.file_name, self.folder = f"{stem}-{self.tag}.whl", f"{stem}.dist-info"
        head = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n{self.fields}"
        form = f"Wheel-Version: 1.0\nGenerator: test\n{self.pure}Tag: {self.tag}\n"
        self.texts = {"METADATA": head.encode(), "WHEEL": form.encode()} | self.texts

    @property
    def pure(self) -> str:
        """The line of WHEEL that says whether it is for any platform."""
        return f"Root-Is-Purelib: {str(self.tag.endswith('any')).lower()}\n"

    def swap(self, text: str, old: str, new: str | bytes) -> None:
        """Put something else in place of what a dist-info file has."""
        content, part = self.texts[text], old.encode()
        assert part in content, (text, old)
        self.texts[text] = content.replace(part, new.encode() if isinstance(new, str) else new, 1)

    def write(self, place: Path) -> Path:
        """Write the wheel into a folder; return its path."""
        contents = {**self.files, **{f"{self.folder}/{name}": text for name, text in self.texts.items()}}
        listing = "".join(f"{path},{digest(data)},{len(data)}\n" for path, data in contents.items())
        listing += f"{self.folder}/RECORD,,\n"
        contents[f"{self.folder}/RECORD"] = self.record(listing.encode())
        archive = Archive([Member(name.encode(), content) for name, content in contents.items()])
        self.layout(archive)
        return archive.write(place, self.file_name)


Change = Callable[[SmallWheel], object]


def digest(content: bytes, algorithm: str = "sha256") -> str:
    """Return a digest as RECORD has it."""
    raw = hashlib.new(algorithm, content).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}"


def list_odd_wheels() -> dict[str, Change]:
    """Return the odd kinds: what makes a right wheel one, by its name."""
    groups = {
        "archive": _list_archives(),
        "name": _list_names(),
        "dist-info": _list_folders(),
        "RECORD": _list_records(),
        "WHEEL": _list_forms(),
        "METADATA": _list_metadata(),
        "entry points": _list_entry_points(),
        "data": _list_data(),
        "file name": _list_file_names(),
    }
    rows = ((group, name, change) for group, changes in groups.items() for name, change in changes)
    return {f"{group}: {name}".strip(): change for group, name, change in rows}


def _lay(change: Callable[[Archive], object]) -> Change:
    """Change the archive."""

    def apply(wheel: SmallWheel) -> None:
        wheel.layout = change

    return apply


def _set(**values: object) -> Change:
    """Change values of the archive itself."""

    def change(archive: Archive) -> None:
        for name, value in values.items():
            setattr(archive, name, value)

    return _lay(change)


def _insert(name: bytes, *more: Any, **values: Any) -> Change:
    """Put a member before all others."""
    return _lay(lambda archive: archive.members.insert(0, Member(name, *more, **values)))


def _first(**values: object) -> Change:
    """Change values of the first member, which is a module: of its two headers, where they are in those."""

    def change(archive: Archive) -> None:
        for name, value in values.items():
            setattr(archive[0], name, value)

    return _lay(change)


def _pack(method: int, compress: Callable[[bytes], bytes]) -> Change:
    def change(archive: Archive) -> None:
        archive[0].method, archive[0].packed = method, compress(archive[0].content)

    return _lay(change)


def _deflate(edit: Callable[[bytes], bytes]) -> Change:
    return _lay(lambda archive: setattr(archive[0], "packed", edit(archive[0].values()["data"])))


def _compress_lzma(content: bytes) -> bytes:
    """Return what the zip format has for LZMA: a version, the size of the properties, and raw data."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16}]
    raw = lzma.compress(content, lzma.FORMAT_RAW, filters=filters)
    return b"\x09\x04\x05\x00" + b"\x5d" + (1 << 16).to_bytes(4, "little") + raw


def _list_archives() -> Iterator[tuple[str, Change]]:
    both: Mapping[str, dict[str, object]] = {
        "size too large": {"size": 9999},
        "size too small": {"size": 2},
        "packed size too large": {"compressed": 9999},
        "packed size too small": {"compressed": 2},
        "CRC wrong": {"crc": 1},
        "asks for version 9.9": {"needed": 99},
        "asks for version 4.5": {"needed": 45},
    }
    for name, values in both.items():
        yield name, _first(local=values, central=values)
    for name, values in {
        "size only in the directory": {"size": 9999},
        "CRC only in the directory": {"crc": 1},
        "method only in the directory": {"method": 0},
        "comment of a member": {"comment": b"text"},
        "member on another disk": {"disk": 1},
    }.items():
        yield name, _first(central=values)
    yield "other name in its own header", _first(local={"name": b"evil.py"})
    yield "other size in its own header", _first(local={"size": 2})
    yield "encrypted", _first(flags=1)
    yield "strongly encrypted", _first(flags=0x41)
    yield "patched data", _first(flags=0x20)
    yield "stored", _first(method=0)
    yield "bzip2", _pack(12, bz2.compress)
    yield "LZMA", _pack(14, _compress_lzma)
    yield "method 9", _first(method=9, packed=b"\0")
    yield "Zstandard", _first(method=93, packed=bytes.fromhex("28b52ffd200631000078203d20310a"))
    yield "bytes behind the deflate stream", _deflate(lambda data: data + b"more")
    yield "deflate stream cut", _deflate(lambda data: data[:-2])
    yield "sizes behind the content", _lay(_put_descriptor)
    yield "a wrong descriptor", _lay(lambda a: _put_descriptor(a, crc=1))
    for name, mode in {"link": 0o120777, "pipe": 0o010644, "setuid": 0o104755, "no mode": 0}.items():
        yield name, _first(mode=mode)
    yield "folder of its own", _insert(b"sub/", b"", 0, mode=0o40755)
    yield "folder with content", _insert(b"sub/", mode=0o40755)
    yield "ZIP64 end", _set(wide={})
    count = {"count": 0xFFFF, "here": 0xFFFF}
    yield "ZIP64 end of another count", _set(wide={"count": 1, "here": 1}, end=count)
    yield "ZIP64 values that nobody needs", _first(extra=extra(1, bytes(16)))
    yield "ZIP64 values missing", _first(central={"size": 0xFFFFFFFF})
    yield "extra field cut", _first(extra=b"\1\0\xff\xff")
    yield "extra field with another name", _first(extra=extra(0x7075, b"\1" + bytes(4) + b"evil.py"))
    yield "bytes in front", _set(prefix=b"#!/bin/sh\n")
    yield "bytes between", _set(between=b"between")
    yield "bytes behind", _set(tail=b"behind")
    yield "comment", _set(comment=b"text")
    yield "fewer entries stated", _set(end={"count": 1, "here": 1})
    yield "two archives", _lay(lambda a: setattr(a, "prefix", a.bytes()))
    yield "no members", _lay(lambda a: a.members.clear())


def _put_descriptor(archive: Archive, **wrong: int) -> None:
    member = archive[0]
    member.flags, member.behind = 8, descriptor(member, **wrong)
    member.local = {"crc": 0, "compressed": 0, "size": 0}


def _list_names() -> Iterator[tuple[str, Change]]:
    for name in (
        "../evil.py", "sub/../../evil.py", "sub/../other.py", "/tmp/odd-evil.py", "sub\\evil.py",
        "C:/evil.py", "./evil.py", "sub//evil.py", "evil.py ", "DEMO.py", "a,b.py", 'a"b.py',
        "caf\u00e9.py", "a\nb.py",
    ):  # fmt: skip
        yield repr(name), _add_file(name)
    yield "twice, alike", _lay(lambda a: a.members.insert(0, a.members[0]))
    yield "twice, unlike", _lay(lambda a: a.members.insert(0, Member(a[0].name, b"x = 2\n")))
    yield "METADATA twice, unlike", _lay(lambda a: a.members.insert(0, Member(a[1].name, b"Name: x\n")))
    yield "file and folder", _add_file("demo.py/x.py")
    yield "not UTF-8, marked", _insert(_LATIN, flags=0x800)
    yield "not UTF-8, not marked", _insert(_LATIN)
    yield "NUL", _insert(b"a.py\0.txt")
    yield "empty", _insert(b"")
    yield "long", _add_file("a" * 300 + ".py")


def _add_file(name: str) -> Change:
    """Add a file that RECORD lists, with a name that is marked as UTF-8 where it is not ASCII."""

    def mark(archive: Archive) -> None:
        for member in archive.members:
            if not member.name.isascii():
                member.flags = 0x800

    def change(wheel: SmallWheel) -> None:
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name
        wheel.record = lambda text: text.replace(f"{name},".encode(), f"{quoted},".encode(), 1)
        wheel.files[name], wheel.layout = b"y = 2\n", mark

    return change


def _remove(archive: Archive, suffix: bytes) -> None:
    archive.members[:] = [member for member in archive.members if not member.name.endswith(suffix)]


def _list_folders() -> Iterator[tuple[str, Change]]:
    def rename(folder: str) -> Change:
        return lambda w: setattr(
            w, "folder", folder.format(name=w.name, version=w.version, title=w.name.title())
        )

    yield "name in capitals", rename("{title}-{version}.dist-info")
    yield "other project", rename("other-{version}.dist-info")
    yield "other version", rename("{name}-9.9.dist-info")
    yield "version spelled otherwise", rename("{name}-0!{version}.dist-info")
    yield "no version", rename("{name}.dist-info")
    yield "suffix in capitals", rename("{name}-{version}.DIST-INFO")
    yield "below a folder", rename("sub/{name}-{version}.dist-info")
    for text in ("METADATA", "WHEEL", "RECORD"):
        yield f"no {text}", _lay(partial(_remove, suffix=f"/{text}".encode()))
    yield "none", _lay(lambda a: a.members.__delitem__(slice(1, None)))
    yield "another beside it", _add_file("other-2.0.dist-info/METADATA")
    yield "another version beside it", lambda w: _add_file(f"{w.name}-9.9.dist-info/METADATA")(w)
    yield "empty folder of another beside it", _insert(b"other-2.0.dist-info/", b"", 0, mode=0o40755)
    yield "file of such a name beside it", _add_file("other-2.0.dist-info")
    yield "more files in it", lambda w: w.texts.update({"other.txt": b"text"})


def _list_records() -> Iterator[tuple[str, Change]]:
    def change(edit: Callable[[bytes], bytes]) -> Change:
        return lambda w: setattr(w, "record", edit)

    def row(text: str) -> Change:
        """Put another line in place of the module's; ``{0}`` is its path, ``{1}`` its digest."""

        def edit(wheel: SmallWheel) -> None:
            (name, content), *_ = wheel.files.items()
            line = f"{name},{digest(content)},{len(content)}\n"
            values = (name, digest(content), len(content), hashlib.sha256(content).hexdigest())
            sha512, md5 = digest(content, "sha512"), digest(content, "md5")
            new = text.format(*values, sha512=sha512, md5=md5, sha1=digest(content, "sha1"))
            wheel.record = lambda listing: listing.replace(line.encode(), new.encode(), 1)

        return edit

    wrong = digest(b"other")
    for name, line in {
        "wrong digest": f"{{0}},{wrong},{{2}}\n",
        "wrong size": "{0},{1},999\n",
        "negative size": "{0},{1},-6\n",
        "size with a space": "{0},{1}, {2}\n",
        "size that is none": "{0},{1},six\n",
        "no size": "{0},{1},\n",
        "no digest": "{0},,{2}\n",
        "neither": "{0},,\n",
        "missing row": "",
        "empty line": "\n{0},{1},{2}\n",
        "same row twice": "{0},{1},{2}\n{0},{1},{2}\n",
        "row twice, unlike": f"{{0}},{wrong},{{2}}\n{{0}},{{1}},{{2}}\n",
        "row of an absent file": "absent.py,,\n{0},{1},{2}\n",
        "row that leads out": "../../evil.py,,\n{0},{1},{2}\n",
        "absolute row": "/etc/passwd,,\n{0},{1},{2}\n",
        "SHA-512": "{0},{sha512},{2}\n",
        "SHA-1": "{0},{sha1},{2}\n",
        "MD5": "{0},{md5},{2}\n",
        "unknown algorithm": "{0},sha257=abc,{2}\n",
        "digest in hex": "{0},sha256={3},{2}\n",
        "digest with padding": "{0},{1}=,{2}\n",
        "digest without algorithm": "{0},{3},{2}\n",
        "quoted": '"{0}","{1}","{2}"\n',
        "quote not closed": '"{0},{1},{2}\n',
        "two fields": "{0},{1}\n",
        "one field": "{0}\n",
        "four fields": "{0},{1},{2},\n",
        "path with a dot": "./{0},{1},{2}\n",
        "path in capitals": "DEMO.PY,{1},{2}\n",
    }.items():
        yield name, row(line)
    yield "CR and LF", change(lambda text: text.replace(b"\n", b"\r\n"))
    yield "CR", change(lambda text: text.replace(b"\n", b"\r"))
    yield "last line without end", change(lambda text: text.rstrip())
    yield "byte order mark", change(lambda text: _MARK + text)
    yield "not UTF-8", change(lambda text: _LATIN + b",,\n" + text)
    yield "UTF-16", change(lambda text: text.decode().encode("utf-16"))
    yield "NUL", change(lambda text: text + b"\0")
    yield "empty", change(lambda _text: b"")
    yield "not itself", change(lambda text: b"".join(text.splitlines(keepends=True)[:-1]))
    yield "itself with a digest", change(lambda text: text[:-3] + f",{wrong},3\n".encode())
    yield "signature that is not listed", _lay(lambda a: a.members.append(Member(a[3].name + b".jws")))


def _list_forms() -> Iterator[tuple[str, Change]]:
    def change(old: str, new: str | bytes) -> Change:
        return lambda w: w.swap("WHEEL", old, new)

    def purelib(text: str) -> Change:
        return lambda w: w.swap("WHEEL", w.pure, text)

    version = "Wheel-Version: 1.0\n"
    for name, text in {
        "version 2.0": "2.0", "version 1.9": "1.9", "version 1": "1", "version 1.0.0": "1.0.0",
        "version 0.9": "0.9", "version x": "x", "version empty": "",
        "version with a space": "1. 0", "version +1.0": "+1.0",
    }.items():  # fmt: skip
        yield name, change(version, f"Wheel-Version: {text}\n")
    yield "no version", change(version, "")
    yield "version twice", change(version, version + "Wheel-Version: 2.0\n")
    yield "version in small letters", change(version, version.lower())
    yield "no Root-Is-Purelib", purelib("")
    for text in ("TRUE", "yes", "false", ""):
        yield f"Root-Is-Purelib {text or 'empty'}", purelib(f"Root-Is-Purelib: {text}\n")
    yield "Root-Is-Purelib twice", purelib("Root-Is-Purelib: true\nRoot-Is-Purelib: false\n")
    for name, text in {
        "no Tag": "",
        "other Tag": "Tag: cp27-none-any\n",
        "more Tags": "Tag: py2-none-any\nTag: py3-none-any\n",
        "Tag that is none": "Tag: py3\n",
        "Tag of a set": "Tag: py2.py3-none-any\n",
        "Build that the file name lacks": "Tag: py3-none-any\nBuild: 7\n",
    }.items():
        yield name, lambda w, text=text: w.swap("WHEEL", f"Tag: {w.tag}\n", text)
    yield "empty", lambda w: w.texts.update(WHEEL=b"")
    yield "line without colon", change(version, version + "something\n")
    yield "empty line first", change(version, "\n" + version)
    yield "byte order mark", change(version, _MARK + version.encode())
    yield "not UTF-8", change("Generator: test", b"Generator: " + _LATIN)
    yield "CR and LF", lambda w: w.texts.update(WHEEL=w.texts["WHEEL"].replace(b"\n", b"\r\n"))
    yield "CR", lambda w: w.texts.update(WHEEL=w.texts["WHEEL"].replace(b"\n", b"\r"))
    yield "UTF-16", lambda w: w.texts.update(WHEEL=w.texts["WHEEL"].decode().encode("utf-16"))


def _list_metadata() -> Iterator[tuple[str, Change]]:
    def line(new: str | bytes) -> Change:
        """Add lines to the head."""
        content = new.encode() if isinstance(new, str) else new
        return lambda w: w.texts.update(METADATA=w.texts["METADATA"] + content)

    def field_of(name: str, new: str) -> Change:
        """Put other lines in place of Name or Version."""
        return lambda w: w.swap("METADATA", f"{name}: {getattr(w, name.lower())}\n", new)

    mark = "Metadata-Version: 2.1\n"
    yield "no Name", field_of("Name", "")
    yield "no Version", field_of("Version", "")
    yield "other Name", field_of("Name", "Name: other\n")
    yield "Name in capitals", lambda w: w.swap("METADATA", f"Name: {w.name}", f"Name: {w.name.upper()}")
    yield "Name that is none", field_of("Name", "Name: de mo!\n")
    yield "Name twice", lambda w: w.swap("METADATA", f"Name: {w.name}\n", f"Name: {w.name}\nName: other\n")
    yield "Name twice, alike", lambda w: w.swap("METADATA", f"Name: {w.name}\n", f"Name: {w.name}\n" * 2)
    yield "other Version", field_of("Version", "Version: 9.9\n")
    yield "Version that is none", field_of("Version", "Version: one\n")
    yield "Version spelled otherwise", lambda w: w.swap("METADATA", "\nVersion: ", "\nVersion: v")
    yield "Version twice", line("Version: 9.9\n")
    for text in ("9.9", "3.0", "2.9", "1.0", "x", ""):
        stated = f"Metadata-Version: {text}\n"
        yield f"Metadata-Version {text or 'empty'}", lambda w, to=stated: w.swap("METADATA", mark, to)
    yield "no Metadata-Version", lambda w: w.swap("METADATA", mark, "")
    for text in (
        "a b c", "", ">=1", "foo>=x", "foo (>1.0.*)", "foo>=1.*", "foo; python_version",
        "foo; nothing == '1'", "foo @ ", "foo[", "foo>=1,; extra == 'never'", "foo ; extra == 'never'",
    ):  # fmt: skip
        # what is right in these asks for nothing: it holds for an extra that nobody names
        yield f"Requires-Dist {text or 'empty'}", line(f"Requires-Dist: {text}\n")
    for text in (">=3.8,", ">=3.*", "three", "", ">=3.8;", "=3.11", ">= '3'"):
        yield f"Requires-Python {text or 'empty'}", line(f"Requires-Python: {text}\n")
    yield "Requires-Python twice", line("Requires-Python: >=3\nRequires-Python: >=3.1\n")
    yield "Provides-Extra that is none", line("Provides-Extra: de mo!\n")
    yield "Provides-Extra twice", line("Provides-Extra: a\nProvides-Extra: a\n")
    yield "unknown field", line("Something: else\n")
    yield "line without colon", lambda w: w.swap("METADATA", mark, mark + "something\n")
    yield "folded first line", lambda w: w.swap("METADATA", mark, " folded\n" + mark)
    yield "empty line first", lambda w: w.swap("METADATA", mark, "\n" + mark)
    yield "empty", lambda w: w.texts.update(METADATA=b"")
    yield "byte order mark", lambda w: w.swap("METADATA", mark, _MARK + mark.encode())
    yield "Summary not UTF-8", line(b"Summary: " + _LATIN + b"\n")
    yield "description not UTF-8", line(b"\n" + _LATIN + b"\n")
    yield "NUL", line(b"Summary: a\0b\n")
    yield "CR and LF", lambda w: w.texts.update(METADATA=w.texts["METADATA"].replace(b"\n", b"\r\n"))
    yield "CR within a line", line("Summary: a\rRequires-Dist: evil; extra == 'never'\n")
    yield "space before a colon", line("Requires-Python : >=3\n")
    yield "CR", lambda w: w.texts.update(METADATA=w.texts["METADATA"].replace(b"\n", b"\r"))
    yield "UTF-16", lambda w: w.texts.update(METADATA=w.texts["METADATA"].decode().encode("utf-16"))
    yield "another content type", line("Content-Type: multipart/mixed; boundary=x\n\n--x\n\nbody\n--x--\n")
    yield "description twice", line("Description: one\n\ntwo\n")
    yield "License fields of two kinds", line("License: MIT\nLicense-Expression: MIT\n")
    yield "License-Expression that is none", line("License-Expression: nothing at all\n")


def _list_entry_points() -> Iterator[tuple[str, Change]]:
    for name, content in {
        "right": b"[console_scripts]\nrun = demo:main\n",
        "no group": b"run = demo:main\n",
        "no equals": b"[console_scripts]\nrun\n",
        "no object": b"[console_scripts]\nrun = \n",
        "no function": b"[console_scripts]\nrun = demo\n",
        "code": b"[console_scripts]\nrun = demo:main;import os\n",
        "twice": b"[console_scripts]\nrun = demo:main\nrun = demo:other\n",
        "group twice": b"[console_scripts]\na = demo:main\n[console_scripts]\nb = demo:main\n",
        "path": b"[console_scripts]\n../../run = demo:main\n",
        "folder": b"[console_scripts]\nsub/run = demo:main\n",
        "extra": b"[console_scripts]\nrun = demo:main [more]\n",
        "colon": b"[console_scripts]\nrun: demo:main\n",
        "indented": b"[console_scripts]\nrun = demo:main\n  more\n",
        "group not closed": b"[console_scripts\nrun = demo:main\n",
        "name with a space": b"[console_scripts]\na b = demo:main\n",
        "byte order mark": _MARK + b"[console_scripts]\nrun = demo:main\n",
        "not UTF-8": b"[console_scripts]\n" + _LATIN + b" = demo:main\n",
        "CR and LF": b"[console_scripts]\r\nrun = demo:main\r\n",
        "comment behind": b"[console_scripts]\nrun = demo:main # text\n",
        "empty": b"",
    }.items():
        yield name, lambda w, content=content: w.texts.update({"entry_points.txt": content})


def _list_data() -> Iterator[tuple[str, Change]]:
    for place in (
        "purelib/a.py", "platlib/a.py", "headers/a.h", "scripts/run", "data/share/a.txt", "elsewhere/a.py",
        "purelib/demo.py", "a.txt", "data/../../../evil", "Purelib/a.py", "scripts/sub/run",
    ):  # fmt: skip
        yield place, lambda w, place=place: _add_file(f"{w.name}-{w.version}.data/{place}")(w)
    yield "of another version", lambda w: _add_file(f"{w.name}-9.9.data/purelib/a.py")(w)
    yield "of another project", _add_file("other-1.0.data/purelib/a.py")
    yield "RECORD in it", lambda w: _add_file(f"{w.name}-{w.version}.data/purelib/{w.folder}/RECORD")(w)
    yield "other file at the top", _add_file("README.txt")


def _list_file_names() -> Iterator[tuple[str, Change]]:
    for text in (
        "{0}-{1}-1-{2}.whl", "{0}-{1}-1x-{2}.whl", "{0}-{1}-{2}.WHL", "{0}-{1}.whl",
        "{0}-9.9-{2}.whl", "other-{1}-{2}.whl", "{0}-v{1}-{2}.whl", "{0}-one-{2}.whl", "{0}_-{1}-{2}.whl",
        "{0}-{1}-py3-none-any.any.whl", "{0}-{1}-py2.py3-none-any.whl", "{0}-{1}-py3-none.whl",
    ):  # fmt: skip
        yield text.format("NAME", "VERSION", "TAG"), partial(_name, form=text)
    yield "in capitals", lambda w: setattr(w, "file_name", w.file_name.replace(w.name, w.name.upper()))


def _name(wheel: SmallWheel, form: str) -> None:
    wheel.file_name = form.format(wheel.name, wheel.version, wheel.tag)
