"""What an index remembers, whom it believes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from wheels import NOW, files, variant, wheel

from rocm_wheels.core import errors
from rocm_wheels.index import update, verify, wheel_file
from rocm_wheels.index.folder import IndexFolder
from rocm_wheels.wheels.archive import WheelArchive


def test_a_wheel_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wheel(tmp_path)
    hashed = []
    real = WheelArchive.compute_sha256
    monkeypatch.setattr(
        WheelArchive, "compute_sha256", lambda archive: hashed.append(archive.path.name) or real(archive)
    )
    for _ in range(2):
        update.build_index(tmp_path, now=NOW)
    assert hashed == [path.name]
    os.utime(path, ns=(5, 5))  # another time, the same bytes: looked at again, added when it was
    update.build_index(tmp_path, now="2027-01-01T00:00:00Z")
    assert hashed == [path.name] * 2
    entry = IndexFolder(tmp_path).read_entries("torch")[path.name]
    assert (entry.uploaded, entry.changed) == (NOW, 5)


def test_a_wheel_is_never_replaced(tmp_path: Path) -> None:
    root, path = tmp_path / "index", wheel(tmp_path)
    update.add_wheels(root, [path], now=NOW)
    before = files(root)
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    other = wheel(tmp_path / "new", text="changed")
    new = hashlib.sha256(other.read_bytes()).hexdigest()
    with pytest.raises(errors.RocmWheelsError) as wrong:
        update.add_wheels(root, [wheel(tmp_path, "triton", "3.0"), other], now=NOW)
    assert old in str(wrong.value)
    assert new in str(wrong.value)
    assert "build tag" in (wrong.value.tip or "")
    assert files(root) == before
    (root / "torch" / path.name).write_bytes(other.read_bytes())
    with pytest.raises(errors.RocmWheelsError, match=new):
        update.build_index(root, now=NOW)
    update.add_wheels(root, [wheel(tmp_path / "new", build="1", text="changed")], now=NOW)


def test_wheels_that_are_gone_are_dropped_on_request_only(tmp_path: Path) -> None:
    keep, gone = wheel(tmp_path), wheel(tmp_path, version="2.8.0")
    update.build_index(tmp_path, now=NOW)
    gone.unlink()
    before = files(tmp_path)
    with pytest.raises(errors.RocmWheelsError, match=gone.name) as wrong:
        update.build_index(tmp_path, now=NOW)
    assert "--drop-missing" in (wrong.value.tip or "")
    assert files(tmp_path) == before
    update.build_index(tmp_path, now=NOW, drop_missing=True)
    assert list(IndexFolder(tmp_path).read_entries("torch")) == [keep.name]


REFUSED: list[tuple[str, Callable[[Path], Path], str]] = [
    ("name of another version", lambda folder: wheel(folder).rename(folder / "torch-2.9.2-py3-none-any.whl"),
     "METADATA says version 2.9.1"),
    ("label without variant",
     lambda folder: wheel(folder, version="2.9.1").rename(folder / "torch-2.9.1-py3-none-any-rocm7.whl"),
     "variant.json is missing, the file name has the label rocm7"),
    ("requires-python", lambda folder: wheel(folder, python="3.10"), "a field cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(tmp_path: Path, make: Callable[[Path], Path], said: str) -> None:
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path / "good", "triton", "3.0")], now=NOW)
    before = files(root)
    with pytest.raises(errors.RocmWheelsError) as wrong:
        update.add_wheels(root, [wheel(tmp_path / "good", "apex", "1.0"), make(tmp_path)], now=NOW)
    assert said in errors.explain_error(wrong.value)
    assert files(root) == before


def test_folders_of_another_name_are_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "gfx1100")
    with pytest.raises(errors.RocmWheelsError, match="wheels lie in torch/") as wrong:
        update.build_index(tmp_path, now=NOW)
    assert "--family gfx1100" in (wrong.value.tip or "")
    update.build_index(tmp_path, now=NOW, new_families=["gfx1100"])
    assert update.build_index(tmp_path, now=NOW).files == 1
    assert (tmp_path / "gfx1100/torch/index.html").is_file()


WORDS = [
    ("torch", "neither a wheel nor a release"),
    ("torch==x", "'x' is not a version"),
    ("torch==2.8", "has no torch==2.8"),
    ("torch-2.9.1+rocm7.2.0-py3-none-any.whl", "did you mean torch-2.9.1+rocm7.1.0-py3-none-any.whl"),
]


@pytest.mark.parametrize(("word", "said"), WORDS)
def test_nothing_of_that_name(tmp_path: Path, word: str, said: str) -> None:
    update.add_wheels(tmp_path / "index", [wheel(tmp_path)], now=NOW)
    before = files(tmp_path / "index")
    with pytest.raises(errors.UsageError) as wrong:
        update.yank_wheels(tmp_path / "index", ["torch==2.9.1+rocm7.1.0", word], reason="")
    assert said in str(wrong.value)
    assert files(tmp_path / "index") == before


def test_a_page_that_leads_out_of_the_index_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path)], now=NOW)
    page = root / "torch" / "index.json"
    known = json.loads(page.read_text())
    odd_files: list[dict[str, object]] = [
        {"filename": "../../other"},
        *(
            {"filename": name, "url": name}
            for name in ("torch", "a/b-1.0.tar.gz", "<b-1.0.tar.gz", "x-1.tar.gz")
        ),
        *({"size": size} for size in ("1", None, True, 1.5)),
        *({"yanked": 1}, {"url": None}, {"hashes": {}}, {"upload-time": "\ud800"}, {"core-metadata": None}),
    ]
    for text in (
        "",
        "[1]",
        *(json.dumps({**known, "files": [{**known["files"][0], **change}]}) for change in odd_files),
    ):
        page.write_text(text)
        with pytest.raises(errors.DataError, match=r"torch/index\.json is damaged"):
            update.add_wheels(root, [wheel(tmp_path, version="2.8.0")], now=NOW)
        assert "stale-page" in {finding.check for finding in verify.verify_index(str(root)).findings}
    (root / "index.json").write_text('{"_families": ["../.."]}')
    with pytest.raises(errors.DataError, match=r"index\.json is damaged"):
        update.add_wheels(root, [wheel(tmp_path, "apex", "1.0")], now=NOW)


@pytest.mark.parametrize(
    "place", ["../../pool/", "../x/../../../pool/", "/pool/", "https://host/", "..\\..\\"]
)
@pytest.mark.parametrize("family", ["", "gfx1100"])
def test_no_command_touches_what_lies_outside_of_the_index(tmp_path: Path, place: str, family: str) -> None:
    """Indexes with their files elsewhere were made once: what lies there is not theirs to remove."""
    root, path = tmp_path / "index", wheel(tmp_path)
    update.add_wheels(root, [path], now=NOW, family=family)
    page = root / family / "torch" / "index.json"
    known = json.loads(page.read_text())
    known["files"][0]["url"] = (
        ("../" if family and place.startswith("..") else "") + place + known["files"][0]["url"]
    )
    page.write_text(json.dumps(known))
    (root / family / "torch" / path.name).unlink()
    pool = tmp_path / "pool" / path.name
    pool.parent.mkdir()
    for beside in (pool, Path(f"{pool}.metadata"), Path(f"{pool}.provenance")):
        beside.write_bytes(b"of somebody")
    before = files(tmp_path)
    for change in (
        lambda: update.build_index(root, now=NOW, drop_missing=True),
        lambda: update.add_wheels(root, [wheel(tmp_path, version="2.9.1+rocm7.1.0")], now=NOW, family=family),
        lambda: update.yank_wheels(root / family, ["torch==2.9.1+rocm7.1.0"], reason=""),
    ):
        with pytest.raises(errors.DataError, match="lies outside of the index") as refusal:
            change()
        assert "make it anew in another folder" in str(refusal.value.tip)
    assert files(tmp_path) == before


def test_a_yank_in_the_folder_of_a_family_is_of_its_own_wheels(tmp_path: Path) -> None:
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path / "all")], now=NOW)
    update.add_wheels(root, [wheel(tmp_path / "own", version="2.10.0")], now=NOW, family="gfx94X")
    (name,) = update.yank_wheels(root / "gfx94X", ["torch==2.10.0"], reason="wrong")
    assert IndexFolder(root, "gfx94X").read_entries("torch")[name].yanked == "wrong"
    for place, word in ((root / "gfx94X", "torch==2.9.1+rocm7.1.0"), (root, "torch==2.10.0")):
        with pytest.raises(errors.UsageError, match="has no torch=="):
            update.yank_wheels(place, [word], reason="")
    assert verify.verify_index(str(root)).findings == ()


def test_a_family_takes_the_folder_of_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "index"
    for name in ("index.html", "links.html", "Index.JSON", "variants", ".."):
        with pytest.raises(errors.UsageError, match="no name for a folder"):
            update.add_wheels(root, [wheel(tmp_path)], now=NOW, family=name)
    update.add_wheels(root, [wheel(tmp_path)], now=NOW, family="gfx94X")
    clash = wheel(tmp_path, "gfx94x", "1.0")
    with pytest.raises(errors.UsageError, match="has a family of the name of the project gfx94x"):
        update.add_wheels(root, [clash], now=NOW)
    shutil.copy(clash, root)
    with pytest.raises(errors.UsageError, match="has a family of the name of the project gfx94x"):
        update.build_index(root, now=NOW)


@pytest.mark.parametrize(
    ("there", "family", "new", "new_family"),
    [
        (("torch", "2.13+rocm10"), "", ("torchaudio", "2.11+rocm10.asan"), ""),
        (("torch", "2.13+rocm10.asan"), "", ("triton", "3.5+rocm10"), ""),
        (("torch", "2.13+rocm10.asan"), "gfx94X", ("triton", "3.5+rocm10"), ""),  # for everybody
        (("triton", "3.5+rocm10"), "", ("torch", "2.13+rocm10.asan"), "gfx94X"),
        (("rocm", "10.1"), "", ("rocm", "10.1+asan.5"), ""),
    ],
)
def test_an_index_has_no_plain_wheels_beside_those_with_asan(
    tmp_path: Path, there: tuple[str, str], family: str, new: tuple[str, str], new_family: str
) -> None:
    root = tmp_path / "index"
    plain = [wheel(tmp_path, name, "1.0") for name in ("numpy", "rocm_sdk_core")]  # beside both
    update.add_wheels(root, [wheel(tmp_path, *there), *plain], now=NOW, family=family)
    before = files(root)
    with pytest.raises(errors.DataError, match=r"has AddressSanitizer, and [^ ]+ has not") as refused:
        update.add_wheels(root, [wheel(tmp_path, *new)], now=NOW, family=new_family)
    assert "an index of their own" in str(refused.value.tip)
    assert files(root) == before


def test_a_family_with_asan_is_an_index_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "index"
    update.add_wheels(root, [wheel(tmp_path, version="2.13+rocm10")], now=NOW, family="gfx94X")
    update.add_wheels(root, [wheel(tmp_path, version="2.13+rocm10.asan")], now=NOW, family="gfx94X-asan")


def test_fields_of_metadata_end_where_the_description_begins() -> None:
    said = b"Metadata-Version: 2.4\r\nName: a\r\nVersion: 1\r\n\r\nRequires-Python: >=99\r\n"
    assert not wheel_file.read_requires_python(said, "a-1-py3-none-any.whl")


def test_all_pages_follow_from_those_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is gone: pages as HTML, variants files, METADATA, what is known of times."""
    root, fresh = tmp_path / "index", tmp_path / "fresh"
    labelled = [variant(fresh, "null", {}), variant(fresh, "rocm7.1", {"rocm": {"version": ["7.1"]}})]
    update.add_wheels(root, [wheel(fresh), wheel(fresh, "triton", "3.5.0"), *labelled], now=NOW)
    update.add_wheels(root, [wheel(fresh), wheel(fresh, version="2.10.0")], now=NOW, family="gfx1100")
    update.add_wheels(root, [wheel(fresh, "apex", "1.0")], now=NOW)
    update.yank_wheels(root, ["triton==3.5.0"], reason="wrong")
    before = files(root)
    for path in root.rglob("*.*"):
        if path.is_file() and path.suffix != ".whl" and path.name != "index.json":
            path.unlink()
    update.build_index(root, now="2027-01-01T00:00:00Z")
    assert files(root) == before
    (root / "triton" / "index.html").unlink()
    update.add_wheels(root, [wheel(fresh)], now=NOW)
    assert files(root) == before
    monkeypatch.setattr(wheel_file, "scan_wheel", lambda *_, **__: pytest.fail("read again"))
    update.build_index(root, now=NOW)
