"""The file of a lock: what it holds comes back, what is wrong has its line, nothing is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import refused, transcript
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.models.lock import Lock, LockedPatches, LockedProject, LockedSubmodule
from rocm_wheels.sources import git
from rocm_wheels.sources import lock as lock_files

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "lock-files"

WORDS = ["pytorch", "therock", "schema_version", "repo", "model_config"]
KEYS = st.sampled_from([*Lock.model_fields, *LockedProject.model_fields, *WORDS])
A, B, TREE = "a" * 40, "b" * 40, "c" * 40


def project(**changes: Any) -> LockedProject:
    """A project of a lock."""
    fields = {"origin": "https://h/x.git", "ref": "main", "why": "options", "commit": A, "tree": TREE}
    return LockedProject.model_validate({**fields, "submodules": {}, **changes})


def full() -> Lock:
    """A lock with everything in it."""
    modules = {
        "third_party/z": LockedSubmodule(origin="git@h:o/z", commit=B, tree=TREE),
        "third_party/a b/ä😀": LockedSubmodule(origin="/srv/a", commit=A),
    }
    return Lock(
        line="2.9",
        rocm="7.10.0a1+x",
        targets=("gfx942", "gfx90a:xnack+"),
        pythons=("3.12", "3.14t"),
        local_version="nightly20261122.17",
        named_torch="2.9.0",
        projects={
            "pytorch_vision": project(version="0.24.0"),
            "pytorch": project(
                version="2.9.0", submodules=modules, patches=LockedPatches(name="2.9", digest="d" * 64)
            ),
            "triton": project(ref=A, submodules=None, tree=None),
        },
    )


def test_what_is_written_is_read_and_always_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lock = tmp_path / "new" / "set.lock", full()
    assert lock_files.write_lock(path, lock)
    assert lock_files.read_lock(path) == lock
    written = json.loads(path.read_text())
    assert list(written["projects"]) == ["triton", "pytorch", "pytorch_vision"]
    assert list(written["projects"]["pytorch"]["submodules"]) == ["third_party/a b/ä😀", "third_party/z"]
    assert "tree" not in written["projects"]["triton"] and "submodules" not in written["projects"]["triton"]
    assert written["projects"]["pytorch_vision"]["submodules"] == {}
    other = lock.model_copy(update={"projects": dict(reversed([*lock.projects.items()]))})
    assert (lock_files.format_lock(other), lock_files.digest_lock(other)) == (
        path.read_text(),
        lock_files.digest_lock(lock),
    )
    before = path.stat()
    assert not lock_files.write_lock(path, other)
    assert path.stat() == before
    assert f"{path} is up to date" in capsys.readouterr().err


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(git.is_inside_tree), st.text())
def test_any_path_and_reason_come_back(path: str, why: str) -> None:
    why = why.encode("utf-8", "replace").decode()
    modules = {path: LockedSubmodule(origin="https://h/a", commit=A)}
    lock = Lock(projects={"pytorch": project(submodules=modules, why=why)})
    assert lock_files.parse_lock(lock_files.format_lock(lock), name="l") == lock


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_anything_is_read_or_refused(value: object) -> None:
    try:
        lock_files.parse_lock(json.dumps(value), name="l")
    except errors.DataError as refused:
        assert refused.message.startswith("l")


def test_credentials_stay_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, plain = "ssh://git:hunter2@h/s", "ssh://git@h/t"
    modules = {"s": LockedSubmodule(origin=secret, commit=B), "t": LockedSubmodule(origin=plain, commit=B)}
    apex = project(origin="https://me:hunter2@h/x@y.git", submodules=modules)
    lock_files.write_lock(tmp_path / "l", Lock(projects={"apex": apex, "triton": project(origin="git@h:x")}))
    found = lock_files.read_lock(tmp_path / "l").projects
    assert found["apex"].origin == "https://h/x@y.git"
    assert [m.origin for m in (found["apex"].submodules or {}).values()] == ["ssh://git@h/s", plain]
    assert found["triton"].origin == "git@h:x"
    said = capsys.readouterr().err
    assert "warning: apex: the credentials in its origin are not written" in said
    assert "triton" not in said and "hunter2" not in said + (tmp_path / "l").read_text()


def test_a_write_that_cannot_be_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "l"
    lock_files.write_lock(path, full())
    before = path.read_bytes()
    wrong = full().model_copy(update={"projects": {"pytorch": project(ref="a b")}})
    with refused(errors.DataError):
        lock_files.write_lock(path, wrong)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    with refused(errors.DataError):
        lock_files.write_lock(tmp_path, full())


@pytest.mark.parametrize(
    ("found", "replacement"),
    [
        ('"lock_version": "1"', '"lock_version": "3"'),
        ('"pytorch": {', '"pytroch": {'),
        ('"commit": "aaaa', '"commit": "main'),
        ('"ref": "main"', '"ref": "a..b"'),
        ('"ref": "main"', '"rev": "main"'),
        ('"ref": "main"', '"ref": "main", "ref": "x"'),
        ('"origin": "https://h/x.git"', '"origin": "--upload-pack=x"'),
        ('"origin": "https://h/x.git"', '"origin": "../x"'),
        ('"origin": "https://h/x.git"', '"origin": "https://u:pw@h/x"'),
        ('"origin": "git@h:o/z"', '"origin": "ssh://u:pw@h/x"'),
        ('"third_party/z"', '"../z"'),
        ('"third_party/z"', '"/z"'),
        ('"third_party/z"', '"x/.git/hooks"'),
        ('"version": "2.9.0"', '"version": "2.9.0+x"'),
        ('"version": "2.9.0"', '"version": "two"'),
        ('"name": "2.9"', '"name": "../2.9"'),
        ('"dddd', '"zzzz'),
        ('"7.10.0a1+x"', '"new"'),
        ('"gfx942"', '"gfx9999"'),
        ('"3.12"', '"2.7"'),
        ('"nightly20261122.17"', '"rocm7"'),
        ('"platform": "linux"', '"platform": "plan9"'),
        ('"submodules": {}', '"submodules": null'),
        ("{", ""),
    ],
)  # fmt: skip
def test_what_a_lock_cannot_hold(found: str, replacement: str) -> None:
    text = lock_files.format_lock(full())
    assert found in text
    with refused(errors.DataError) as caught:
        lock_files.parse_lock(text.replace(found, replacement, 1), name="l")
    assert str(caught.value).startswith("l:") and "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "hello", '{"projects": {}}', '{"lock_version": "1"}'),
        *('{"pytroch": {"repo": "x", "commit": "y"}}', '{"schema_version": 2}', '{"schema_version": 1}'),
    ],
)
def test_files_that_are_no_locks(text: str) -> None:
    with refused(errors.DataError):
        lock_files.parse_lock(text, name="l")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "l", tmp_path, tmp_path / "l"):
        with refused(errors.DataError):
            lock_files.read_lock(path)
        (tmp_path / "l").write_bytes(b"\xff")


# the fields of the peer's own example (external-builds/pytorch/pytorch_manifest_nightly.example.json)
GITHUB = "https://github.com"
MANIFEST = {
    "schema_version": 1,
    "pytorch": {"repo": f"{GITHUB}/pytorch/pytorch", "commit": "cac8bcf1ca69bff4364b793b570f850cf9e1faa1",
                "branch": "nightly", "version": "2.13.0a0+rocm7.14.0"},
    "triton": {"repo": f"{GITHUB}/ROCm/triton", "commit": "88b227e23f0445f3f695bad05bbf1a363b4f50e0",
               "version": "3.7.0+rocm7.14.0"},
    "therock": {"repo": f"{GITHUB}/ROCm/TheRock", "commit": "2555d629204cb066d6668823ad6241d2fcf250e4",
                "branch": "main", "version": "7.14.0"},
}  # fmt: skip


def test_the_manifest_of_therock_is_read_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "therock-manifest_torch_windows_nightly.json"
    path.write_text(json.dumps(MANIFEST, indent=2))
    lock = lock_files.read_lock(path)
    assert (lock.platform, lock.rocm, list(lock.projects)) == ("windows", "7.14.0", ["pytorch", "triton"])
    torch, triton = lock.projects["pytorch"], lock.projects["triton"]
    assert (torch.ref, torch.version, torch.tree, torch.submodules) == ("nightly", "2.13.0a0", None, None)
    assert (triton.ref, triton.commit) == ("88b227e23f0445f3f695bad05bbf1a363b4f50e0",) * 2
    therock = lock_files.ManifestEntry.model_validate(MANIFEST["therock"])
    assert json.loads(lock_files.format_manifest(lock, therock)) == MANIFEST
    assert "therock" not in lock_files.format_manifest(lock)
    secret = therock.model_copy(update={"repo": "https://u:hunter2@h/x"})
    assert json.loads(lock_files.format_manifest(lock, secret))["therock"]["repo"] == "https://h/x"
    lock_files.write_lock(tmp_path / "l", lock)
    assert lock_files.read_lock(tmp_path / "l") == lock


def test_a_manifest_without_what_may_be_left_out() -> None:
    bare = {"apex": {"repo": "https://h/apex", "commit": A, "version": "1.0+devrocm7.1.0.dev0-abc"}}
    lock = lock_files.parse_lock(json.dumps(bare), name="m.json")
    assert (lock.platform, lock.rocm, lock.projects["apex"].version) == ("linux", "7.1.0.dev0+abc", "1.0")
    assert lock_files.format_manifest(lock).count("1.0+devrocm7.1.0.dev0-abc") == 1
    with refused(errors.UsageError):
        lock_files.format_manifest(lock.model_copy(update={"rocm": None}))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("pytorch", "commit", "main"),
        ("pytorch", "repo", ""),
        ("pytorch", "repo", None),
        ("pytorch", "branch", "a b"),
        ("pytorch", "version", "1+2+3"),
        ("pytorch", "sha", "x"),
        ("torchdoc", "repo", "x"),
        ("therock", "version", "new"),
    ],
)
def test_a_manifest_with_a_mistake(name: str, key: str, value: str | None) -> None:
    text = json.loads(json.dumps(MANIFEST))
    text.setdefault(name, {})[key] = value
    if value is None:
        del text[name][key]
    with refused(errors.DataError):
        lock_files.parse_lock(json.dumps(text, indent=1), name="m")


def test_a_manifest_with_a_project_that_has_no_recipe() -> None:
    text = json.dumps({**MANIFEST, "pytorch_vison": MANIFEST["pytorch"]}, indent=1)
    with refused(errors.DataError):
        lock_files.parse_lock(text, name="m")
