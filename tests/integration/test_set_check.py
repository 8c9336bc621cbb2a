"""``set check``: what it finds is evidence, passed or not, in a folder and in a bucket."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import servers
from documents import edit_sealed
from stores import FAMILY, NOW, ROCM, World, a_lock

from rocm_wheels.cli import audit, boundary, main
from rocm_wheels.core import errors
from rocm_wheels.models import test_results
from rocm_wheels.release import stage, store_paths, wheel_set
from rocm_wheels.release.evidence.store import read_evidence
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "wheels")


def check(place: str, document: wheel_set.SetDocument, *more: str) -> int:
    return boundary.run_command(main.cli, ["set", "check", place, "--set", document.id, *more])


def found(store: Store, document: wheel_set.SetDocument) -> dict[str, list[str]]:
    """Return the outcomes of evidence by kind."""
    outcomes: dict[str, list[str]] = {}
    for one in read_evidence(store, document, signers={}, env={}):
        outcomes[one.evidence.kind] = sorted([*outcomes.get(one.evidence.kind, []), one.evidence.outcome])
        assert set(one.evidence.hashes) <= document.hashes
    return outcomes


def test_what_fails_is_evidence_and_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    reports = tmp_path / "reports"
    assert check(str(store.folder), document, "--output-dir", str(reports)) == 14
    assert "did not pass: " in capsys.readouterr().err
    assert found(store, document) == {"audit": ["fail", "pass"], "resolver": ["pass"]}
    audited, asked = (
        test_results.Results.model_validate_json((reports / name).read_bytes())
        for name in ("audit.json", "resolver.json")
    )
    for found_by in (audited, asked):
        assert found_by.wheels == {file.name: file.sha256 for file in document.files}
    assert any(test.is_bad and test.detail for test in audited.tests)
    assert {test.name.rpartition(", ")[2] for test in asked.tests} == {"pip", "uv"}
    assert {name for test in asked.tests for name in test.wheels} == set(asked.wheels)


def test_wheels_count_where_a_recipe_held_them_and_device_wheels_beside_their_host(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    host, device, *others = (file.name for file in document.files)
    audit_wheels = audit.audit_wheels

    def audit_by_one_recipe(request: audit.AuditRequest) -> audit.AuditResult:
        done = audit_wheels(request)
        wheels = []
        for report in done.wheels:
            is_host = report.wheel.name == host
            parts, recipe = ({device: "0" * 64}, "pytorch") if is_host else ({}, "")
            wheels.append(replace(report, findings=(), recipe=recipe, parts=parts))
        return replace(done, wheels=wheels)

    monkeypatch.setattr(audit, "audit_wheels", audit_by_one_recipe)
    reports = tmp_path / "reports"
    assert check(str(store.folder), document, "--output-dir", str(reports)) == 14
    audited = test_results.Results.model_validate_json((reports / "audit.json").read_bytes())
    faults = {test.name for test in audited.tests if "no recipe says what it must be" in test.detail}
    assert faults == {f"{name}: recipe" for name in others} and device not in str(faults)


@pytest.mark.parametrize("damage", ["other bytes", "gone"])
def test_a_damaged_store_is_no_result_about_wheels(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """It would hold the set until the next check, and the wheels are all right."""
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    torch = next(file for file in document.files if file.project == "torch")
    stored = store.folder / store_paths.FamilyPaths(FAMILY).pool_file(torch.sha256, torch.name)
    content = stored.read_bytes()
    stored.unlink()
    if damage == "other bytes":
        stored.write_bytes(content[:-1] + b"x")
    assert check(str(store.folder), document) == 15
    said = capsys.readouterr().err
    assert (
        f"{torch.name} of {document.id} is gone, or has other bytes" in said and "store fsck --hash" in said
    )
    assert found(store, document) == {}


def test_a_finding_of_thousands_of_letters_is_cut(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding may name every file of a wheel; a test says what is wrong in a line."""
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    monkeypatch.setattr(errors, "format_finding", lambda _: "x" * 9000)
    assert check(str(store.folder), document, "--output-dir", str(tmp_path)) == 14
    audited = test_results.Results.model_validate_json((tmp_path / "audit.json").read_bytes())
    assert max(len(test.detail) for test in audited.tests) == 1000


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "targets": (
        lambda d: d["files"][0].update(targets=["gfx90a"]),
        "targets is gfx942, the document says gfx90a",
    ),
    "a target less": (
        lambda d: d["files"][0].update(targets=[]),
        "targets is gfx942, the document says none",
    ),
    "size": (lambda d: d["files"][1].update(size=7), "the document says 7"),
    "METADATA": (lambda d: d["files"][1].update(metadata_sha256="0" * 64), "the document says 0000"),
    "Python": (lambda d: d["files"][2].update(requires_python=">=9"), "the document says >=9"),
    "ROCm inside": (lambda d: d["files"][0].update(carries_rocm=True), "carries_rocm is none, the document"),
    "ROCm": (lambda d: d.update(rocm="7.2.0"), f"rocm is {ROCM}, the document says 7.2.0"),
    "cells": (lambda d: d.update(planned=d["planned"][1:]), "planned is triton for Python"),
    "what is missing": (
        lambda d: d.update(missing=d["planned"][:1]),
        "missing is none, the document says triton",
    ),
    "layout": (lambda d: d.update(layout="multi-arch"), "multi-arch"),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_document_is_held_to_its_wheels_and_lock(what: str, world: World) -> None:
    """By whoever looks at them: its seal and its id say nothing of this."""
    document, scans = world.plan().document, [wheel.scan for wheel in world.plan().wheels]
    assert stage.find_document_faults(document, scans, [a_lock()]) == []
    edit, fault = EDITS[what]
    edited = wheel_set.parse_set(edit_sealed(document.to_json(), edit), where="x")
    faults = stage.find_document_faults(edited, scans, [a_lock()])
    assert faults and fault in faults[0]


