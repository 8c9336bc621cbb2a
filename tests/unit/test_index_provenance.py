"""Provenance objects (PEP 740) in an index: taken along, named by whole URLs, and wrong ones found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from wheels import NOW, drop, make_object, wheel

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.index import update, verify

pytestmark = pytest.mark.contract

URL = "https://wheels.example.org/simple/"
Changes = dict[str, Any]


def make_wheel(folder: Path, **changed: object) -> Path:
    """Return a wheel with a provenance object beside it."""
    made = wheel(folder)
    made.with_name(f"{made.name}.provenance").write_bytes(make_object(made, **changed))
    return made


def read_links(root: Path) -> list[str | None]:
    """Return the URLs of objects on a project's page, which HTML has as well."""
    files = json.loads((root / "torch" / "index.json").read_text())["files"]
    html = (root / "torch" / "index.html").read_text()
    for file in files:
        assert file.get("provenance") is None or f'data-provenance="{file["provenance"]}"' in html
    return [file.get("provenance") for file in files]


def test_an_object_comes_along_and_stays_through_what_follows(tmp_path: Path) -> None:
    root, made = tmp_path / "index", make_wheel(tmp_path / "fresh")
    update.add_wheels(root, [made], now=NOW, public_url=URL)
    link = f"{URL}torch/{made.name.replace('+', '%2B')}.provenance"
    assert read_links(root) == [link]
    assert json.loads((root / "torch" / "index.json").read_text())["meta"]["api-version"] == "1.3"
    update.yank_wheels(root, [made.name], reason="why")
    update.build_index(root, now=NOW)
    assert read_links(root) == [link]
    assert verify.verify_index(str(root)).findings == ()
    drop(root, root / "torch" / made.name)
    assert not list(root.rglob("*.provenance"))


def test_an_object_may_come_later_and_go(tmp_path: Path) -> None:
    root, made = tmp_path / "index", wheel(tmp_path / "fresh")
    update.add_wheels(root, [made], now=NOW)
    assert read_links(root) == [None]
    (root / "torch" / f"{made.name}.provenance").write_bytes(make_object(made))
    update.build_index(root, now=NOW, public_url=URL)
    assert len([link for link in read_links(root) if link]) == 1
    (root / "torch" / f"{made.name}.provenance").unlink()
    update.build_index(root, now=NOW)
    assert read_links(root) == [None]


def test_a_family_has_its_own_place(tmp_path: Path) -> None:
    root, made = tmp_path / "index", make_wheel(tmp_path / "fresh")
    update.add_wheels(root, [made], now=NOW, public_url=URL, family="gfx94X-dcgpu")
    assert read_links(root / "gfx94X-dcgpu") == [
        f"{URL}gfx94X-dcgpu/torch/{made.name.replace('+', '%2B')}.provenance"
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"sha256": "f" * 64},
        {"name": "torch-2.0-py3-none-any.whl"},
        {"kind": "https://example.org/other/v1"},
        {"version": 2},
        {"version": True},
    ],
)
def test_a_wrong_object_is_refused_and_found(changed: Changes, tmp_path: Path) -> None:
    root, made = tmp_path / "index", make_wheel(tmp_path / "fresh", **changed)
    with pytest.raises(errors.DataError):
        update.add_wheels(root, [made], now=NOW, public_url=URL)
    assert not (root / "torch").exists()
    made.with_name(f"{made.name}.provenance").write_bytes(make_object(made))
    update.add_wheels(root, [made], now=NOW, public_url=URL)
    (root / "torch" / f"{made.name}.provenance").write_bytes(make_object(made, **changed))
    assert [finding.check for finding in verify.verify_index(str(root)).findings] == ["wrong-provenance"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"version": 1, "attestation_bundles": [1]}']
)
def test_anything_else_is_no_object(content: bytes, tmp_path: Path) -> None:
    made = make_wheel(tmp_path / "fresh")
    made.with_name(f"{made.name}.provenance").write_bytes(content)
    with pytest.raises(errors.DataError):
        update.add_wheels(tmp_path / "index", [made], now=NOW, public_url=URL)


def test_pages_need_to_know_where_they_are_seen(tmp_path: Path) -> None:
    made = make_wheel(tmp_path / "fresh")
    words = ["index", "build", str(tmp_path / "index"), str(made)]
    assert boundary.run_command(main.cli, words) == 2
    assert boundary.run_command(main.cli, [*words, "--public-url", "http://wheels.example.org/"]) == 2
    with pytest.raises(errors.UsageError):
        update.add_wheels(
            tmp_path / "index", [made], now=NOW, public_url="https://user:word@wheels.example.org/"
        )
    assert boundary.run_command(main.cli, [*words, "--public-url", URL]) == 0
