"""One pass over a wheel: RECORD, METADATA, WHEEL, hostile archives, device code."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from binaries import HOST, bundle, compress, digest_of, elf, hip, wheel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import wheel_code
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

LIBRARY = elf({".hip_fatbin": compress(bundle(HOST, hip("gfx942"), hip("gfx1100")), 3, "zstd")})
FILES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/lib/a.so": LIBRARY,
    "demo/a, b.txt": b"comma",
    "demo/empty": b"",
}
INFO = "demo-1.0.dist-info"
COMMA = digest_of(b"comma")
HEX = "sha256=" + hashlib.sha256(b"x = 1\n").hexdigest()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_one_pass_gives_everything(tmp_path: Path, method: int) -> None:
    path = wheel(tmp_path, FILES, method=method)
    scan = scan_wheel(path, keep=("*/__init__.py",))
    assert scan.faults == ()
    assert scan.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert scan.size == path.stat().st_size
    expected = {name: (len(content), digest_of(content)) for name, content in FILES.items()}
    assert {m.name: (m.size, m.digest) for m in scan.members if m.name in FILES} == expected
    assert all(m.recorded for m in scan.members)
    assert scan.texts["demo/__init__.py"] == b"x = 1\n"
    assert {name: code_objects.list_code_targets(code) for name, code in scan.device_code.items()} == {
        "demo/lib/a.so": ["gfx942", "gfx1100"]
    }
    assert scan.metadata and (scan.metadata.name, str(scan.metadata.version)) == ("demo", "1.0")
    code = {name: list(code) for name, code in scan.device_code.items()}
    assert wheel_code.read_device_code(path) == wheel_code.FoundDeviceCode(code, {})


def test_a_large_member_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_wheels.wheels.archive._IN_MEMORY", 1000)
    monkeypatch.setattr("rocm_wheels.wheels.archive._WORTH_A_THREAD", 100)
    assert scan_wheel(wheel(tmp_path, FILES)).faults == ()


def _line(name: str, content: bytes) -> str:
    return f"{name},{digest_of(content)},{len(content)}\n"


AB = "demo/a, b.txt"
# what is changed in RECORD ("": what is added to it), and what is said of that
RECORDS = [
    (digest_of(FILES["demo/__init__.py"]), HEX, "demo/__init__.py is listed with a digest in hex"),
    (COMMA, digest_of(b"other"), f"{AB} does not have the digest it is listed with"),
    (COMMA, COMMA + "=", f"{AB} is listed with a padded digest"),
    (COMMA, "md5=abc", f"{AB} is listed with a md5 instead of a sha256 digest"),
    (COMMA, "", f"{AB} is listed without a digest"),
    (COMMA + ",5", COMMA + ",6", f"{AB} has 5 bytes, listed with 6"),
    (COMMA + ",5", COMMA + ",", f"{AB} is listed without a size"),
    (COMMA + ",5", COMMA + ",five", "'five' is not a size"),
    (
        f'"demo/__init__.py",{digest_of(FILES["demo/__init__.py"])},6\n',
        "",
        "demo/__init__.py is in the wheel but not listed",
    ),
    ("", _line("demo/gone.py", b""), "demo/gone.py is listed but not in the wheel"),
    ("", _line("demo/empty", b""), "demo/empty is listed twice"),
    ("RECORD,,", "RECORD,sha256=x,3", "RECORD must be listed without digest and size"),
    (f"{INFO}/RECORD,,\n", "", f"{INFO}/RECORD does not list itself"),
    ("", "a,b\n", "RECORD:8: 2 fields instead of path, digest and size"),
    ("", '"a', "RECORD is not CSV in UTF-8"),
    ("sha256", "sha257", "3 more files: is listed with a sha257 instead"),
]


@pytest.mark.parametrize(("old", "new", "fault"), RECORDS)
def test_faults_of_record_are_named(tmp_path: Path, old: str, new: str, fault: str) -> None:
    good = zipfile.ZipFile(wheel(tmp_path, FILES)).read(f"{INFO}/RECORD").decode()
    assert old in good
    faults = scan_wheel(wheel(tmp_path, FILES, record=good.replace(old, new) if old else good + new)).faults
    assert len(faults) == 1
    assert fault in faults[0]
    assert "demo-1.0-py3-none-any.whl: demo-1.0.dist-info/RECORD" in faults[0]


META = "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": "other-1.0-py3-none-any.whl"}, "METADATA names the project demo, the file name says other"),
        ({"name": "demo-2.0-py3-none-any.whl"}, "the folder demo-1.0.dist-info is not of the version 2.0"),
        ({"name": "demo-1.0-py3-none-linux_x86_64.whl"}, "does not state the tags py3-none-linux_x86_64"),
        ({"name": "demo.whl"}, "demo.whl is not the name of a wheel"),
        ({"tags": ("py3-none-any", "py2-none-any")}, "the tags py2-none-any that are not in the file name"),
        ({"tags": ()}, "WHEEL: no Tag"),
        ({"tags": ("nonsense",)}, "WHEEL: a Tag cannot be read"),
        ({"pure": "perhaps"}, "Root-Is-Purelib is 'perhaps'"),
        ({"tags": ("py3-none-win32",), "name": "demo-1.0-py3-none-win32.whl"}, "the file name is for a pla"),
        ({"metadata": META.replace("1.0", "1.1")}, "METADATA says version 1.1, the file name 1.0"),
        ({"metadata": META.replace("Name: demo\n", "")}, "METADATA: '' is not the name of a project"),
        ({"metadata": META.replace("1.0", "one")}, "Invalid version: 'one'"),
        ({"metadata": META + "Requires-Dist: torch ==\n"}, "METADATA: a field cannot be read"),
        ({"metadata": META + "Requires-Dist: x; variant_label == 'y'\n"}, "has variant markers"),
        ({"metadata": META + "Requires-Python: three\n"}, "METADATA: a field cannot be read"),
        ({"metadata": META + "Version: 2.0\n"}, "Version is there 2 times"),
        ({"record": ""}, "is in the wheel but not listed"),
    ],
)
def test_parts_that_disagree_are_named(tmp_path: Path, changes: dict[str, str], fault: str) -> None:
    assert fault in "\n".join(scan_wheel(wheel(tmp_path, FILES, **changes)).faults)  # type: ignore[arg-type]


def test_metadata_is_taken_over(tmp_path: Path) -> None:
    requires = "Requires-Dist: rocm[libraries]==7.1.0\nRequires-Dist: x; extra == 'y'\n"
    more = f"Requires-Python: >=3.10\n{requires}Provides-Extra: y\n"
    found = scan_wheel(wheel(tmp_path, {}, metadata=META + more + "\nLong: text\n")).metadata
    assert found
    assert found.requires_dist == ("rocm[libraries]==7.1.0", "x; extra == 'y'")
    assert found.provides_extra == ("y",)
    assert str(found.requires_python) == ">=3.10"


def test_members_on_top_of_each_other_are_not_inflated(tmp_path: Path) -> None:
    """A directory may name one place thousands of times: a small file that would take days to read."""
    path, zeros = tmp_path / "demo-1.0-py3-none-any.whl", bytes(64 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo/a.so", zeros)
        archive.filelist *= 3000
        archive.writestr("demo/b.py", b"x = 1\n")
    assert path.stat().st_size < 1_000_000
    scan = scan_wheel(path)
    assert sum("reaches into another member" in fault for fault in scan.faults) == 1
    assert "demo/a.so" in scan.damaged_members
    with pytest.raises(errors.DataError, match="3000 members of this name"):
        wheel_code.read_device_code(path)


def test_compressed_tags_are_not_expanded_without_end(tmp_path: Path) -> None:
    part = ".".join(f"t{number}" for number in range(1000))
    [fault] = scan_wheel(wheel(tmp_path, FILES, tags=(f"{part}-{part}-{part}",))).faults
    assert "WHEEL: its Tag lines stand for more than 10000 tags" in fault


def test_what_is_damaged_is_told_by_member(tmp_path: Path) -> None:
    names = {"demo/colon: a.so": LIBRARY[:-100], "demo/good.so": LIBRARY}
    scan = scan_wheel(wheel(tmp_path, names, tags=("py3-none-win32",)))
    assert len(scan.faults) == 3  # the member, and both ways in which the tags differ
    assert scan.damaged_members == {"demo/colon: a.so"}


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["a"], "no .dist-info folder: a wheel has exactly one"),
        (["a-1.dist-info/RECORD", "b-1.dist-info/RECORD"], "2 .dist-info folders"),
        ([f"{INFO}/METADATA"], "demo-1.0.dist-info/RECORD is missing"),
    ],
)
def test_a_wheel_has_one_dist_info_folder_with_record(tmp_path: Path, names: list[str], fault: str) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, META)
    assert fault in "\n".join(scan_wheel(path).faults)


@pytest.mark.parametrize("cut", [0, 3, 100, 400, -1, -22, -60])
def test_a_cut_archive_is_refused(tmp_path: Path, cut: int) -> None:
    path = wheel(tmp_path, FILES)
    path.write_bytes(path.read_bytes()[:cut])
    for read in (scan_wheel, wheel_code.read_device_code):
        with pytest.raises(errors.DataError, match=r"demo-1.0-py3-none-any.whl is not a readable wheel"):
            read(path)


def test_damaged_device_code_is_a_fault_of_its_member(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/bad.so": LIBRARY[:-100], "demo/good.so": LIBRARY})
    [fault] = scan_wheel(path).faults
    assert fault.startswith(f"{path}: demo/bad.so: cut short: the section table")
    assert list(scan_wheel(path).device_code) == ["demo/good.so"]
    with pytest.raises(errors.DataError, match=r"demo/bad.so: cut short"):
        wheel_code.read_device_code(path)


def test_a_member_without_device_code_is_not_inflated(tmp_path: Path) -> None:
    """Its damage beyond the first bytes stays unseen by `targets`, and is seen by the full pass."""
    noise = hashlib.shake_128(b"noise").digest(400_000)
    path = wheel(tmp_path, {"demo/data.bin": noise, "demo/a.so": LIBRARY})
    data = bytearray(path.read_bytes())
    data[250_000] ^= 0xFF
    path.write_bytes(data)
    assert list(wheel_code.read_device_code(path).code) == ["demo/a.so"]
    assert any("demo/data.bin" in fault for fault in scan_wheel(path).faults)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.so").touch()
    assert wheel_code.read_device_code(tmp_path / "empty.so").code[""] == []
    with pytest.raises(errors.DataError, match="is a folder"):
        wheel_code.read_device_code(tmp_path)
    with pytest.raises(errors.DataError, match=r"cannot read .*gone.so: No such file"):
        wheel_code.read_device_code(tmp_path / "gone.so")
    (tmp_path / "page.whl").write_text("<html>404</html>")
    with pytest.raises(errors.DataError, match="not a readable wheel"):
        wheel_code.read_device_code(tmp_path / "page.whl")


def _good() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**FILES, f"{INFO}/METADATA": META.encode(), f"{INFO}/RECORD": b"a,,\n"}.items():
            archive.writestr(name, content)
    return made.getvalue()


GOOD = _good()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=6)), max_size=4),
    from_end=st.booleans(),
    cut=st.one_of(st.just(0), st.integers(0, len(GOOD))),
)
def test_any_mutation_of_a_wheel_is_read_or_refused(
    tmp_path: Path, changes: list[tuple[int, bytes]], from_end: bool, cut: int
) -> None:
    data = bytearray(GOOD)
    for place, patch in changes:
        at = len(GOOD) - 1 - place % 300 if from_end else place
        data[at : at + len(patch)] = patch
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(data[: len(data) - cut])
    for read in (scan_wheel, wheel_code.read_device_code):
        try:
            read(path)
        except errors.DataError as fault:
            assert str(path) in str(fault)
