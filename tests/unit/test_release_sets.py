"""Documents of sets: their ids, what they refuse, and how they are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.core import errors
from rocm_wheels.release import wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores import folder


def a_set(
    version: str = "2.9.1+rocm7.1.0", family: str = "gfx94X-dcgpu", digit: str = "a"
) -> wheel_set.SetDocument:
    name = f"torch-{version}-cp312-cp312-linux_x86_64.whl"
    file = wheel_set.SetFile(
        name=name, project="torch", version=version, sha256=digit * 64, size=10, metadata_sha256="b" * 64
    )
    return wheel_set.SetDocument(
        id=wheel_set.make_set_id(version, [(name, digit * 64)], "c" * 64),
        created="2026-11-21T12:00:00Z",
        version=version,
        family=family,
        layout="per-family",
        files=(file,),
        locks=(wheel_set.SetLock(digest="c" * 64),),
    )


def put(store: folder.FolderStore, document: wheel_set.SetDocument) -> None:
    store.create(FamilyPaths(document.family).set_document(document.id), document.to_json())


def test_an_id_follows_from_the_bytes_and_fits_a_url() -> None:
    one, other = ("a.whl", "1" * 64), ("b.whl", "2" * 64)
    found = wheel_set.make_set_id("2.9.1+rocm7.1.0", [one, other], "c" * 64)
    assert found == wheel_set.make_set_id("2.9.1+rocm7.1.0", [other, one], "c" * 64)
    assert found.startswith("2.9.1-rocm7.1.0-")
    others = (([one], "c"), ([one, ("b.whl", "3" * 64)], "c"), ([one, other], "d"))
    assert (
        len({found, *(wheel_set.make_set_id("2.9.1+rocm7.1.0", files, lock * 64) for files, lock in others)})
        == 4
    )


def test_a_document_is_read_as_it_was_written() -> None:
    document = a_set()
    assert wheel_set.parse_set(document.to_json(), where="x") == document
    assert document.is_complete and document.hashes == {"a" * 64}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"files": []}, "files"),
        ({"schema": 2}, "schema"),
        ({"layout": "flat"}, "layout"),
        ({"more": 1}, "more"),
        ({"id": "2.9.1-rocm7.1.0-000000000000"}, "and what it lists is 2.9.1-rocm7.1.0-"),
        ({"version": "2.9.2"}, "and what it lists is 2.9.2-"),
    ],
)
def test_a_changed_document_is_refused(change: dict[str, Any], said: str) -> None:
    content = json.dumps({**json.loads(a_set().to_json()), **change}).encode()
    with pytest.raises(errors.DataError, match=said):
        wheel_set.parse_set(content, where="x")


def test_a_set_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    store = folder.FolderStore(tmp_path)
    sets = [a_set(), a_set("2.10.0"), a_set("2.10.0", "gfx110X-all"), a_set("2.10.0", digit="d")]
    for one in sets:
        put(store, one)
    half = FamilyPaths("gfx94X-dcgpu").set_index("2.11.0-000000000000")
    store.create(f"{half}/index.html", b"")  # a set without its document is not there
    assert list(wheel_set.list_set_ids(store, "gfx94X-dcgpu")) == sorted(
        one.id for one in sets if one.family == "gfx94X-dcgpu"
    )
    assert wheel_set.find_set(store, "2.9") == sets[0]
    assert wheel_set.find_set(store, sets[3].id) == sets[3]
    assert wheel_set.find_set(store, sets[1].id, family="gfx110X-all") == sets[2]
    with pytest.raises(errors.ReleaseError, match=r"could be 2.10.0-.* of gfx110X-all, 2.10.0"):
        wheel_set.find_set(store, sets[1].id)
    with pytest.raises(errors.ReleaseError, match=r"there is no set 2.11"):
        wheel_set.find_set(store, "2.11")
    with pytest.raises(errors.ReleaseError, match=r"did you mean 2.9.1-rocm7.1.0-"):
        wheel_set.read_set(store, "gfx94X-dcgpu", sets[0].id[:-1] + "z")


def test_what_is_planned_is_a_cell_a_target_only_where_there_is_device_code() -> None:
    cells = wheel_set.make_planned_cells(
        [("torch", True), ("torchaudio", False)], ["3.13", "3.9"], ["gfx942", "gfx950"]
    )
    assert [str(cell) for cell in cells] == [
        "torch for Python 3.9 and gfx942",
        "torch for Python 3.9 and gfx950",
        "torch for Python 3.13 and gfx942",
        "torch for Python 3.13 and gfx950",
        "torchaudio for Python 3.9",
        "torchaudio for Python 3.13",
    ]
    assert cells[-1] == wheel_set.SetCell(project="torchaudio", python="3.13")
