"""``set check``: what it finds is evidence, passed or not, in a folder and in a bucket."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import s3_servers
from release_world import FAMILY, NOW, World

from rocm_wheels.cli import boundary, main
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


def test_of_a_bucket_wheels_are_fetched_or_must_be_those_of_the_set(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = s3_servers.a_bucket()
    store = s3_servers.a_store(bucket=bucket)
    for name, value in s3_servers.environment(s3_servers.moto()).items():
        monkeypatch.setenv(name, value)
    document = stage.stage_set(store, world.plan(), now=NOW).document
    other = World(tmp_path / "other", text="other bytes").folder
    assert check(store.url, document, "--wheels", str(other)) == 15
    assert "not among the wheels that were named" in capsys.readouterr().err
    assert found(store, document) == {}
    payloads = tmp_path / "payloads"
    assert check(store.url, document, "--write-payloads", str(payloads)) == 14
    assert len(list(payloads.iterdir())) == 3 and found(store, document) == {}
    assert check(store.url, document, "--wheels", str(world.folder)) == 14
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