def test_a_document_of_other_wheels_or_another_lock_is_named(world: World) -> None:
    plan, other = world.plan(), World(world.folder.with_name("other"), "2.9.2").plan()
    scans = [wheel.scan for wheel in plan.wheels]
    faults = stage.find_document_faults(other.document, scans, [a_lock()])
    assert faults[0].startswith("torch-2.9.2") and faults[0].endswith(" was not there to be read")
    assert "version is 2.9.1+rocm7.1.0, the document says 2.9.2+rocm7.1.0" in faults
    assert (
        "was not there to be read"
        in stage.find_document_faults(plan.document, [scans[0], scans[2]], [a_lock()])[0]
    )
    moved = a_lock().model_copy(update={"rocm": "7.2.0"})
    assert "the lock says 7.2.0" in stage.find_document_faults(plan.document, scans, [moved])[0]


def test_an_edited_document_fails_the_audit_of_every_wheel(world: World, tmp_path: Path) -> None:
    """It is the test `set: document` of the evidence; so is a lock that is gone."""
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    paths, reports = store_paths.FamilyPaths(FAMILY), tmp_path / "reports"

    def read_test() -> tuple[str, str]:
        assert check(str(store.folder), document, "--output-dir", str(reports)) == 14
        audited = test_results.Results.model_validate_json((reports / "audit.json").read_bytes())
        return next((test.outcome, test.detail) for test in audited.tests if test.name == "set: document")

    assert read_test() == ("passed", "")
    path, lock = store.folder / paths.set_document(document.id), paths.lock_file(document.locks[0].digest)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(edit_sealed(content, EDITS["targets"][0]))
    outcome, detail = read_test()
    assert outcome == "failed" and EDITS["targets"][1] in detail
    outcomes = [
        one.evidence.outcome
        for one in read_evidence(store, document, signers={}, env={})
        if one.evidence.kind == "audit"
    ]
    assert outcomes.count("pass") == 1  # of before
    path.unlink()
    path.write_bytes(content)
    store.remove(lock)
    assert read_test()[0] == "failed"


def test_a_key_that_cannot_sign_ends_it_before_anything_is_looked_at(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    (tmp_path / "key").write_text("no key")
    for name, refusal in (("gone", "there is no key"), ("key", "key")):
        reports = tmp_path / f"reports {name}"
        words = ("--output-dir", str(reports), "--sign-with", str(tmp_path / name))
        assert check(str(store.folder), document, *words) == 2
        assert refusal in capsys.readouterr().err and not reports.exists()
    assert found(store, document) == {}


def test_of_a_bucket_wheels_are_fetched_or_must_be_those_of_the_set(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = servers.a_bucket()
    store = servers.a_store(bucket=bucket)
    for name, value in servers.environment(servers.moto()).items():
        monkeypatch.setenv(name, value)
    document = stage.stage_set(store, world.plan(), now=NOW).document
    other = World(tmp_path / "other", text="other bytes").folder
    assert check(store.url, document, "--wheels", str(other)) == 15
    assert "not among the wheels that were named" in capsys.readouterr().err
    assert found(store, document) == {}
    reports, payloads = tmp_path / "reports", tmp_path / "payloads"
    assert check(store.url, document, "--output-dir", str(reports)) == 14
    assert found(store, document) == {"audit": ["fail", "pass"], "resolver": ["pass"]}
    words = ["set", "evidence", "add", store.url, "--set", document.id, "--from", str(reports)]
    assert boundary.run_command(main.cli, [*words, "--write-payloads", str(payloads)]) == 0
    assert len(list(payloads.iterdir())) == 3
    assert found(store, document) == {"audit": ["fail", "pass"], "resolver": ["pass"]}


def test_installers_that_pick_something_else_are_a_failure(world: World, tmp_path: Path) -> None:
    """The index of the set says that a wheel is not for this Python: nothing can be picked."""
    store = folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, world.plan(), now=NOW).document
    page = store.folder / store_paths.FamilyPaths(FAMILY).set_index(document.id) / "torch"
    for file in ("index.json", "index.html"):
        text = (page / file).read_text()
        (page / file).unlink()
        (page / file).write_text(text.replace("torch-2.9.1", "torch-2.9.0"))
    shutil.copytree(store.folder, tmp_path / "copy")
    assert check(str(store.folder), document) == 14
    assert found(store, document)["resolver"] == ["fail", "pass"]
