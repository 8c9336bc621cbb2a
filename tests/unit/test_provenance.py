"""Statements beside wheels: what they are about, how they follow a wheel, and every break of one named."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wheels import embed_parts, torch_draft

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.package import provenance
from rocm_wheels.wheels import sbom
from rocm_wheels.wheels.edit import WheelEdit
from rocm_wheels.wheels.rewrite import read_dist_info_files, rewrite_wheel
from rocm_wheels.wheels.statement import (
    BUILD_TYPE,
    copy_statement,
    describe_package_dependency,
    format_statement,
    has_statement,
    locate_statement,
    locate_statement_signature,
    parse_statement,
    read_statement,
    walk_statements,
    write_statement,
)

pytestmark = pytest.mark.contract

ENV = dict(os.environ)
LOCK = b'{"a lock": 1}\n'
SOURCE = sbom.SourcePart("pytorch", "https://github.com/ROCm/pytorch.git", "1" * 40)
PACKAGE = sbom.PackagePart("rocm-sdk-core", "7.1.0", "b" * 64)
PARTS = sbom.WheelParts(
    tool="0.1.0", targets=("gfx942",), rocm="7.1.0", sources=(SOURCE,), packages=(PACKAGE,)
)

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is missing")


def make_predicate(*, lock: bytes = LOCK, source: sbom.SourcePart = SOURCE) -> dict[str, Any]:
    """Return what a build would say."""
    commit = {
        "name": source.name,
        "uri": sbom.make_repository_url(source),
        "digest": {"gitCommit": source.commit},
    }
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"lock": {"sha256": hashlib.sha256(lock).hexdigest()}},
        "internalParameters": {},
        "resolvedDependencies": [commit, describe_package_dependency(PACKAGE)],
    }
    return {"buildDefinition": definition, "runDetails": {"builder": {"id": "urn:test"}}}


def make_wheel(folder: Path, **changed: Any) -> Path:
    """Return a torch with lock, bill of materials, and a statement beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = embed_parts(torch_draft().write(folder), LOCK, PARTS)
    write_statement(wheel, format_statement(wheel.name, hash_bytes(wheel), make_predicate(**changed)))
    return wheel


def hash_bytes(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def list_faults(wheel: Path, signers: dict[str, str] | None = None) -> list[str]:
    return [finding.check for finding in provenance.verify_provenance(wheel, ENV, signers).findings]


def stamp(wheel: Path, folder: Path) -> Path:
    edit = WheelEdit(label="gfx942", put={"variant.json": b"{}"}, step="stamp gfx942")
    return rewrite_wheel(wheel, folder, edit)


def unstamp(wheel: Path, folder: Path) -> Path:
    words = ["wheel", "retag", str(wheel), "--label", "", "--output-dir", str(folder)]
    assert boundary.run_command(main.cli, words) == 0
    (plain,) = folder.glob("*.whl")
    return plain


def make_key(path: Path) -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "somebody", "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def test_what_is_done_to_a_wheel_is_said_with_all_that_was_said_before(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    edit = WheelEdit(version="2.9.0", platforms=("manylinux_2_28_x86_64",), step="retag")
    retagged = rewrite_wheel(wheel, tmp_path / "a", edit)
    stamped = stamp(retagged, tmp_path / "b")
    report = provenance.verify_provenance(stamped, ENV)
    assert (report.findings, report.steps) == ([], ("retag", "stamp gfx942"))
    assert report.build is not None and report.build.content == locate_statement(wheel).read_bytes()
    names = [entry["name"] for entry in report.statement.dependencies] if report.statement else []
    assert names == [retagged.name, locate_statement(retagged).name]
    again = stamp(retagged, tmp_path / "c")
    assert locate_statement(again).read_bytes() == locate_statement(stamped).read_bytes()


def test_verify_prints_what_statements_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tmp_path)
    stamped = stamp(wheel, tmp_path / "new")
    assert boundary.run_command(main.cli, ["provenance", "verify", str(stamped)]) == 0
    printed = capsys.readouterr().out
    for said in ("urn:test, then stamp gfx942; unsigned", wheel.name, PACKAGE.record, "gitCommit 11111"):
        assert said in printed
    locate_statement(wheel).unlink()
    assert boundary.run_command(main.cli, ["provenance", "verify", str(stamped), str(wheel), "--json"]) == 13
    first, second = json.loads(capsys.readouterr().out)
    assert [item["subject"][0]["name"] for item in first["statements"]] == [stamped.name, wheel.name]
    assert (second["statements"], second["findings"][0]["fault"]) == ([], "no-statement")


