"""A set of wheels is audited as one: from a folder, an index, a lock and a store, each wheel read once."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from audit_sets import set_drafts, write_set
from audit_wheels import Draft

from rocm_wheels.audit import ALL_CHECKS, SET_CHECKS
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
from rocm_wheels.core import read_junit_report
from rocm_wheels.index import add_wheels, serve_folder

SET_IDS = {"RW061": "set-files"}


@pytest.fixture
def small_set(tmp_path: Path) -> list[Path]:
    """Two wheels in a folder ``wheels``."""
    drafts = set_drafts()
    return write_set({name: drafts[name] for name in ("triton-311", "torch-311")}, tmp_path / "wheels")


def audit(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    """Run the command; return its exit code and what it prints, as JSON where that was asked for."""
    code = run_command(cli, ["audit", *map(str, words)])
    out = capfd.readouterr().out
    return code, json.loads(out) if out and "--json" in words else out


def list_ids(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["id"], finding["where"]) for finding in document["set"]["findings"]]


def write_pylock(lock: Path, wheels: list[Path], **digests: str) -> Path:
    """Write a lock (PEP 751) that lists wheels by relative paths, or URLs where they are of a server."""
    lines = ['lock-version = "1.0"', 'created-by = "test"']
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        digest = digests.get(name) or hashlib.sha256(wheel.read_bytes()).hexdigest()
        path = wheel.relative_to(lock.parent).as_posix()
        lines += ["[[packages]]", f'name = "{name.replace("_", "-")}"', f'version = "{version}"']
        lines += [f'wheels = [{{ path = "{path}", hashes = {{ sha256 = "{digest}" }} }}]']
    lock.write_text("\n".join(lines) + "\n")
    return lock


def test_ids_of_sets_are_for_good() -> None:
    assert {check.id: check.name for check in SET_CHECKS} == SET_IDS
    ids = [check.id for check in ALL_CHECKS]
    assert ids == sorted(set(ids)) and len({check.name for check in ALL_CHECKS}) == len(ids)
    assert all(check.summary and check.reason and check.fix for check in SET_CHECKS)


def test_each_wheel_of_a_folder_is_read_once_for_all_checks(
    small_set: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocm_wheels.audit import verify

    scanned: list[Path] = []
    scan_wheel = verify.scan_wheel
    monkeypatch.setattr(
        verify, "scan_wheel", lambda path, **more: [scanned.append(path), scan_wheel(path, **more)][1]
    )
    code, document = audit(capfd, "--set", small_set[0].parent, "--json")
    assert code == 0 and sorted(scanned) == sorted(small_set)
    assert [report["wheel"] for report in document["wheels"]] == sorted(path.name for path in small_set)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in small_set}
    assert document["set"]["wheels"] == digests and document["set"]["kind"] == "folder"
    assert {*document["set"]["ran"], *document["set"]["skipped"]} == set(SET_IDS.values())


def test_named_wheels_are_part_of_the_set_and_alone_are_reported(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    [more] = write_set({"torchvision": set_drafts()["torchvision-311"]}, tmp_path / "new")
    code, document = audit(capfd, "--set", small_set[0].parent, more, "--json")
    assert code == 0 and [report["wheel"] for report in document["wheels"]] == [more.name]
    assert set(document["set"]["wheels"]) == {more.name, *(path.name for path in small_set)}
    other = Draft("triton", "3.5.0", "cp311-cp311-linux_x86_64", members={"triton/__init__.py": b"1"})
    code, document = audit(capfd, "--set", small_set[0].parent, other.write(tmp_path), "--json")
    assert (code, list_ids(document)) == (14, [("RW061", small_set[0].name)])


def test_wheels_of_a_set_count_for_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What torch links to is looked for in the ROCm of the set, as in --find-links."""
    from audit_wheels import library

    drafts = set_drafts()
    drafts["torch-311"].members["torch/lib/libtorch_hip.so"] = library(
        "gfx942", "gfx1100", needed=("libamdhip64.so.7", "libstray.so.1")
    )
    drafts["torch-311"].requires.remove("filelock")
    drafts["rocm-sdk-core"].members["core/libamdhip64.so.7"] = library(soname="libamdhip64.so.7")
    names = ("torch-311", "triton-311", "rocm", "rocm-sdk-core", "rocm-sdk-libraries")
    write_set({name: drafts[name] for name in names}, tmp_path / "wheels")
    _, document = audit(capfd, "--set", tmp_path / "wheels", "--json")
    [report] = [report for report in document["wheels"] if report["wheel"].startswith("torch-")]
    [finding] = [finding for finding in report["findings"] if finding["id"] == "RW031"]
    assert finding["severity"] == "warning" and "libstray" in finding["what"]
    assert "libamdhip64" not in finding["what"]


@pytest.fixture
def index(tmp_path: Path, small_set: list[Path]) -> Path:
    """An index of the small set, with an older triton."""
    older = Draft("triton", "3.4.0", "cp311-cp311-linux_x86_64", members={"triton/__init__.py": b""})
    root = tmp_path / "index"
    add_wheels(root, [*small_set, older.write(tmp_path)], now="2026-11-21T12:00:00Z")
    return root


