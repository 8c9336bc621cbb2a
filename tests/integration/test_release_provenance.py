"""Statements go with their wheels through a store: staged, judged, released, finalized."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from commands import call, make_key, needs_ssh_keygen
from crash import FaultyStore, sample
from stores import NOW, World, a_lock, add_statement, drafts

from rocm_wheels.core import errors
from rocm_wheels.package import provenance
from rocm_wheels.release import gate, set_statements, verdict, wheel_set
from rocm_wheels.release.policy import load_policy
from rocm_wheels.release.stage import plan_stage, stage_set
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.statement import (
    STATEMENT_SUFFIX,
    locate_statement,
    locate_statement_signature,
    parse_statement,
    walk_statements,
)

ENV = dict(os.environ)
POLICY = """
channels:
  nightly:
    signed: false
    rules: {audit: {fresh: 14d}, provenance: {RULE}}
signers: {ann: KEY}
"""

pytestmark = [pytest.mark.contract, needs_ssh_keygen]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "ann")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A release candidate of triton, whose wheel has a statement."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    draft = replace(drafts()["triton"], version="3.5.0rc1+rocm7.1.0")
    draft.members = {"triton/__init__.py": b"__version__ = '3.5.0rc1'\n"}
    lock = a_lock(["triton"])
    add_statement(draft.write(folder), "triton", "a" * 40, format_lock(lock).encode())
    (folder / "set.lock").write_text(format_lock(lock))
    return World(folder)


def stage(world: World, store: Store) -> wheel_set.SetDocument:
    plan = plan_stage(world.wheels, [a_lock(["triton"])], paths=world.places, layout="per-family")
    return stage_set(store, plan, now=NOW).document


def stored_statement(world: World, document: wheel_set.SetDocument) -> str:
    (file,) = document.files
    return world.places.pool_file(file.sha256, file.name) + STATEMENT_SUFFIX


def judge(
    store: FolderStore, document: wheel_set.SetDocument, policy: Path
) -> tuple[str, tuple[verdict.ReasonCode, ...]]:
    """Return what the rule comes to, and why."""
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc)
    judged, _ = gate.judge_staged_set(
        store, document, "nightly", policy=load_policy(policy), now=now, env=ENV
    )
    (result,) = [rule for rule in judged.rules if rule.rule == "provenance"]
    return result.outcome, result.codes


def make_policy(folder: Path, key: Path, rule: str) -> Path:
    path = folder / "policy.yaml"
    public = " ".join(Path(f"{key}.pub").read_text().split()[:2])
    path.write_text(POLICY.replace("RULE", rule).replace("KEY", public))
    return path


def test_a_set_names_its_statements_and_the_gate_asks_for_a_signature(
    world: World, key: Path, tmp_path: Path
) -> None:
    store, (wheel,) = FolderStore(tmp_path / "store"), world.wheels
    document = stage(world, store)
    (file,) = document.files
    assert file.statement == hashlib.sha256(locate_statement(wheel).read_bytes()).hexdigest()
    assert judge(store, document, make_policy(tmp_path, key, ""))[0] == "pass"
    signed = make_policy(tmp_path, key, "signed_by: [ann]")
    assert judge(store, document, signed) == ("fail", ("unsigned-statement",))
    call("provenance", "sign", wheel, "--sign-with", key)
    assert stage(world, store) == document  # the signature comes to what is there
    assert judge(store, document, signed)[0] == "pass"
    stored = tmp_path / "store" / stored_statement(world, document)
    stored.write_bytes(stored.read_bytes() + b"\n")
    assert judge(store, document, signed) == ("fail", ("bad-statement",))
    waiver = f"{{rule: provenance, channels: [nightly], set: {document.id}, owner: a, reason: b, "
    waived = signed.read_text() + f"waivers: [{waiver}expires: {date.today()}}}]\n"
    for text in (
        waived,
        waived.replace(", provenance: {signed_by: [ann]}", ""),
    ):  # nor where none is asked for
        signed.write_text(text)
        assert judge(store, document, signed) == ("fail", ("bad-statement",))


def test_a_signer_that_nobody_named_is_a_fault_of_the_policy(key: Path, tmp_path: Path) -> None:
    policy = make_policy(tmp_path, key, "signed_by: [bob]")
    call("set", "gate", tmp_path, "--set", "x", "--channel", "nightly", "--policy", policy, code=2)


def test_every_write_of_a_signed_set_may_fail(
    world: World, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exhaustive: bool
) -> None:
    """The same call again gives the same files; statements are beside their wheels, where installers look."""
    (wheel,) = world.wheels
    call("provenance", "sign", wheel, "--sign-with", key)
    clean = FaultyStore(FolderStore(tmp_path / "clean"))
    statement = stored_statement(world, stage(world, clean))
    expected = {listed.path: clean.read(listed.path).content for listed in clean.listing("")}
    assert expected[statement] == locate_statement(wheel).read_bytes()
    assert expected[f"{statement}.sig"] == locate_statement_signature(wheel).read_bytes()
    for number, write in enumerate(sample(clean.writes, exhaustive)):
        store = FolderStore(tmp_path / str(number))
        with pytest.raises(errors.ReleaseError):
            stage(world, FaultyStore(store, at=write, fault="error"))
        stage(world, store)
        assert {listed.path: store.read(listed.path).content for listed in store.listing("")} == expected


def test_final_wheels_say_what_they_were_made_of(world: World, key: Path, tmp_path: Path) -> None:
    place, output, (wheel,) = str(tmp_path / "store"), tmp_path / "final", world.wheels
    call("provenance", "sign", wheel, "--sign-with", key)
    document = stage(world, FolderStore(tmp_path / "store"))
    words = ["wheel", "finalize", "--store", place, "--set", document.id, "--output-dir", str(output)]
    call(*words)
    (final,) = output.glob("*.whl")
    report = provenance.verify_provenance(final, ENV)
    assert (report.findings, report.steps) == ([], ("finalize",))
    words = ["set", "stage", place, str(final), "--lock", *map(str, output.glob("*.lock*"))]
    words += ["--family", world.places.family]
    call(*words)
    store = FolderStore(tmp_path / "store")
    (set_id,) = set(wheel_set.list_set_ids(store, world.places.family)) - {document.id}
    (file,) = wheel_set.find_set(store, set_id).files
    assert file.statement == hashlib.sha256(locate_statement(final).read_bytes()).hexdigest()
    statement = parse_statement(locate_statement(final).read_bytes(), name="it")
    policy = load_policy(make_policy(tmp_path, key, ""))
    read = set_statements.read_set_statements(
        store, world.places, wheel_set.find_set(store, set_id), policy.signer_keys, ENV
    )
    assert read == {file.sha256: set_statements.StoredStatement("", earlier=frozenset({"ann"}))}
    ((inner, signature),) = walk_statements(statement)
    assert inner.content == locate_statement(wheel).read_bytes()
    assert signature == locate_statement_signature(wheel).read_bytes()


def test_a_wrong_statement_is_not_staged(world: World, tmp_path: Path) -> None:
    (wheel,) = world.wheels
    document = json.loads(locate_statement(wheel).read_bytes())
    document["subject"][0]["digest"]["sha256"] = "f" * 64
    locate_statement(wheel).write_text(json.dumps(document))
    words = ["set", "stage", str(tmp_path / "store"), str(wheel), "--lock", str(world.lock)]
    call(*words, "--family", world.places.family, code=15)
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("set.json"))
