"""Random wheels under random edits: the expected tree comes out, and RECORD verifies."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from wheels import Archive, Member, descriptor

from rocm_wheels.wheels import rewrite
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = pytest.mark.contract

# no letter in both cases: such names are one on some disks, and refused
PART = st.text("abcZ,\"' +-_%#üé日\u2028", min_size=1, max_size=6)
NAME = st.lists(PART, min_size=1, max_size=3).map(lambda parts: "demo/" + "/".join(parts))
REQUIREMENT = st.sampled_from(
    ["torch", "rocm[libraries]==7.2", "x; extra == 'y'", "b>=1,<2", "c @ https://c.org/c"]
)
INFO_FILE = st.sampled_from(["variant.json", "licenses/LICENSE", "sboms/a, b.json", "top_level.txt", "größe"])


@dataclass(frozen=True)
class Wheel:
    """What a random wheel holds; ``order`` moves the dist-info folder about."""

    files: dict[str, bytes]
    info: dict[str, bytes]
    version: str
    requirements: list[str]
    body: str
    methods: list[int]
    streamed: bool
    order: int
    spelling: str

    def tree(self, *, name: str = "demo") -> dict[str, bytes]:
        """The files of the unpacked wheel but RECORD."""
        info = f"{name}-{self.version}.dist-info"
        about = [f"Name: {name}", f"Version: {self.version}"]
        about += [f"Requires-Dist: {one}" for one in self.requirements]
        metadata = "Metadata-Version: 2.1\n" + "\n".join(about) + "\n\n" + self.body
        wheel = "Wheel-Version: 1.0\nGenerator: g\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        inside = {**self.info, "METADATA": metadata.encode(), "WHEEL": wheel.encode()}
        data = {f"{name}-{self.version}.data/scripts/run": b"#!python"}
        return {**self.files, **data, **{f"{info}/{file}": text for file, text in inside.items()}}

    def archive(self) -> Archive:
        """The wheel, with RECORD and what it is said to be like."""
        tree = self.tree()
        record = f"demo-{self.version}.dist-info/RECORD"
        lines = io.StringIO()
        rows = csv.writer(lines, quoting=csv.QUOTE_ALL if self.order % 2 else csv.QUOTE_MINIMAL)
        rows.writerows((path, self.digest(content), len(content)) for path, content in tree.items())
        rows.writerow((record, "", ""))
        names = [*tree, record]
        names = names[self.order % len(names) :] + names[: self.order % len(names)]
        members = []
        for number, name in enumerate(names):
            content = tree.get(name, lines.getvalue().encode())
            method = self.methods[number % len(self.methods)]
            member = Member(name.encode(), content, method, 0 if name.isascii() else 0x800)
            if self.streamed:
                member.flags |= 8
                member.behind = descriptor(member)
                member.local.update(crc=0, compressed=0, size=0)
            members.append(member)
        return Archive(members)

    def digest(self, content: bytes) -> str:
        """A digest, right or as some producers spell it."""
        right = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
        spelled = {"right": right.rstrip("="), "padded": right, "hex": hashlib.sha256(content).hexdigest()}
        return f"sha256={spelled[self.spelling]}"


WHEEL = st.builds(
    Wheel,
    files=st.dictionaries(NAME, st.binary(max_size=200), max_size=8),
    info=st.dictionaries(INFO_FILE, st.binary(max_size=50), max_size=3),
    version=st.sampled_from(["1.0", "2.9.1+rocm7.1.0", "1!2.0rc1"]),
    requirements=st.lists(REQUIREMENT, max_size=4, unique=True),
    body=st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40),
    methods=st.lists(st.sampled_from([0, 8]), min_size=1, max_size=3),
    streamed=st.booleans(),
    order=st.integers(0, 12),
    spelling=st.sampled_from(["right", "right", "hex", "padded"]),
)


def written(wheel: Wheel, folder: Path) -> Path:
    """Write a random wheel."""
    return wheel.archive().write(folder, f"demo-{wheel.version}-py3-none-any.whl")


@settings(max_examples=60, deadline=None)
@given(
    wheel=WHEEL,
    version=st.sampled_from([None, "3.0", "2.9.1+rocm7.2"]),
    label=st.sampled_from([None, "", "rocm7.2_gfx942"]),
    build=st.sampled_from([None, "1"]),
    requirements=st.none() | st.lists(REQUIREMENT, max_size=4, unique=True),
    put=st.dictionaries(INFO_FILE, st.binary(max_size=40), max_size=2),
    drops=st.integers(0, 3),
    changes=st.integers(0, 3),
)
def test_the_expected_tree_comes_out(  # noqa: PLR0917
    wheel: Wheel,
    version: str | None,
    label: str | None,
    build: str | None,
    requirements: list[str] | None,
    put: dict[str, bytes],
    drops: int,
    changes: int,
) -> None:
    with tempfile.TemporaryDirectory() as box:
        folder = Path(box)
        source = written(wheel, folder)
        with WheelArchive.open(source, as_it_is=True) as archive:
            if any(not fault.is_repairable for fault in archive.faults):
                kinds = {fault.kind for fault in archive.faults}
                assert kinds <= {"name-collides", "file-and-folder", "data-descriptor"}
                event("refused")
                return
        drop = frozenset(sorted(wheel.info.keys() - put.keys())[:drops])
        asked = None if requirements is None else (lambda _old: requirements)
        members = {name: text + b"!" for name, text in sorted(wheel.files.items())[:changes]}
        edit = WheelEdit(
            version, build=build, label=label, requirements=asked, put=put, drop=drop, members=members
        )
        done = rewrite.rewrite_wheel(source, folder / "out", edit)
        new = replace(
            wheel,
            version=version or wheel.version,
            requirements=wheel.requirements if requirements is None else requirements,
            files={**wheel.files, **members},
            info={**{name: text for name, text in wheel.info.items() if name not in drop}, **put},
        )
        expected = new.tree()
        if build:
            expected[f"demo-{new.version}.dist-info/WHEEL"] += b"Build: 1\n"
        record = f"demo-{new.version}.dist-info/RECORD"
        with zipfile.ZipFile(done) as unpacked:
            assert unpacked.testzip() is None
            found = {name: unpacked.read(name) for name in unpacked.namelist()}
            assert unpacked.namelist()[-1] == record
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(found.pop(record).decode(), newline=""))}
        assert found == expected
        right = replace(wheel, spelling="right")
        listed = {name: [right.digest(content), str(len(content))] for name, content in expected.items()}
        assert rows == {**listed, record: ["", ""]}
        scan = scan_wheel(done, device_code=False)
        assert scan.faults == scan.repairable == ()
        assert rewrite.rewrite_wheel(source, folder / "again", edit).read_bytes() == done.read_bytes()
