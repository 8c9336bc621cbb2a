"""``set check``: what it finds is evidence, passed or not, in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import servers
from commands import call
from documents import edit_sealed
from stores import FAMILY, NOW, ROCM, World, a_lock

from rocm_wheels.cli import audit
from rocm_wheels.core import errors
from rocm_wheels.models import test_results
from rocm_wheels.release import stage, store_paths, wheel_set
from rocm_wheels.release.evidence import evidence, store
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

PATHS = store_paths.FamilyPaths(FAMILY)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("wheels"))


@dataclass(frozen=True)
class Staged:
    """A set in a store."""

    store: Store
    document: wheel_set.SetDocument

    def check(self, *more: object, code: int = 0) -> str:
        """Check it; return what is said on stderr."""
        return call("set", "check", self.store.url, "--set", self.document.id, *more, code=code).err

    def read_evidence(self) -> list[evidence.Evidence]:
        return [one.evidence for one in store.read_evidence(self.store, self.document, signers={}, env={})]

    def found(self) -> dict[str, list[str]]:
        """Return the outcomes of evidence by kind."""
        outcomes: dict[str, list[str]] = {}
        for one in self.read_evidence():
            outcomes[one.kind] = sorted([*outcomes.get(one.kind, []), one.outcome])
            assert set(one.hashes) <= self.document.hashes
        return outcomes


@pytest.fixture
def staged(world: World, tmp_path: Path) -> Staged:
    place = folder.FolderStore(tmp_path / "store")
    return Staged(place, stage.stage_set(place, world.plan(), now=NOW).document)


def read_audit(reports: Path) -> test_results.Results:
    return test_results.Results.model_validate_json((reports / "audit.json").read_bytes())


def test_what_fails_is_evidence_and_named(staged: Staged, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    assert "did not pass: " in staged.check("--output-dir", reports, code=14)
    assert staged.found() == {"audit": ["fail", "pass"], "resolver": ["pass"]}
    audited, asked = (
        test_results.Results.model_validate_json((reports / name).read_bytes())
        for name in ("audit.json", "resolver.json")
    )
    for found_by in (audited, asked):
        assert found_by.wheels == {file.name: file.sha256 for file in staged.document.files}
    assert any(test.is_bad and test.detail for test in audited.tests)
    assert {test.name.rpartition(", ")[2] for test in asked.tests} == {"pip", "uv"}
    assert {name for test in asked.tests for name in test.wheels} == set(asked.wheels)


def test_wheels_count_where_a_recipe_held_them_and_device_wheels_beside_their_host(
    staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, device, *others = (file.name for file in staged.document.files)
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
    staged.check("--output-dir", reports, code=14)
    audited = read_audit(reports)
    faults = {test.name for test in audited.tests if "no recipe says what it must be" in test.detail}
    assert faults == {f"{name}: recipe" for name in others} and device not in str(faults)


@pytest.mark.parametrize("damage", ["other bytes", "gone"])
def test_a_damaged_store_is_no_result_about_wheels(staged: Staged, damage: str) -> None:
    """It would hold the set until the next check, and the wheels are all right."""
    torch = next(file for file in staged.document.files if file.project == "torch")
    stored = staged.store.folder / PATHS.pool_file(torch.sha256, torch.name)
    content = stored.read_bytes()
    stored.unlink()
    if damage == "other bytes":
        stored.write_bytes(content[:-1] + b"x")
    said = staged.check(code=15)
    assert f"{torch.name} of {staged.document.id} is gone, or has other bytes" in said
    assert "store fsck --hash" in said
    assert staged.found() == {}


def test_a_finding_of_thousands_of_letters_is_cut(
    staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding may name every file of a wheel; a test says what is wrong in a line."""
    monkeypatch.setattr(errors, "format_finding", lambda _: "x" * 9000)
    staged.check("--output-dir", tmp_path, code=14)
    audited = read_audit(tmp_path)
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


def test_an_edited_document_fails_the_audit_of_every_wheel(staged: Staged, tmp_path: Path) -> None:
    """It is the test `set: document` of the evidence; so is a lock that is gone."""
    reports = tmp_path / "reports"

    def read_test() -> tuple[str, str]:
        staged.check("--output-dir", reports, code=14)
        audited = read_audit(reports)
        return next((test.outcome, test.detail) for test in audited.tests if test.name == "set: document")

    assert read_test() == ("passed", "")
    path, lock = (
        staged.store.folder / PATHS.set_document(staged.document.id),
        PATHS.lock_file(staged.document.locks[0].digest),
    )
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(edit_sealed(content, EDITS["targets"][0]))
    outcome, detail = read_test()
    assert outcome == "failed" and EDITS["targets"][1] in detail
    assert staged.found()["audit"].count("pass") == 1  # of before
    path.unlink()
    path.write_bytes(content)
    staged.store.remove(lock)
    assert read_test()[0] == "failed"


def test_a_key_that_cannot_sign_ends_it_before_anything_is_looked_at(staged: Staged, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    for name, refusal in (("gone", "there is no key"), ("key", "key")):
        reports = tmp_path / f"reports {name}"
        words = ("--output-dir", reports, "--sign-with", tmp_path / name)
        assert refusal in staged.check(*words, code=2) and not reports.exists()
    assert staged.found() == {}


def test_of_a_bucket_wheels_are_fetched_or_must_be_those_of_the_set(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = servers.a_bucket()
    place = servers.a_store(bucket=bucket)
    for name, value in servers.environment(servers.moto()).items():
        monkeypatch.setenv(name, value)
    staged = Staged(place, stage.stage_set(place, world.plan(), now=NOW).document)
    other = World(tmp_path / "other", text="other bytes").folder
    told = staged.check("--wheels", other, code=15)
    assert "not among the wheels that were named" in told
    assert staged.found() == {}
    reports, payloads = tmp_path / "reports", tmp_path / "payloads"
    staged.check("--output-dir", reports, code=14)
    assert staged.found() == {"audit": ["fail", "pass"], "resolver": ["pass"]}
    words = ["set", "evidence", "add", place.url, "--set", staged.document.id, "--from", str(reports)]
    call(*words, "--write-payloads", payloads)
    assert len(list(payloads.iterdir())) == 3
    assert staged.found() == {"audit": ["fail", "pass"], "resolver": ["pass"]}


def test_installers_that_pick_something_else_are_a_failure(staged: Staged) -> None:
    """The index of the set says that a wheel is not for this Python: nothing can be picked."""
    page = staged.store.folder / PATHS.set_index(staged.document.id) / "torch"
    for file in ("index.json", "index.html"):
        text = (page / file).read_text()
        (page / file).unlink()
        (page / file).write_text(text.replace("torch-2.9.1", "torch-2.9.0"))
    staged.check(code=14)
    assert staged.found()["resolver"] == ["fail", "pass"]
    failed = [one.failed for one in staged.read_evidence() if one.kind == "resolver" and not one.passed]
    assert "failed with exit code 1: | ERROR: HTTP error 404" in str(failed), failed
