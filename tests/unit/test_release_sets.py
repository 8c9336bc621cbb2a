"""Documents of sets: their ids, what they refuse, and how they are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import edit_sealed, reseal

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
        id=wheel_set.make_set_id(version, family, [(name, digit * 64)], "c" * 64),
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
    version = "2.9.1+rocm7.1.0"
    found = wheel_set.make_set_id(version, "gfx942", [one, other], "c" * 64)
    assert found == wheel_set.make_set_id(version, "gfx942", [other, one], "c" * 64)
    assert found.startswith("2.9.1-rocm7.1.0-")
    others = (
        ("gfx942", [one], "c"),
        ("gfx942", [one, ("b.whl", "3" * 64)], "c"),
        ("gfx942", [one, other], "d"),
        ("gfx950", [one, other], "c"),
    )
    ids = {wheel_set.make_set_id(version, family, files, lock * 64) for family, files, lock in others}
    assert len({found, *ids}) == 5


def test_a_document_is_read_as_it_was_written() -> None:
    document = a_set()
    assert wheel_set.parse_set(document.to_json(), where="x") == document
    assert document.is_complete and document.hashes == {"a" * 64}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"files": []}, "files"),
        ({"schema": 3}, "schema"),
        ({"layout": "flat"}, "layout"),
        ({"more": 1}, "more"),
        ({"id": "2.9.1-rocm7.1.0-000000000000"}, "and what it lists is 2.9.1-rocm7.1.0-"),
        ({"version": "2.9.2"}, "and what it lists is 2.9.2-"),
        ({"version": "nightly"}, "version: Invalid version"),
        ({"version": "2.9.01"}, "version: the version is written 2.9.1"),
        ({"family": "../other"}, "family: it must be the name of a family"),
        ({"created": ""}, "created"),
        ({"created": "yesterday"}, "created"),
        ({"created": "2026-11-21T12:00:00+00:00"}, "created"),
        ({"created": "2026-1-1T2:03:04Z"}, "created: it must be a time such as"),
    ],
)
def test_a_document_that_says_what_it_cannot_is_refused(change: dict[str, Any], said: str) -> None:
    content = edit_sealed(a_set().to_json(), lambda document: document.update(change))
    with pytest.raises(errors.DataError, match=said):
        wheel_set.parse_set(content, where="x")


@pytest.mark.parametrize("name", ["../../x", "../torch-2.9.1-cp312-cp312-linux_x86_64.whl", "a.whl", ""])
def test_a_file_that_is_no_wheel_is_refused(name: str) -> None:
    content = edit_sealed(a_set().to_json(), lambda document: document["files"][0].update(name=name))
    with pytest.raises(errors.DataError, match=r"files\.0\.name: .* is not the name of a wheel"):
        wheel_set.parse_set(content, where="x")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: text.replace(b'"size": 10', b'"size": 11'), "x was edited: its seal is of something"),
        (lambda text: text.replace(b'"size": 10', b'"size":  10'), "x was edited"),
        (lambda text: text[:-20], "x is not the document of a set: it does not end in a seal"),
        (lambda text: b"{}", "does not end in a seal"),
        (lambda text: reseal(text.replace(b'"size": 10', b'"size":  10')), "is not as it was written"),
        (
            lambda text: reseal(text.replace(b' "id"', b' "layout": "flat",\n "id"')),
            "is not as it was written",
        ),
        (lambda text: text + text, "x was edited"),
    ],
)
def test_an_edited_document_is_refused_with_a_way_out(edit: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(errors.DataError, match=said) as refusal:
        wheel_set.parse_set(edit(a_set().to_json()), where="x")
    assert refusal.value.tip is not None
    assert "from a copy of the store, or remove it and stage the same wheels again" in refusal.value.tip


def test_when_a_set_was_staged_is_no_part_of_what_results_are_about() -> None:
    document = a_set()
    later = document.model_copy(update={"created": "2026-12-01T00:00:00Z"})
    assert later.digest == document.digest and later.to_json() != document.to_json()
    others = ({"rocm": "7.2.0"}, {"family": "gfx110X-all"}, {"layout": "variants"})
    assert document.digest not in {document.model_copy(update=other).digest for other in others}


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
    assert wheel_set.find_set(store, sets[1].id) == sets[1] and sets[1].id != sets[2].id
    with pytest.raises(errors.ReleaseError, match=r"could be 2.10.0-.* of gfx110X-all, 2.10.0"):
        wheel_set.find_set(store, "2.10")
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


def test_a_target_that_is_none_is_refused_for_folders_are_called_by_it() -> None:
    content = edit_sealed(a_set().to_json(), lambda document: document["files"][0].update(targets=["../.."]))
    with pytest.raises(errors.DataError, match=r"files\.0\.targets\.0: it must be a GPU target"):
        wheel_set.parse_set(content, where="x")