def test_of_an_index_the_newest_wheels_count(
    index: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 0 and set(document["set"]["wheels"]) == {path.name for path in small_set}
    assert (document["set"]["kind"], document["set"]["older"]) == ("index", 1)
    next(index.rglob(small_set[0].name)).write_bytes(small_set[0].read_bytes() + b"\0")
    code, document = audit(capfd, "--set", index, "--json")
    assert code == 14 and ("RW061", small_set[0].name) in list_ids(document)


@pytest.fixture
def server(index: Path) -> Iterator[str]:
    """The URL of that index on a server."""
    with serve_folder(index) as running:
        yield running.url


def test_wheels_at_urls_are_downloaded_compared_and_removed(
    server: str,
    small_set: list[Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    code, document = audit(capfd, "--set", server, "--json")
    assert code == 0 and set(document["set"]["wheels"]) == {path.name for path in small_set}
    lock = tmp_path / "pylock.toml"
    url = f"{server}triton/{quote(small_set[0].name)}"
    entry = f'wheels = [{{ url = "{url}", hashes = {{ sha256 = "{"0" * 64}" }} }}]'
    package = f'[[packages]]\nname = "triton"\nversion = "3.5.0"\n{entry}\n'
    lock.write_text(f'lock-version = "1.0"\ncreated-by = "test"\n{package}')
    code, document = audit(capfd, "--set", lock, "--json")
    assert (code, list_ids(document)) == (14, [("RW061", small_set[0].name)])
    assert document["wheels"] == [] and list(place.iterdir()) == []


def test_a_lock_is_compared_with_its_files(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lock = write_pylock(tmp_path / "pylock.toml", small_set)
    code, document = audit(capfd, "--set", lock, "--json")
    assert (code, document["set"]["kind"], list_ids(document)) == (0, "lock", [])
    write_pylock(lock, small_set, triton="0" * 64)
    small_set[1].unlink()
    code, document = audit(capfd, "--set", lock, "--json")
    assert code == 14
    assert list_ids(document) == [("RW061", small_set[1].name), ("RW061", small_set[0].name)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pylock.toml", "lock-version = 1"),
        ("pylock.toml", "= nothing"),
        ("pylock.toml", 'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n'),
        ("set.json", "{}"),
        ("other.json", "{}"),
        ("folder/readme.txt", ""),
        ("missing", None),
        ("https://example.invalid/pylock.toml", None),
        ("s3://bucket/index", None),
    ],
)
def test_what_no_set_can_be_read_from_is_one_clear_error(
    name: str, text: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = name
    if "://" not in name:
        file = tmp_path / name
        place = str(file.parent if name.startswith("folder/") else file)
        if text is not None:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    code = run_command(cli, ["audit", "--set", place])
    err = capfd.readouterr().err
    assert code == 2 and err.startswith("error: ") and err.count("error: ") == 1


def test_findings_of_a_set_reach_every_output_and_can_be_let_pass(
    tmp_path: Path, small_set: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    lock = write_pylock(tmp_path / "pylock.toml", small_set, triton="0" * 64)
    sarif, junit, page = (tmp_path / name for name in ("a.sarif", "a.xml", "a.html"))
    code, out = audit(capfd, "--set", lock, "--sarif", sarif, "--junit", junit, "--html", page)
    assert code == 14 and f"set {lock}: 1 error" in out
    [run_of_log] = json.loads(sarif.read_text())["runs"]
    [result] = [result for result in run_of_log["results"] if result["ruleId"] == "RW061"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert run_of_log["artifacts"][place["index"]]["location"]["uri"] == quote(small_set[0].name)
    assert run_of_log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "RW061"
    assert read_junit_report(junit).names == ("audit::RW061 set-files",)
    assert f"set {lock}" in page.read_text() and 'href="#RW061"' in page.read_text()
    for word, expected in (("RW061", 0), ("set-files:triton-*", 0), ("RW061:torch-*", 14), ("RW001", 14)):
        assert audit(capfd, "--set", lock, "--ignore", word)[0] == expected
    policy = tmp_path / "policy.yaml"
    entry = {"check": "set-files", "wheel": "triton-*", "owner": "ann", "reason": "again tomorrow"}
    policy.write_text(json.dumps({"ignore": [{**entry, "expires": "2999-01-01"}]}))
    code, document = audit(capfd, "--set", lock, "--policy", policy, "--json")
    assert code == 0 and len(document["set"]["ignored"]) == 1
    policy.write_text(json.dumps({"ignore": [{**entry, "expires": "2020-01-01"}]}))
    code, document = audit(capfd, "--set", lock, "--policy", policy, "--json")
    assert code == 14 and sorted(word for word, _ in list_ids(document)) == ["RW048", "RW061"]
    assert all(report["passed"] for report in document["wheels"])
    assert audit(capfd, "--explain", "RW061")[0] == 0
