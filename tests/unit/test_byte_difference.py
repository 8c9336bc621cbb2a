"""Why two builds of one wheel differ: found in libraries of a real compiler, in texts, in the archive."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from wheels import Draft, torch_draft

from rocm_wheels.wheels import byte_difference

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="libraries are made by gcc")
SOURCE = "const char *where(void) { return __FILE__; }\nint number(void) { return NUMBER; }\n"
DATED = 'const char *when(void) { return __DATE__ " " __TIME__; }\n'


def draft(**members: bytes) -> Draft:
    made = torch_draft()
    made.members |= {f"torch/{name.replace('__', '.')}": content for name, content in members.items()}
    return made


def explain(tmp_path: Path, old: Draft, new: Draft) -> dict[str, tuple[str, str]]:
    """Return causes and details by the names of members, without what only follows."""
    sides = []
    for name, side in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        sides.append(side.write(tmp_path / name))
    found = byte_difference.explain_differences(*sides)
    follows = [item.member.rpartition("/")[2] for item in found if item.cause == "follows"]
    assert follows in ([], ["RECORD"]), found
    assert not follows or found[-1].cause == "follows"
    return {item.member: (item.cause, item.detail) for item in found if item.cause != "follows"}


def compile_library(folder: Path, text: str = SOURCE, *words: str, epoch: int = 0) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.c").write_text(text)
    argv = ["gcc", "-shared", "-fPIC", "-DNUMBER=1", *words, str(folder / "a.c"), "-o", str(folder / "a.so")]
    subprocess.run(argv, check=True, env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(epoch)})
    return (folder / "a.so").read_bytes()


@needs_gcc
def test_why_libraries_differ(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "somewhere" / "else"
    newer = compile_library(tmp_path / "c").replace(b"GCC: (", b"GCC: [")
    rows = {
        "path": (compile_library(there), compile_library(here)),
        "time": (compile_library(there, DATED), compile_library(there, DATED, epoch=86400 * 400 + 7)),
        "code": (compile_library(there), compile_library(there, SOURCE, "-UNUMBER", "-DNUMBER=2")),
        "compiler": (compile_library(tmp_path / "c"), newer),
        "order": tuple(
            compile_library(there, "".join(f"int {name}_function(void) {{ return 1; }}\n" for name in names))
            for names in (("first", "other"), ("other", "first"))
        ),
    }
    for cause, (old, new) in rows.items():
        folder = tmp_path / cause
        folder.mkdir()
        answer = explain(folder, draft(a__so=old), draft(a__so=new))
        assert answer["torch/a.so"][0] == cause, answer


@needs_gcc
def test_a_path_is_shown_as_it_is_on_both_sides(tmp_path: Path) -> None:
    old, new = compile_library(tmp_path / "builder-a"), compile_library(tmp_path / "builder-b")
    (_, detail) = explain(tmp_path, draft(a__so=old), draft(a__so=new))["torch/a.so"]
    assert detail.count("a/a.c") == 1 and detail.count("b/a.c") == 1, detail


TEXTS = {
    "time": ("built on 2026-11-30 at 10:00:00\n", "built on 2027-01-02 at 23:59:59\n"),
    "path": ("root = /home/ann/src/torch\n", "root = /builds/7/torch\n"),
    "order": ("one\ntwo\nthree\n", "two\none\nthree\n"),
    "text": ("answer = 42\n", "answer = 43\n"),
}


@pytest.mark.parametrize("cause", TEXTS)
def test_why_texts_differ(cause: str, tmp_path: Path) -> None:
    old, new = (text.encode() for text in TEXTS[cause])
    found = explain(tmp_path, draft(info__txt=old), draft(info__txt=new))
    assert {name: row[0] for name, row in found.items()} == {"torch/info.txt": cause}
    assert cause != "text" or found["torch/info.txt"][1] == "answer = 42, here answer = 43"


def test_a_text_that_begins_paths_without_end_takes_no_time(tmp_path: Path) -> None:
    texts = ("/ " * 200_000 + end for end in ("", "x"))
    old, new = (text.encode() for text in texts)
    begun = time.process_time()
    assert explain(tmp_path, draft(a__txt=old), draft(a__txt=new))["torch/a.txt"][0] == "text"
    assert time.process_time() - begun < 10  # minutes, once


def test_json_whose_keys_come_in_another_order(tmp_path: Path) -> None:
    old = json.dumps({"first": 1, "second": [2, 3]}).encode()
    new = json.dumps({"second": [2, 3], "first": 1}).encode()
    assert explain(tmp_path, draft(a__json=old), draft(a__json=new))["torch/a.json"][0] == "order"


def test_a_compiled_module_has_the_time_of_its_source(tmp_path: Path) -> None:
    old, new = (b"\xa7\r\r\n\0\0\0\0" + bytes([n]) * 8 + b"\xe3\0code" for n in (1, 2))
    assert explain(tmp_path, draft(a__pyc=old), draft(a__pyc=new))["torch/a.pyc"][0] == "time"


def test_members_of_one_side_alone(tmp_path: Path) -> None:
    found = explain(tmp_path, draft(old__txt=b"a", both__txt=b""), draft(new__txt=b"a", both__txt=b"b"))
    assert {name: row[0] for name, row in found.items()} == {
        "torch/old.txt": "missing",
        "torch/new.txt": "added",
        "torch/both.txt": "text",
    }


def test_what_differs_is_the_archive_alone(tmp_path: Path) -> None:
    old = torch_draft().write(tmp_path)
    new = tmp_path / "new" / old.name
    new.parent.mkdir()
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as copy:
        for info in reversed(source.infolist()):
            dated = zipfile.ZipInfo(info.filename, (2026, 11, 30, 0, 0, 0))
            dated.external_attr = 0o100644 << 16
            copy.writestr(dated, source.read(info))
    found = byte_difference.explain_differences(old, new)
    assert {item.cause for item in found} == {"time", "mode", "order"}
    assert str(found[0]).startswith("the archive: time: the dates of ")
    same = tmp_path / "same" / old.name
    same.parent.mkdir()
    shutil.copy2(old, same)
    assert byte_difference.explain_differences(old, same) == []


def test_ten_lines_are_enough(tmp_path: Path) -> None:
    old = draft(**{f"file{n}__txt": b"2026-11-30" for n in range(12)}, other__txt=b"a")
    new = draft(**{f"file{n}__txt": b"2026-12-01" for n in range(12)}, other__txt=b"b")
    (tmp_path / "new").mkdir()
    found = byte_difference.explain_differences(old.write(tmp_path), new.write(tmp_path / "new"))
    lines = byte_difference.format_differences(found, 10)
    assert len(lines) == 10
    assert lines[0] == "torch/file0.txt: time: 2026-11-30, here 2026-12-01"
    assert lines[-1] == "and more: 3 by time, 1 by text, 1 by follows"