def test_a_wheel_that_is_given_back_has_its_statement_back(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    plain = unstamp(stamp(wheel, tmp_path / "variant"), tmp_path / "plain")
    assert plain.read_bytes() == wheel.read_bytes()
    assert locate_statement(plain).read_bytes() == locate_statement(wheel).read_bytes()


def test_a_wheel_without_a_statement_gets_none_and_a_stale_one_is_no_origin(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    other = make_wheel(tmp_path / "other")
    locate_statement(other).unlink()
    assert not has_statement(stamp(other, tmp_path / "none"))
    (tmp_path / "stale").mkdir()
    stale = shutil.copy(stamp(wheel, tmp_path / "variant"), tmp_path / "stale" / wheel.name)
    shutil.copy(locate_statement(wheel), tmp_path / "stale")
    with pytest.raises(errors.DataError):
        rewrite_wheel(Path(stale), tmp_path / "new", WheelEdit(version="2.9.0", step="retag"))
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_a_replaced_wheel_does_not_keep_the_statement_of_another(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    locate_statement_signature(wheel).write_text("of the old one\n")
    rewrite_wheel(wheel, tmp_path, WheelEdit(put={"note.txt": b"x"}, step="note"), replace=True)
    assert provenance.verify_provenance(wheel, ENV).steps == ("note",)
    assert not locate_statement_signature(wheel).exists()


def test_a_copy_of_a_wheel_has_its_statement_or_none(tmp_path: Path) -> None:
    wheel, copy = make_wheel(tmp_path), make_wheel(tmp_path / "copies", lock=b"another")
    copy_statement(wheel, copy)
    assert locate_statement(copy).read_bytes() == locate_statement(wheel).read_bytes()
    locate_statement(wheel).unlink()
    copy_statement(wheel, copy)
    assert not has_statement(copy)


def cut_wheel(wheel: Path) -> None:
    content = bytearray(wheel.read_bytes())
    content[100] ^= 1
    wheel.write_bytes(content)


def flip_statement(wheel: Path) -> None:
    path = locate_statement(wheel)
    path.write_bytes(path.read_bytes().replace(b"https://in-toto.io", b"https://in-toto.iO"))


def say_other(**changed: Any) -> Callable[[Path], None]:
    def rewrite(wheel: Path) -> None:
        write_statement(wheel, format_statement(wheel.name, hash_bytes(wheel), make_predicate(**changed)))

    return rewrite


def exchange_inner(wheel: Path) -> None:
    """Have the statement inside be about another wheel."""
    document = json.loads(locate_statement(wheel).read_bytes())
    entry = document["predicate"]["buildDefinition"]["resolvedDependencies"][1]
    inner = json.loads(base64.b64decode(entry["content"]))
    inner["subject"][0]["digest"]["sha256"] = "f" * 64
    content = json.dumps(inner).encode()
    entry["content"] = base64.b64encode(content).decode()
    entry["digest"]["sha256"] = hashlib.sha256(content).hexdigest()
    locate_statement(wheel).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda wheel: locate_statement(wheel).unlink(), "no-statement"),
        (cut_wheel, "wrong-wheel"),
        (flip_statement, "bad-statement"),
        (lambda wheel: locate_statement(wheel).write_bytes(b"\xff{}"), "bad-statement"),
        (say_other(lock=b"another"), "wrong-lock"),
        (say_other(source=sbom.SourcePart("pytorch", SOURCE.origin, "2" * 40)), "wrong-sbom"),
    ],
)
def test_each_break_is_named(damage: Callable[[Path], None], fault: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    assert list_faults(wheel) == []
    damage(wheel)
    assert list_faults(wheel) == [fault]


def test_a_bill_of_materials_spells_the_version_as_metadata_does(tmp_path: Path) -> None:
    draft = torch_draft()
    draft.metadata = b"Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+ROCm7.1.0\n"
    wheel = embed_parts(draft.write(tmp_path), LOCK, PARTS)
    write_statement(wheel, format_statement(wheel.name, hash_bytes(wheel), make_predicate()))
    assert b"2.9.0+ROCm7.1.0" in read_dist_info_files(wheel)[sbom.SBOM_MEMBER]
    assert list_faults(wheel) == []


def test_a_chain_that_does_not_hold_is_named(tmp_path: Path) -> None:
    stamped = stamp(make_wheel(tmp_path), tmp_path / "new")
    exchange_inner(stamped)
    assert list_faults(stamped) == ["wrong-step"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"1", b'{"subject": [{}]}', b"[" * 100_000, b'{"subject": [1, 2]}']
)
def test_anything_else_is_no_statement(content: bytes) -> None:
    with pytest.raises(errors.DataError):
        parse_statement(content, name="it")


