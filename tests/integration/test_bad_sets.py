"""Sets with one thing wrong each, by whoever writes wheels, results or documents: none is promoted.

Each is asked for by the policy that ships and by a strict one, which takes signed passes alone. The sample
takes each ninth; the exhaustive test all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from documents import edit_sealed, sha
from stores import PATHS, TARGET, Attacked, overwrite, stage_attacked

from rocm_wheels.core import errors
from rocm_wheels.models import project_names

LEAST, SAMPLE = 116, 9
REFUSED = {2, 15}
STRICT = """
signers: {{ann: {key}}}
channels:
  nightly:
    signed: true
    passes_after_failure: 2
    bypasses: refused
    rules:
      audit: {{fresh: 14d}}
      complete: {{}}
      resolver: {{fresh: 14d}}
      smoke: {{fresh: 7d, targets: every, pythons: every, at_least: 3}}
"""
pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed"),
]
KINDS = ("audit", "resolver", "smoke")


@dataclass(frozen=True)
class Bench:
    """A set without results, the key that the strict policy trusts, and both policies."""

    bare: Attacked
    key: Path
    policies: tuple[Path, ...]

    def make(self, name: str) -> Attacked:
        return self.bare.copy(name)

    def pass_all(self, attacked: Attacked, *kinds: str, **fields: Any) -> None:
        """Add a signed pass of each kind, of hours that grow less."""
        for age, kind in enumerate(reversed(kinds or KINDS), start=1):
            attacked.know(kind, "pass", age, self.key, **fields)

    def list_promoting(self, attacked: Attacked) -> list[str]:
        """Return the policies by which the gate or ``promote`` let a set pass."""
        passed = []
        for policy in self.policies:
            here = replace(attacked, policy=policy)
            codes = {here.run("gate", "--channel", "nightly"), here.run("promote", "--channel", "nightly")}
            shown = (here.place / PATHS.channel_document("nightly")).exists()
            passed += [policy.name] if shown or not codes <= REFUSED else []
        return passed


Bad = Callable[[Attacked], None]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        for name in ("ann", "mallory"):
            make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(make_key, check=True)
        strict = folder / "strict.yaml"
        strict.write_text(STRICT.format(key=(folder / "ann.pub").read_text().strip()))
        usual = folder / "usual.yaml"
        shipped = (project_names.get_data_folder() / "release_policy.yaml").read_text()
        usual.write_text(shipped.replace("    rules:\n", "    signed: false\n    rules:\n"))
        yield Bench(stage_attacked(folder, passes=False), folder / "ann", (usual, strict))


def list_bad_sets(bench: Bench) -> Iterator[tuple[str, Bad]]:
    """Yield what is wrong by name; the set has passed everything before, unless its results are wrong."""
    for name, bad in (*list_bad_files(bench.bare), *list_bad_documents(bench.bare)):

        def tamper(attacked: Attacked, bad: Bad = bad) -> None:
            bench.pass_all(attacked)
            bad(attacked)

        yield name, tamper
    yield from list_bad_results(bench)


def list_bad_files(bare: Attacked) -> Iterator[tuple[str, Bad]]:
    """Yield wheels that are gone, cut, empty, exchanged, or each other."""
    wheels = [path.relative_to(bare.place) for path in bare.files("") if path.suffix == ".whl"]

    def write(path: Path, change: Callable[[bytes], bytes]) -> Bad:
        return lambda attacked: overwrite(attacked.place / path, change((attacked.place / path).read_bytes()))

    for number, path in enumerate(wheels):
        other = (bare.place / wheels[number - 1]).read_bytes()
        yield f"{path.name} gone", lambda attacked, path=path: (attacked.place / path).unlink()
        yield f"{path.name} cut", write(path, lambda content: content[:-9])
        yield f"{path.name} empty", write(path, lambda _: b"")
        yield f"{path.name} with another byte", write(path, lambda content: b"Q" + content[1:])
        yield f"{path.name} longer", write(path, lambda content: content + b"\0")
        yield f"{path.name} twice", write(path, lambda content: content * 2)
        yield f"{path.name} all zeros", write(path, lambda content: bytes(len(content)))
        yield f"{path.name} another wheel", write(path, lambda _, other=other: other)
    lock = next(path.relative_to(bare.place) for path in bare.files("") if path.name.endswith(".lock.json"))
    yield "another lock", write(lock, lambda content: content.replace(b"aaaa", b"dddd", 1))
    yield "lock empty", write(lock, lambda _: b"")
    yield "lock gone", lambda attacked: (attacked.place / lock).unlink()


def edit(change: Callable[[dict[str, Any]], object]) -> Bad:
    """Return what edits the document of a set, and seals it again."""

    def write(attacked: Attacked) -> None:
        overwrite(attacked.set_file, edit_sealed(attacked.set_file.read_bytes(), change))

    return write


def list_bad_documents(bare: Attacked) -> Iterator[tuple[str, Bad]]:
    """Yield each field of the document, and of its first wheel with code, edited and removed."""
    document = json.loads(bare.set_file.read_bytes())
    del document["seal"]  # which each edit makes anew; without, no command takes it
    others: dict[type, object] = {str: "x", int: 7, list: [], dict: {}, bool: True}
    (number, torch) = next((n, file) for n, file in enumerate(document["files"]) if file["targets"])

    def drop(of: Callable[[dict[str, Any]], dict[str, Any]], key: str) -> Bad:
        return edit(lambda document: of(document).pop(key))

    def put(of: Callable[[dict[str, Any]], dict[str, Any]], key: str, value: object) -> Bad:
        return edit(lambda document: of(document).update({key: value}))

    places: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]] = [
        ("document", document, lambda document: document),
        ("file", torch, lambda document: document["files"][number]),
    ]
    for name, fields, of in places:
        for key, value in fields.items():
            yield f"{name} without {key}", drop(of, key)
            different = others.get(type(value), "x")
            if different != value:
                yield f"{name} with another {key}", put(of, key, different)
    yield "targets of other cards", put(places[1][2], "targets", ["gfx90a"])
    yield "a target more", put(places[1][2], "targets", ["gfx90a", TARGET])
    yield "a wheel less", edit(lambda document: document["files"].pop())
    yield "a wheel twice", edit(lambda document: document["files"].append(document["files"][0]))
    yield "a cell less", edit(lambda document: document["planned"].pop())
    missing = {"project": "torchaudio", "python": "3.99", "target": TARGET}
    yield "a cell that is missing", edit(lambda document: document.update(missing=[missing]))
    yield "document gone", lambda attacked: attacked.set_file.unlink()
    yield "document cut", lambda attacked: overwrite(attacked.set_file, attacked.set_file.read_bytes()[:-3])


def list_bad_results(bench: Bench) -> Iterator[tuple[str, Bad]]:
    """Yield results that are missing, failed, old, from the future, of other wheels, cards or people."""

    def but(*kinds: str, **fields: Any) -> Bad:
        """Have all pass, and those kinds with other fields."""

        def know(attacked: Attacked) -> None:
            bench.pass_all(attacked, *(kind for kind in KINDS if kind not in kinds))
            bench.pass_all(attacked, *kinds, **fields)

        return know

    def then(kind: str, outcome: str, **fields: Any) -> Bad:
        """Have all pass, and then one not."""

        def know(attacked: Attacked) -> None:
            bench.pass_all(attacked)
            attacked.know(kind, outcome, 0.5, bench.key, **fields)

        return know

    def edit_result(**fields: object) -> Bad:
        def write(attacked: Attacked) -> None:
            then("smoke", "fail")(attacked)
            result = json.loads(attacked.results[-1].read_bytes())
            overwrite(attacked.results[-1], (json.dumps({**result, **fields}, indent=1) + "\n").encode())

        return write

    def lose(kind: str) -> Bad:
        def unlink(attacked: Attacked) -> None:
            bench.pass_all(attacked)
            for path in attacked.results:
                if json.loads(path.read_bytes())["kind"] == kind:
                    path.unlink()

        return unlink

    def damage(change: Callable[[list[Path]], object]) -> Bad:
        def know(attacked: Attacked) -> None:
            bench.pass_all(attacked)
            change(attacked.results)

        return know

    def swap(results: list[Path]) -> None:
        first, second = (path.read_bytes() for path in results[:2])
        overwrite(results[0], second)
        overwrite(results[1], first)

    now = datetime.now(timezone.utc).replace(microsecond=0)
    yield "no results", lambda attacked: None
    for number, kind in enumerate(KINDS):
        yield (
            f"{kind} cut",
            damage(lambda results, n=number: overwrite(results[n], results[n].read_bytes()[:-9])),
        )
    yield "results swapped", damage(swap)
    yield "a result renamed", damage(lambda results: results[0].rename(results[0].with_name("pass.json")))
    yield "a result without content", damage(lambda results: overwrite(results[1], b"{}"))
    for kind in KINDS:
        yield f"{kind} never done", lambda a, k=kind: bench.pass_all(a, *(x for x in KINDS if x != k))
        yield f"{kind} deleted", lose(kind)
        yield f"{kind} failed then", then(kind, "fail")
        yield f"{kind} crashed then", then(kind, "crash")
        yield f"{kind} of other wheels", but(kind, hashes=(sha("another wheel"),))
        yield f"{kind} of one wheel", but(kind, hashes=(bench.bare.document.files[-1].sha256,))
        yield f"{kind} too old", but(kind, when=now - timedelta(days=40), added=now - timedelta(days=40))
        yield (
            f"{kind} from the future",
            but(kind, when=now + timedelta(days=2), added=now + timedelta(days=2)),
        )
        yield f"{kind} about another document", but(kind, about="0" * 64)
    yield "smoke on another card", but("smoke", gfx="gfx1100")
    yield "smoke of chosen tests", but("smoke", selected="-k nothing")
    yield "failure made a pass", edit_result(outcome="pass", counts={"passed": 3})
    yield "failure of another set", edit_result(set="2.9.1-rocm7.1.0-000000000000")
    yield "failure on another card", edit_result(gfx="gfx90a")
    yield "failure of before", edit_result(when="2026-01-01T00:00:00Z")


def test_the_good_one_passes_both(bench: Bench) -> None:
    for policy in bench.policies:
        attacked = replace(bench.make(f"good {policy.name}"), policy=policy)
        bench.pass_all(attacked)
        assert attacked.run("gate", "--channel", "nightly") == 0
        assert attacked.promote()


def test_no_bad_set_is_promoted(bench: Bench, exhaustive: bool) -> None:
    cases = list(list_bad_sets(bench))
    assert len(cases) >= LEAST
    promoted = []
    for name, bad in cases if exhaustive else cases[::SAMPLE]:
        attacked = bench.make("bad")
        try:
            bad(attacked)
        except errors.RocmWheelsError as refusal:
            assert refusal.exit_code in REFUSED, name
        promoted += [f"{name}: {policy}" for policy in bench.list_promoting(attacked)]
        shutil.rmtree(attacked.place)
    assert promoted == [], "\n".join(promoted)
