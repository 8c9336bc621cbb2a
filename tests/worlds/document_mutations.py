"""Yields a document again and again with one thing wrong in it: bytes, form, types, sizes, places."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

OUTSIDE = "outside-7f3a"  # in each path that leads out of where it is read
DEEP = 20_000
Mutation = tuple[str, bytes]

# values of other kinds, the texts as a page, a path or a terminal would suffer from them
WRONG_VALUES: Mapping[str, object] = {
    "null": None,
    "true": True,
    "0": 0,
    "-1": -1,
    "a fraction": 0.5,
    "20 digits": 10**20,
    "400 digits": 10**400,
    "no text": "",
    "long text": "x" * 300_000,
    "path": f"../../../{OUTSIDE}",
    "absolute path": f"/tmp/{OUTSIDE}",
    "URL": "https://[x",
    "control characters": "a\x00b\x1b[2J\n",
    "half a letter": "\ud800",
    "option": "--help",
    "list": [],
    "list of lists": [[[]], None],
    "mapping": {},
    "mapping of mappings": {f"../../{OUTSIDE}": {"": None}},
}
FORMS: Mapping[str, bytes] = {
    "nothing": b"",
    "a space": b" ",
    "null": b"null",
    "a number": b"7",
    "a text": b'"x"',
    "a list": b"[]",
    "a mapping": b"{}",
    "NaN": b"NaN",
    "no end of brackets": b"[" * DEEP,
    "no end of braces": b'{"a":' * DEEP,
    "brackets that end": b"[" * DEEP + b"]" * DEEP,
    "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "HTML": b"<!doctype html><title>502 Bad Gateway</title>",
    "conflict": b"<<<<<<< HEAD\n=======\n>>>>>>> main\n",
    "aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    "a tag": b"!!python/object/apply:os.system [true]\n",
}


def list_places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield where each value of a document is, those that hold others too; of a list its first."""
    if at:
        yield at
    if isinstance(value, dict):
        for name in value:
            yield from list_places(value[name], (*at, name))
    elif isinstance(value, list) and value:
        yield from list_places(value[0], (*at, 0))


def put_value(document: Any, at: tuple[str | int, ...], value: object) -> Any:
    """Return a copy of a document with another value there."""
    changed = copy.deepcopy(document)
    parent = changed
    for name in at[:-1]:
        parent = parent[name]
    parent[at[-1]] = value
    return changed


def drop_value(document: Any, at: tuple[str | int, ...]) -> Any:
    """Return a copy of a document without the value there."""
    changed = copy.deepcopy(document)
    parent = changed
    for name in at[:-1]:
        parent = parent[name]
    del parent[at[-1]]
    return changed


def mutate_bytes(content: bytes) -> Iterator[Mutation]:
    """Yield what may come of any file: other forms, cuts, bytes that no text has."""
    yield from FORMS.items()
    half = len(content) // 2
    yield "cut in the middle", content[:half]
    yield "without its end", content.rstrip()[:-1]
    yield "bytes that are no UTF-8", content[:half] + b"\xff\xfe" + content[half:]
    yield "NUL", content[:half] + b"\0" + content[half:]
    yield "twice", content + content
    yield "more after the end", content + b"\n}"


def write_json(document: Any) -> bytes:
    """Return a document as our commands write most."""
    return (json.dumps(document, indent=1) + "\n").encode()


def mutate_json(content: bytes, *, places: int) -> Iterator[Mutation]:
    """Yield the mutations of a JSON document: of its bytes, then each wrong value in turn over its places.

    So many ``places``, evenly over the document; at each all keys are gone once, and each third value is
    wrong, beginning with another one every time.
    """
    yield from mutate_bytes(content)
    document = json.loads(content)
    if isinstance(document, dict):
        yield "a key more", write_json({**document, "surprise": 1})
        name = next(iter(document))
        twice = f"{{{json.dumps(name)}: [1], {content.decode().lstrip()[1:]}"
        yield "a key twice", twice.encode()
        for version in ("schema", "format", "schema_version", "version", "$schema", "_type"):
            if version in document:
                yield f"another {version}", write_json({**document, version: 99})
    found = list(list_places(document))
    step = max(1, len(found) // places)
    for number, at in enumerate(found[::step][:places]):
        yield f"without {at}", write_json(drop_value(document, at))
        for kind, value in list(WRONG_VALUES.items())[number % 3 :: 3]:
            yield f"{at}: {kind}", write_json(put_value(document, at, value))
        yield (
            f"{at}: NaN",
            write_json(put_value(document, at, "@")).replace(b'"@"', b"NaN", 1),
        )
        yield (
            f"{at}: deep",
            write_json(put_value(document, at, "@")).replace(b'"@"', b"[" * DEEP + b"]" * DEEP, 1),
        )


_TOML_VALUE = re.compile(rb"(?m)^(\s*[\w.-]+\s*=\s*)(.+)$")
_TOML_VALUES = (
    b"true", b"-1", b"1" + b"0" * 5000, b"nan", b"1979-05-27", b'""', b'"../../' + OUTSIDE.encode() + b'"',
    b"[]", b"{}", b'"\\u001b[2J"', b'"https://[x"', b"[" * DEEP + b"]" * DEEP, b"",
    b'"' + b"x" * 300_000 + b'"',
)  # fmt: skip


def mutate_toml(content: bytes) -> Iterator[Mutation]:
    """Yield the mutations of a TOML document, likewise: each line's value in turn."""
    yield from mutate_bytes(content)
    for match in _TOML_VALUE.finditer(content):
        for value in _TOML_VALUES:
            changed = content[: match.start(2)] + value + content[match.end(2) :]
            yield f"{match[1].decode().strip()} {value[:20].decode()}", changed
        yield f"{match[1].decode().strip()} twice", content[: match.end()] + b"\n" + content[match.start() :]


_ATTRIBUTE = re.compile(rb'([\w-]+)="([^"]*)"')
_ATTRIBUTE_VALUES = (
    b"", b"https://[x", b"../../../" + OUTSIDE.encode() + b".whl#sha256=../../x", b"file:///etc/passwd",
    b"--help", b"\x1b[2J", b"x" * 300_000, b"javascript:1", b"#sha256=" + b"z" * 64, b"data:,x",
    b"%00%0a.whl", b"\xc3\x28",
)  # fmt: skip


def mutate_html(content: bytes) -> Iterator[Mutation]:
    """Yield the mutations of a page: each value of an attribute in turn."""
    yield from mutate_bytes(content)
    yield "a base", content.replace(b"<head>", b'<head><base href="https://[x">', 1)
    yield "no end of tags", content + b"<a " * DEEP
    for match in _ATTRIBUTE.finditer(content):
        for value in _ATTRIBUTE_VALUES:
            changed = content[: match.start(2)] + value + content[match.end(2) :]
            yield f"{match[1].decode()} {value[:20]!r}", changed
