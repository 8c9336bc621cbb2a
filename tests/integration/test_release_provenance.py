"""Statements go with their wheels through a store: staged, judged, released, finalized."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from faulty_store import FaultyStore
from release_world import NOW, World, a_lock, add_statement, drafts

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.package import provenance
from rocm_wheels.release import gate, layout, set_list, wheel_set
from rocm_wheels.release.policy import load_policy
from rocm_wheels.release.stage import plan_stage, stage_set
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.statement import (
    locate_statement,
    locate_statement_signature,
    parse_statement,
    walk_statements,
)

ENV = dict(os.environ)
LAYOUT = layout.load_layout()
POLICY = """
channels:
  nightly:
    rules: {verify: {fresh: 14d}, provenance: {RULE}}
signers: {ann: KEY}
"""

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed"
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "ann"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


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
    plan = plan_stage(
        world.wheels, [a_lock(["triton"])], paths=world.places, layout="per-family", version="3.5.0rc1"
    )
    return stage_set(store, plan, now=NOW).document


def judge(store: FolderStore, document: wheel_set.SetDocument, policy: Path) -> tuple[str, str]:
    """Return what the rule comes to, and why."""
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc)
    verdict, _ = gate.judge_staged_set(
        store, LAYOUT, document, "nightly", policy=load_policy(policy), now=now, env=ENV
    )
    (result,) = [rule for rule in verdict.rules if rule.rule == "provenance"]
    return result.outcome, result.why


def make_policy(folder: Path, key: Path, rule: str) -> Path:
    path = folder / "policy.yaml"
    public = " ".join(Path(f"{key}.pub").read_text().split()[:2])
    path.write_text(POLICY.replace("RULE", rule).replace("KEY", public))
    return path


@pytest.mark.contract
def test_a_set_names_its_statements_and_the_gate_asks_for_a_signature(
    world: World, key: Path, tmp_path: Path
) -> None:
    store, (wheel,) = FolderStore(tmp_path / "store"), world.wheels
    document = stage(world, store)
    (file,) = document.files
    assert file.statement == hashlib.sha256(locate_statement(wheel).read_bytes()).hexdigest()
    assert judge(store, document, make_policy(tmp_path, key, ""))[0] == "pass"
    signed = make_policy(tmp_path, key, "signed_by: [ann]")
    assert judge(store, document, signed)[0] == "fail"
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 0
    assert stage(world, store) == document  # the signature comes to what is there
    assert judge(store, document, signed)[0] == "pass"
    stored = tmp_path / "store" / world.places.set_statement(document.id, file.name)
    stored.write_bytes(stored.read_bytes() + b"\n")
    assert judge(store, document, signed)[0] == "fail"
    waiver = f"{{rule: provenance, channels: [nightly], set: {document.id}, owner: a, reason: b, "
    waived = signed.read_text() + f"waivers: [{waiver}expires: {date.today()}}}]\n"
    for text in (
        waived,
        waived.replace(", provenance: {signed_by: [ann]}", ""),
    ):  # nor where none is asked for
        signed.write_text(text)
        assert judge(store, document, signed)[0] == "fail"
    with pytest.raises(errors.ReleaseError):
        set_list.copy_to_release(
            store, world.places, layout.FamilyPaths(LAYOUT, world.places.family, "release"), document
        )


@pytest.mark.contract
def test_a_signer_that_nobody_named_is_a_fault_of_the_policy(key: Path, tmp_path: Path) -> None:
    policy = make_policy(tmp_path, key, "signed_by: [bob]")
    assert (
        boundary.run_command(
            main.cli,
            ["set", "gate", str(tmp_path), "--set", "x", "--channel", "nightly", "--policy", str(policy)],
        )
        == 2
    )


def test_every_write_of_a_signed_set_may_fail(
    world: World, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staged and copied for a release: the same call again gives the same files."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    assert (
        boundary.run_command(main.cli, ["provenance", "sign", str(world.wheels[0]), "--sign-with", str(key)])
        == 0
    )
    release = layout.FamilyPaths(LAYOUT, world.places.family, "release")

    def publish(store: Store) -> None:
        set_list.copy_to_release(store, world.places, release, stage(world, store))

    clean = FaultyStore(FolderStore(tmp_path / "clean"))
    publish(clean)
    expected = {listed.path: clean.read(listed.path).content for listed in clean.listing("")}
    assert sum(path.endswith((".intoto.json", ".sig")) for path in expected) == 8  # two places of two areas
    for number, write in enumerate(clean.writes):
        store = FolderStore(tmp_path / str(number))
        with pytest.raises(errors.ReleaseError):
            publish(FaultyStore(store, at=write, fault="error"))
        publish(store)
        assert {listed.path: store.read(listed.path).content for listed in store.listing("")} == expected


@pytest.mark.contract
def test_what_is_released_has_the_same_statements(world: World, key: Path, tmp_path: Path) -> None:
    store, (wheel,) = FolderStore(tmp_path / "store"), world.wheels
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 0
    document, release = stage(world, store), layout.FamilyPaths(LAYOUT, world.places.family, "release")
    set_list.copy_to_release(store, world.places, release, document)
    (file,) = document.files
    for path, original in (
        (release.set_statement(document.id, wheel.name), locate_statement(wheel)),
        (release.set_statement_signature(document.id, wheel.name), locate_statement_signature(wheel)),
        (release.offered_statement(file.sha256, file.name), locate_statement(wheel)),  # where installers look
        (release.offered_statement_signature(file.sha256, file.name), locate_statement_signature(wheel)),
    ):
        assert (tmp_path / "store" / path).read_bytes() == original.read_bytes()


@pytest.mark.contract
def test_final_wheels_say_what_they_were_made_of(
    world: World, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, (wheel,) = FolderStore(tmp_path / "store"), world.wheels
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 0
    old, output = stage(world, store), tmp_path / "final"
    words = ["wheel", "finalize", "--store", store.url, "--set", old.id, "--output-dir", str(output)]
    assert boundary.run_command(main.cli, words) == 0
    (final,) = output.glob("*.whl")
    report = provenance.verify_provenance(final, ENV)
    assert (report.findings, report.steps) == ([], ("finalize",))
    (line,) = re.findall("^stage them: rocm-wheels (.*)", capsys.readouterr().out, re.MULTILINE)
    words = [str(final) if "*" in word else word for word in shlex.split(line)]
    assert boundary.run_command(main.cli, words) == 0
    (new,) = {*wheel_set.list_set_ids(store, old.family, layout=LAYOUT)} - {old.id}
    (file,) = wheel_set.find_set(store, new, layout=LAYOUT).files
    assert file.statement == hashlib.sha256(locate_statement(final).read_bytes()).hexdigest()
    statement = parse_statement(locate_statement(final).read_bytes(), name="it")
    ((inner, signature),) = walk_statements(statement)
    assert inner.content == locate_statement(wheel).read_bytes()
    assert signature == locate_statement_signature(wheel).read_bytes()


@pytest.mark.contract
def test_a_wrong_statement_is_not_staged(world: World, tmp_path: Path) -> None:
    (wheel,) = world.wheels
    document = json.loads(locate_statement(wheel).read_bytes())
    document["subject"][0]["digest"]["sha256"] = "f" * 64
    locate_statement(wheel).write_text(json.dumps(document))
    words = ["set", "stage", str(tmp_path / "store"), str(wheel), "--lock", str(world.lock)]
    assert (
        boundary.run_command(main.cli, [*words, "--family", world.places.family, "--version", "3.5.0rc1"])
        == 15
    )
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("set.json"))
