"""``rocm-wheels wheel``: what is printed, what is written, what is refused."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from binaries import digest_of, wheel
from commands import take_down, transcript

from rocm_wheels.cli import boundary, main
from rocm_wheels.variants import document
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "wheel"

INFO = "demo-1.0.dist-info"
METADATA = (
    "Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nRequires-Python: >=3.10\n"
    "Requires-Dist: triton==3.5\nRequires-Dist: Jinja2; extra == 'x'\nProvides-Extra: x\n\nText.\n"
)


def made(folder: Path, files: dict[str, bytes] | None = None, **how: str) -> Path:
    """A wheel with two files, or these."""
    folder.mkdir(exist_ok=True, parents=True)
    files = files or {"demo/a.py": b"x = 1\n", "demo/b.py": b""}
    return wheel(folder, files, **{"metadata": METADATA, **how})  # type: ignore[arg-type]


def run(capsys: pytest.CaptureFixture[str], *argv: object, code: int = 0) -> tuple[str, str]:
    """Run a command of the group; return stdout and stderr."""
    assert boundary.run_command(main.wheel_group, [*map(str, argv)]) == code
    printed = capsys.readouterr()
    if "--json" not in argv:
        take_down(argv, code, printed.out + printed.err)
    return printed


def test_show_tells_what_a_wheel_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "demo-1.0-7local-py3-none-any-rocm7.2_gfx942.whl"
    path = made(tmp_path, {f"{INFO}/variant.json": b'{"variants": {}}'}, name=name)
    run(capsys, "show", path)
    [shown] = json.loads(run(capsys, "show", path, "--json")[0])
    assert shown == {
        "file": str(path),
        "name": "demo",
        "version": "1.0",
        "build": "7local",
        "tags": ["py3-none-any"],
        "label": "rocm7.2_gfx942",
        "size": path.stat().st_size,
        "generator": "test",
        "requires_python": ">=3.10",
        "requires": ["triton==3.5", "Jinja2; extra == 'x'"],
        "extras": ["x"],
        "dist_info": ["METADATA", "RECORD", "WHEEL", "variant.json"],
        "variant": {"variants": {}},
    }


def test_verify_names_every_fault_of_every_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = made(tmp_path / "good"), made(tmp_path / "bad", {"/etc/x": b"1", "demo/a.py": b"x = 1\n"})
    bad.write_bytes(bad.read_bytes() + b"tail")
    (tmp_path / "cut").mkdir()
    cut = tmp_path / "cut" / good.name
    cut.write_bytes(good.read_bytes()[:-9])
    run(capsys, "check", good, bad, cut, code=14)
    reports = json.loads(run(capsys, "check", good, bad, cut, "--json", code=14)[0])["wheels"]
    whole, faulty, unread = (
        [(f["check"], f["what"]) for f in one["findings"] if f["severity"] == "error"] for one in reports
    )
    assert (whole, len(reports[0]["largest"]), len(reports[0]["sha256"])) == ([], 5, 64)
    absolute = "/etc/x: this name leads out of the folder it is unpacked to: absolute"
    assert faulty == [("archive", "4 bytes behind its end record"), ("archive", absolute)]
    [(check, damage)] = unread
    assert check == "archive"
    assert "is not a readable wheel: cut short or damaged" in damage
    assert "because it has no end record: cut short, or no archive" in damage


def test_check_holds_the_files_of_the_format_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `audit` calls untidy, since it works, in wheels of anybody."""
    other_tags = made(tmp_path / "tags", tags=("py2-none-any",))
    in_hex = made(tmp_path / "hex")
    with zipfile.ZipFile(in_hex) as archive:
        record = archive.read(f"{INFO}/RECORD").decode()
    digest = hashlib.sha256(b"x = 1\n").hexdigest()
    record = record.replace(digest_of(b"x = 1\n"), f"sha256={digest}")
    in_hex = made(tmp_path / "hex", record=record)
    older = {"default-priorities": {"namespace": ["amd"]}, "variants": {"null": {}}}
    files = {f"{INFO}/variant.json": json.dumps(older).encode()}
    of_2025 = made(tmp_path / "old", files, name="demo-1.0-py3-none-any-null.whl")
    for path in (other_tags, in_hex, of_2025):
        assert boundary.run_command(main.cli, ["audit", str(path)]) == 0, path
        capsys.readouterr()
        run(capsys, "check", path, code=14)


def test_verify_names_what_only_pypi_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hello"
    run(capsys, "check", path, code=14)
    run(capsys, "retag", path, "--local-version", "x")
    run(capsys, "check", tmp_path / "demo-1.0+x-py3-none-any.whl")


