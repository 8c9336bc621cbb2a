"""Listing what a store has, and what staging refuses before it sends anything."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import servers
from commands import call
from stores import FAMILY, NOW, ROCM, World, know

from rocm_wheels.release import stage, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores import folder

PLACES = FamilyPaths(FAMILY)


def a_set(number: int) -> wheel_set.SetDocument:
    version = f"2.9.{number}+rocm{ROCM}"
    names = [f"torch-{version}-cp3{10 + n}-cp3{10 + n}-linux_x86_64.whl" for n in range(200)]
    digests = [f"{number * 1000 + n:064x}" for n in range(200)]
    alike = {"project": "torch", "version": version, "size": 1000, "targets": ("gfx942",)}
    files = tuple(
        wheel_set.SetFile(name=name, sha256=digest, metadata_sha256=digest, **alike)
        for name, digest in zip(names, digests, strict=True)
    )
    created = datetime(2026, 11, 1, tzinfo=timezone.utc) + timedelta(hours=number)
    return wheel_set.SetDocument(
        id=wheel_set.make_set_id(version, FAMILY, zip(names, digests, strict=True), "c" * 64),
        created=f"{created:%Y-%m-%dT%H:%M:%SZ}",
        version=version,
        rocm=ROCM,
        family=FAMILY,
        layout="per-family",
        files=files,
        locks=(wheel_set.SetLock(digest="c" * 64),),
    )


def test_a_hundred_sets_of_two_hundred_wheels_are_read_in_seconds(tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    ids = []
    for number in range(100):
        document = a_set(number)
        ids.append(document.id)
        store.create(PLACES.set_document(document.id), document.to_json())
    begun = time.process_time()
    sets = wheel_set.read_family_sets(store, FAMILY)
    assert time.process_time() - begun < 5
    assert [document.id for document in sets.documents] == ids[::-1]


def test_what_is_known_of_sets_is_said(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    place, plan = str(tmp_path / "store"), world.plan()
    store = folder.FolderStore(Path(place))
    told = call("set", "list", place, code=2).err
    assert f"there is no store at {place}: the folder does not exist" in told
    Path(place).mkdir()
    assert f"there are no sets in {place}" in call("set", "list", place).err
    stage.stage_set(store, plan, now=NOW)
    moment = datetime(2026, 11, 21, 13, tzinfo=timezone.utc)
    for hours, outcome in enumerate(("fail", "pass")):
        know(store, plan.document, "gfx942", outcome, moment + timedelta(hours=hours))
    said = call("set", "list", place).out
    assert f"{plan.document.id}  {FAMILY}  ROCm {ROCM}  3 wheels  complete" in said
    assert "smoke on gfx942: pass" in said and "fail" not in said
    store.create(f"{PLACES.evidence_folder(plan.document.id)}/20261121T150000Z-000000000000.json", b"{")
    (row,) = call("set", "list", place, "--json").json["sets"]
    assert row["results"][1] == "20261121T150000Z-000000000000.json cannot be read"
    store.create(PLACES.set_document("2.9.5-000000000000"), b"{}")
    both = call("set", "list", place, code=15)
    assert plan.document.id in both.out and "is not the document of a set" in both.err


def test_the_command_stages_to_s3_and_lists_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.environment(servers.moto()).items():
        monkeypatch.setenv(name, value)
    world, url = World(tmp_path), f"s3://{servers.a_bucket()}/some/where"
    said = call(*world.words(url, "--json")).json
    assert said["index"].endswith(f"/some/where/{FAMILY}/sets/{said['set']}/simple/")
    assert [one["id"] for one in call("set", "list", url, "--json").json["sets"]] == [said["set"]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--family", "gfx94"], 2, "is no GPU family; did you mean"),
        (["--lock", "{folder}/none"], 2, "none"),
        (["--layout", "flat"], 2, "flat"),
        (["--layout", "multi-arch"], 2, "are for all GPU families, and --family says gfx94X-dcgpu"),
    ],
)
def test_wrong_options_leave_nothing(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    world, place = World(tmp_path / "world"), tmp_path / "store"
    given = [word.format(folder=tmp_path) for word in words]
    assert said in call(*world.words(str(place), *given), code=code).err
    assert not place.exists()


def test_a_store_without_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, url = World(tmp_path), f"s3://{servers.a_bucket()}/deaf"
    with servers.bad_line(lambda *_: "deaf") as line:
        for name, value in servers.environment(line.url).items():
            monkeypatch.setenv(name, value)
        assert "does not honour conditional writes" in call(*world.words(url), code=15).err
        told = call("set", "list", url).out
    assert told.splitlines() == []
