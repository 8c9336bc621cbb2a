"""Documents of sets and results, without a store: judged, edited, mutated."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from rocm_wheels.core import records
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import document_seal, gate, store_paths, wheel_set
from rocm_wheels.release.evidence.evidence import Evidence, EvidenceHost, OutcomeCounts
from rocm_wheels.release.evidence.store import StoredEvidence
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.verdict import Verdict
from rocm_wheels.stores.store import Store, create_or_read

# ---- Edit documents of sets and channels on purpose, and seal them again: what lies behind the seal is
# met.


_SEAL = re.compile(rb',\n "seal": "[0-9a-f]{64}"\n}\n\Z')


def reseal(content: bytes) -> bytes:
    """Return a document that was edited with the seal of what it says now; one that ends in none as it is."""
    seal = _SEAL.search(content)
    return content if seal is None else document_seal.add_seal(content[: seal.start()])


def edit_sealed(content: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a document after an edit of its values, sealed again."""
    values = json.loads(content)
    seal = values.pop("seal")
    edit(values)
    values["seal"] = seal
    return reseal((json.dumps(values, indent=1) + "\n").encode())


# ---- Yields a document again and again with one thing wrong in it: bytes, form, types, sizes, places.


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


# ---- Sets and evidence as tests of the gate need them: two Pythons, two targets, and a clock that stands.


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
FAMILY = "gfx103X-all"
TARGETS = ("gfx1030", "gfx1031")
METADATA = b"Metadata-Version: 2.1\nName: a-wheel\nVersion: 1\n"
LOCK = hashlib.sha256(b"lock").hexdigest()
ONE = (
    "channels: {nightly: {signed: false,"
    " rules: {audit: {fresh: 14d}, smoke: {fresh: 7d, targets: one, pythons: one}}}}"
)
EVERY = (
    "channels: {stable: {passes_after_failure: 2, signed: false,"
    " rules: {audit: {fresh: 14d}, smoke: {fresh: 7d}}}}"
)


def metadata_of(project: str) -> bytes:
    """The METADATA of a wheel: torchvision needs the torch of its set."""
    return METADATA + (b"Requires-Dist: torch==2.9.1+rocm7.1.0\n" if project == "torchvision" else b"")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def wheel(
    project: str, python: str = "312", targets: Iterable[str] = TARGETS, **more: Any
) -> wheel_set.SetFile:
    name = f"{project.replace('-', '_')}-2.9.1+rocm7.1.0-cp{python}-cp{python}-linux_x86_64.whl"
    found = {"name": name, "project": project, "version": "2.9.1+rocm7.1.0", "sha256": sha(name)}
    return wheel_set.SetFile.model_validate(
        {
            **found,
            "size": len(name),
            "metadata_sha256": sha(metadata_of(project).decode()),
            "targets": tuple(targets),
            **more,
        },
        strict=False,
    )


def a_set(*files: wheel_set.SetFile, **more: Any) -> wheel_set.SetDocument:
    files = files or tuple(wheel(p, v) for p in ("torch", "torchvision") for v in ("311", "312"))
    version = "2.9.1+rocm7.1.0"
    planned = tuple(
        wheel_set.SetCell(project=f.project, python=f"3.{f.name.split('-cp3')[1][:2]}", target=t)
        for f in files
        for t in f.targets
    )
    found = {
        "schema": 2,
        "id": wheel_set.make_set_id(
            version, more.get("family", FAMILY), ((f.name, f.sha256) for f in files), LOCK
        ),
        "created": "2026-11-20T00:00:00Z",
        "version": version,
        "family": FAMILY,
        "layout": "per-family",
        "files": files,
        "locks": (wheel_set.SetLock(digest=LOCK),),
        "planned": planned,
    }
    return wheel_set.SetDocument.model_validate({**found, **more})


SET = a_set()


def said(
    kind: str = "smoke",
    outcome: str = "pass",
    *,
    gfx: str | None = "gfx1030",
    python: str = "",
    hours: float = 1,
    document: wheel_set.SetDocument = SET,
    machine: str = "any",
    **more: Any,
) -> StoredEvidence:
    """An evidence that was found so many hours ago and written down at once; of a Python's wheels, or all.

    It counts as signed by ``signer`` when it is judged; its file is signed by nobody.
    """
    when = NOW - timedelta(hours=hours)
    files = [file for file in document.files if not python or f"-cp{python}-" in file.name]
    number = {"pass": "passed", "fail": "failed", "crash": "crashed", "timeout": "timeout"}.get(outcome)
    found = {
        "kind": kind,
        "set": document.id,
        "hashes": tuple(sorted(file.sha256 for file in files)),
        "gfx": gfx if kind in {"smoke", "tests"} else None,
        "outcome": outcome,
        "counts": OutcomeCounts(**({number: 3} if number else {})),
        "tool": "a tool",
        "host": EvidenceHost(name="runner-1", kind=machine),
        "by": "ann",
        "when": when,
        "added": when,
    }
    signer, trouble = more.pop("signer", "ann"), more.pop("trouble", "")
    evidence = Evidence.model_validate({**found, **more})
    return StoredEvidence(evidence.id, evidence, signer, trouble)


def put_set(store: Store, document: wheel_set.SetDocument) -> None:
    """Write the wheels, their METADATA and the document of a set into a store, as staging does.

    The bytes of a wheel are its name, where it is one of ``wheel``, and those of its lock ``lock``.
    """
    paths = store_paths.FamilyPaths(document.family)
    for file in document.files:
        path = paths.pool_file(file.sha256, file.name)
        if file.sha256 == sha(file.name):
            create_or_read(store, path, file.name.encode())
        create_or_read(store, path + METADATA_SUFFIX, metadata_of(file.project))
    for lock in document.locks:
        if lock.digest == LOCK:
            create_or_read(store, paths.lock_file(lock.digest), b"lock")
    create_or_read(store, paths.set_document(document.id), document.to_json())


def policy(text: str) -> Policy:
    return records.parse_record(text, Policy, name="policy.yaml")


def judged(
    text: str,
    *known: StoredEvidence,
    document: wheel_set.SetDocument = SET,
    now: datetime = NOW,
    channel: str = "",
) -> Verdict:
    """What a policy (of one channel, unless it is named) says to evidence."""
    rules = policy(text)
    name = channel or next(iter(rules.channels))
    return gate.judge_set(rules, name, document, known, now)


def outcomes(verdict: Verdict) -> dict[str, str]:
    """What came of each rule."""
    return {one.title: one.outcome for one in verdict.rules}


# ---- results in JUnit's form, as pytest writes them

# JUnit: attributes of the suite, what is in it; outcome, passed, failed, what is said
CASE = '<testcase classname="TestNN" name="test_conv"/>'

BAD = '<testcase classname="TestNN" name="test_bad"><failure message="x">no</failure></testcase>'

ERROR = '<testcase classname="TestNN" name="test_err"><error message="x">no</error></testcase>'

SKIP = '<testcase classname="TestNN" name="test_skip"><skipped message="x"/></testcase>'


def junit(*cases: str, **attributes: object) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    return f"<testsuites><testsuite {said}>{''.join(cases)}</testsuite></testsuites>"


WHOLE = junit(
    CASE, SKIP, tests=2, failures=0, errors=0, hostname="runner-7", timestamp="2026-11-21T10:00:00+02:00"
)