def test_a_label_and_what_variant_json_says_are_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = document.VariantMetadata(
        ("amd", "rocm"),
        {"mi300": document.make_properties([("rocm", "version", ["7.2"])])},
        {"amd": document.make_bootstrap_provider(), "rocm": document.ProviderChoice().make_rocm_provider()},
    )
    files = {f"{INFO}/variant.json": stated.to_json()}
    right = made(tmp_path, files, name="demo-1.0-py3-none-any-mi300.whl")
    run(capsys, "check", right)
    shown = run(capsys, "show", right)[0]
    assert '"10.2",' in shown and "more ..." in shown and "7.2" in shown
    assert len(shown.splitlines()) < 60
    wrong = made(tmp_path, files, name="demo-1.0-py3-none-any-mi200.whl")
    run(capsys, "check", wrong, code=14)
    none = made(tmp_path, name="demo-1.0-py3-none-any-null.whl")
    run(capsys, "check", none, code=14)
    run(capsys, "retag", right, "--label", "mi200x", "--output-dir", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_a_check_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "check", "--explain", "archive")[0].splitlines()
    assert lines[0] == "RW001 archive (error)"
    run(capsys, "check", code=2)


def test_retag_writes_beside_and_prints_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    changes = "--local-version rocm7.2.0 --add-requirement rocm==7.2.0 --drop-requirement JINJA2"
    out, _ = run(capsys, "retag", path, *changes.split(), "--build-tag", "1")
    [new] = [Path(line) for line in out.splitlines()]
    assert new == tmp_path / "demo-1.0+rocm7.2.0-1-py3-none-any.whl"
    assert path.exists()
    scan = scan_wheel(new)
    assert scan.metadata and scan.metadata.requires_dist == ("triton==3.5", "rocm==7.2.0")
    assert scan.faults == ()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--local-version", "x y"],
        ["--build-tag", "a"],
        ["--label", "Big"],
        ["--drop-requirement", "numpy", "--build-tag", "1"],
        ["--add-requirement", "x ==", "--build-tag", "1"],
        ["--drop-requirement", "triton"],
    ],
)
def test_what_cannot_be_retagged_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    run(capsys, "retag", path, *options, code=2)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_two_wheels_do_not_become_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    (other,) = run(capsys, "retag", path, "--local-version", "a")[0].split()
    argv = ["retag", path, other, "--local-version", "b", "--output-dir", tmp_path / "out"]
    run(capsys, *argv, code=2)
    assert not (tmp_path / "out").exists()


def test_deep_nesting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = made(tmp_path / "a", {"demo-1.0.dist-info/variant.json": b"[" * 100_000})
    run(capsys, "show", deep, code=2)
    marker = "Name: demo\nVersion: 1.0\nRequires-Dist: a; " + "(" * 10_000 + "\n"
    deep = made(tmp_path / "b", metadata=f"Metadata-Version: 2.1\n{marker}")
    run(capsys, "check", deep, code=14)
    run(capsys, "retag", deep, "--local-version", "x", code=2)


def test_diff_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = made(tmp_path / "old", {"demo/a.py": b"1", "demo/b.py": b"2", "demo-1.0.data/data/x": b"3"})
    new = made(tmp_path / "new", {"demo/a.py": b"one", "demo/c.py": b"2", "demo-1.0.data/data/x": b"3"})
    run(capsys, "retag", new, "--local-version", "rocm7", "--drop-requirement", "triton")
    new = tmp_path / "new" / "demo-1.0+rocm7-py3-none-any.whl"
    out, _ = run(capsys, "diff", old, new)
    assert out.splitlines() == [
        "file name: version 1.0 -> 1.0+rocm7",
        "- demo/b.py",
        "+ demo/c.py",
        "~ demo/a.py",
        "METADATA: -version: 1.0",
        "METADATA: +version: 1.0+rocm7",
        "METADATA: -requires-dist: triton==3.5",
    ]
    found = json.loads(run(capsys, "diff", old, new, "--json")[0])
    listed = {key: found[key] for key in ("added", "removed", "changed")}
    assert listed == {"added": ["demo/c.py"], "removed": ["demo/b.py"], "changed": ["demo/a.py"]}
    assert run(capsys, "diff", old, old) == ("", "no difference\n")
    same = json.loads(run(capsys, "diff", old, old, "--json")[0])
    assert not any(same.values())


def test_diff_sees_lines_of_record_and_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = made(tmp_path / "old")
    with zipfile.ZipFile(old) as archive:
        record = archive.read(f"{INFO}/RECORD").decode()
    new = made(tmp_path / "new", record=record.replace(digest_of(b""), digest_of(b"other")))
    assert run(capsys, "diff", old, new)[0] == "RECORD: another line for demo/b.py\n"
    data = new.read_bytes()
    new.write_bytes(data.replace((0o600 << 16).to_bytes(4, "little"), (0o755 << 16).to_bytes(4, "little")))
    run(capsys, "diff", old, new)


@pytest.mark.parametrize("command", ["show", "retag --label x", "diff {path}"])
def test_what_is_no_wheel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_text("<html>404</html>")
    name, *more = command.format(path=path).split()
    out, _ = run(capsys, name, path, *more, code=2)
    assert out == ""