@pytest.mark.parametrize("text", ["\x1b[2J", "two\nlines", "\u202egnp", "\x9b"])
def test_what_is_said_cannot_move_a_terminal(text: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    document = json.loads(locate_statement(wheel).read_bytes())
    document["predicate"]["runDetails"]["builder"]["id"] = text
    for ascii_only in (True, False):
        locate_statement(wheel).write_text(json.dumps(document, ensure_ascii=ascii_only), encoding="utf-8")
        assert list_faults(wheel) == ["bad-statement"]
    document["predicate"]["runDetails"]["builder"]["id"] = "C:\\new"  # a backslash is none
    locate_statement(wheel).write_text(json.dumps(document))
    assert list_faults(wheel) == []


def test_a_statement_that_is_no_file_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    locate_statement(wheel).unlink()
    locate_statement(wheel).mkdir()
    assert list_faults(wheel) == ["bad-statement"]
    if hasattr(os, "mkfifo"):
        locate_statement(wheel).rmdir()
        os.mkfifo(locate_statement(wheel))
        assert list_faults(wheel) == ["bad-statement"]


@needs_ssh
def test_signatures_are_by_a_key_of_those_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel, key, other = make_wheel(tmp_path), make_key(tmp_path / "ann"), make_key(tmp_path / "bob")
    words = ["provenance", "verify", str(wheel), "--json", "--signed-by"]

    def verify(*more: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        code = boundary.run_command(main.cli, [*words, f"{key}.pub", *more])
        (report,) = json.loads(capsys.readouterr().out)
        return code, [finding["fault"] for finding in report["findings"]]

    assert verify() == (13, ["unsigned"])
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 0
    assert verify() == (0, [])
    signature = locate_statement_signature(wheel)
    allowed = tmp_path / "allowed"  # anybody can check it without us
    allowed.write_text(f"ann {Path(f'{key}.pub').read_text()}")
    by_hand = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "ann", "-n", "provenance@rocm-wheels"]
    with locate_statement(wheel).open("rb") as statement:
        subprocess.run([*by_hand, "-s", str(signature)], stdin=statement, check=True, capture_output=True)
    kept = signature.read_text()
    signature.write_text(kept.replace(kept.splitlines()[3][:8], kept.splitlines()[3][:8].swapcase()))
    assert verify() == (13, ["wrong-signature"])
    signature.write_text(kept)
    locate_statement(wheel).write_bytes(locate_statement(wheel).read_bytes() + b"\n")
    assert verify() == (13, ["wrong-signature"])
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(other)]) == 0
    assert verify() == (13, ["unknown-signer"])
    cut_wheel(wheel)
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 2


@needs_ssh
def test_a_signature_is_kept_by_what_follows(tmp_path: Path) -> None:
    wheel, key = make_wheel(tmp_path), make_key(tmp_path / "ann")
    assert boundary.run_command(main.cli, ["provenance", "sign", str(wheel), "--sign-with", str(key)]) == 0
    statement = read_statement(stamp(wheel, tmp_path / "new"))
    assert statement is not None
    ((inner, signature),) = walk_statements(statement)
    assert signature == locate_statement_signature(wheel).read_bytes()
    assert inner.content == locate_statement(wheel).read_bytes()
    back = unstamp(tmp_path / "new" / statement.name, tmp_path / "back")
    assert locate_statement_signature(back).read_bytes() == signature
