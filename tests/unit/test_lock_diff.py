"""What two locks have in common and what not, and how that is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocm_wheels.models.lock import Lock, LockedPatches, LockedProject, LockedSubmodule
from rocm_wheels.sources import lock_diff

ORIGIN = "https://git.example/pytorch"


def oid(letter: str) -> str:
    return letter * 40


def submodule(commit: str, origin: str = "https://git.example/fmt", **more: Any) -> LockedSubmodule:
    return LockedSubmodule(origin=origin, commit=oid(commit), tree=more.pop("tree", oid("e")), **more)


def project(commit: str = "a", **more: Any) -> LockedProject:
    given = {"origin": ORIGIN, "ref": "release/2.9", "why": "given", "tree": oid(commit), "version": "2.9.0"}
    return LockedProject(commit=oid(commit), **{**given, "submodules": {}, **more})


def lock(*, projects: dict[str, LockedProject] | None = None, **more: Any) -> Lock:
    return Lock(projects=projects or {"pytorch": project()}, **more)


def brief(commit: str = "a", **more: Any) -> LockedProject:
    """A project as a manifest gives it."""
    return project(commit, **{"tree": None, "submodules": None, **more})


Histories = dict[str, dict[str, Any]]  # by project


def compared(a: Lock, b: Lock, histories: Histories | None = None) -> lock_diff.Document:
    diff = lock_diff.compare_locks(a, b)
    for name, history in (histories or {}).items():
        diff["projects"][name]["history"] = history
    return diff


def told(a: Lock, b: Lock, histories: Histories | None = None) -> list[str]:
    return lock_diff.format_diff_report(compared(a, b, histories))


def side(subjects: list[str], most: int) -> dict[str, Any]:
    commits = [{"commit": f"{n:040x}", "subject": text} for n, text in enumerate(subjects)]
    return {"count": len(subjects), "commits": commits[:most]}


def history(added: list[str], dropped: list[str], most: int = 20) -> dict[str, Any]:
    sides = {"added": side(added, most), "dropped": side(dropped, most)}
    return {"complete": True, "source": "/x", **sides}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({"rocm": "7.13.0"}, {"rocm": "7.14.0"}, "rocm  7.13.0 → 7.14.0"),
        ({}, {"rocm": "7.14.0"}, "rocm  none → 7.14.0"),
        ({"line": "2.9"}, {}, "line  2.9 → none"),
        ({}, {"platform": "windows"}, "platform  linux → windows"),
        ({"targets": ("gfx90a", "gfx942")}, {"targets": ("gfx942", "gfx1100")},
         "targets  + gfx1100  - gfx90a"),
        ({"targets": ("gfx942",)}, {}, "targets  - gfx942"),
        ({"pythons": ("3.12",)}, {"pythons": ("3.12", "3.13")}, "pythons  + 3.13"),
        ({"pythons": ("3.13", "3.12")}, {"pythons": ("3.12", "3.13")}, "pythons  3.13, 3.12 → 3.12, 3.13"),
    ],
)  # fmt: skip
def test_what_a_set_is_built_for(old: dict[str, Any], new: dict[str, Any], line: str) -> None:
    assert told(lock(**old), lock(**new))[0] == line


def test_a_project_that_moved_on() -> None:
    patches = LockedPatches(name="2.9", digest="d" * 64)
    a = lock(
        projects={
            "apex": project("c", version="1.0"),
            "pytorch": project("a", submodules={"third_party/fmt": submodule("1"), "old": submodule("2")}),
            "triton": project("7"),
        },
        rocm="7.13.0",
    )
    b = lock(
        projects={
            "pytorch": project(
                "b",
                version="2.9.1",
                patches=patches,
                origin="https://git.example/fork",
                submodules={"third_party/fmt": submodule("3"), "new": submodule("4")},
            ),
            "pytorch_audio": project("d", ref="main"),
            "triton": project("7"),
        },
        rocm="7.14.0",
    )
    histories = {"pytorch": history(["Fix", "Add", "More"], ["Undo"], most=2)}
    assert told(a, b, histories) == [
        "rocm  7.13.0 → 7.14.0",
        "",
        "apex           release/2.9  cccccccccccc                 1.0            removed",
        "pytorch        release/2.9  aaaaaaaaaaaa → bbbbbbbbbbbb  2.9.0 → 2.9.1  3 commits, 1 commit dropped",
        "    origin  https://git.example/pytorch → https://git.example/fork",
        "    patches  none → 2.9 (dddddddddddd)",
        "    + 000000000000 Fix",
        "    + 000000000000 Add",
        "    + … 1 more",
        "    - 000000000000 Undo",
        "    new              444444444444                 added",
        "    old              222222222222                 removed",
        "    third_party/fmt  111111111111 → 333333333333  the same files",
        "",
        "pytorch_audio  main         dddddddddddd                 2.9.0          added",
        "",
        "unchanged: triton",
    ]
    shown = compared(a, b, histories)
    assert list(shown["projects"]) == ["apex", "pytorch", "pytorch_audio"]
    torch = shown["projects"]["pytorch"]
    assert torch["change"] == "changed"
    assert list(torch["old"]) == ["origin", "ref", "commit", "tree", "version", "patches"]
    assert list(torch["submodules"]["old"]["old"]) == ["origin", "commit", "tree"]
    assert [one["what"] for one in torch["fields"]] == ["origin", "commit", "version", "patches"]
    assert torch["fields"][-1]["new"] == {"name": "2.9", "digest": "d" * 64}
    assert torch["history"]["added"]["count"] == 3
    assert torch["submodules"]["old"]["new"] is None
    assert shown["projects"]["apex"]["history"] is None
    json.dumps(shown)


def test_a_tree_that_is_another_at_one_commit_is_told() -> None:
    a = lock(projects={"pytorch": project(submodules={"x": submodule("1")})})
    b = lock(projects={"pytorch": project(tree=oid("f"), submodules={"x": submodule("1", tree=oid("d"))})})
    assert told(a, b) == [
        "pytorch  release/2.9  aaaaaaaaaaaa  2.9.0",
        f"    tree  {oid('a')[:12]} → {oid('f')[:12]}",
        "    x  111111111111",
        f"        tree  {oid('e')[:12]} → {oid('d')[:12]}",
    ]


def test_what_a_manifest_does_not_say_is_not_a_change() -> None:
    whole = project(submodules={"x": submodule("1")}, patches=LockedPatches(name="2.9", digest="d" * 64))
    a = lock(projects={"pytorch": whole}, line="2.9", targets=("gfx942",), rocm="7.14.0")
    b = lock(projects={"pytorch": brief(ref=oid("a"), version=None)})
    for one, other in ((a, b), (b, a)):
        shown = lock_diff.compare_locks(one, other)
        assert shown["same"] and shown["manifest"]
        assert lock_diff.format_diff_report(shown) == [
            "nothing differs that both say: pytorch",
            "one of them is a manifest: refs, and what is not in it, are not compared",
        ]


def test_an_origin_is_shown_without_its_password() -> None:
    a, b = (
        lock(projects={"pytorch": project(origin=f"https://me:{word}@git.example/x")})
        for word in ("secret1", "secret2")
    )
    assert "secret" not in "\n".join(told(a, b))
    assert "secret" not in json.dumps(compared(a, b))


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        ("https://github.com/pytorch/pytorch.git", "https://github.com/pytorch/pytorch/compare/1...2"),
        ("https://me:secret@github.com/o/r/", "https://github.com/o/r/compare/1...2"),
        ("git@github.com:o/r.git", "https://github.com/o/r/compare/1...2"),
        ("ssh://git@GitHub.com:22/o/r", "https://github.com/o/r/compare/1...2"),
        ("https://gitlab.example.org/a/b/c.git", "https://gitlab.example.org/a/b/c/-/compare/1...2"),
        ("https://codeberg.org/o/r", "https://codeberg.org/o/r/compare/1...2"),
        ("https://git.example/o/r", ""),
        ("/srv/github.com/o/r", ""),
        ("file:///srv/github.com/o/r", ""),
    ],
)
def test_pages_that_compare(origin: str, url: str) -> None:
    assert lock_diff.make_compare_url(origin, "1", "2") == url


def test_a_long_subject_is_cut_for_people_alone() -> None:
    a, b = lock(), lock(projects={"pytorch": project("b")})
    histories = {"pytorch": history(["x" * 300], [])}
    assert told(a, b, histories)[1] == f"    + 000000000000 {'x' * 99}…"
