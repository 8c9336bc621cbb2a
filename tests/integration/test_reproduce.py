"""``set reproduce``: the demo's set is built again elsewhere, from what the set says alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from commands import make_key, needs_ssh_keygen
from finished_demo import Demo
from pythons import PIP, UV
from servers import serve_folder

from rocm_wheels.wheels import rewrite, statement
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 90d}, reproduced: {fresh: 90d, by: [lab]}}}
signers: {lab: KEY}
"""
# of a shell in which somebody builds other things: none of it may reach these builds
MINE = {
    "CFLAGS": "-O0 -DMINE",
    "CXXFLAGS": "-O0 -DMINE",
    "SOURCE_DATE_EPOCH": "1000000000",
    "USE_GLOO": "0",
    "PYTHONHASHSEED": "7",
    "MAX_JOBS": "1",
    "LC_ALL": "C",
    "TZ": "Pacific/Kiritimati",
}


@pytest.fixture
def demo(released_demo: Demo) -> Demo:
    """A demo that another worker may be changing elsewhere."""
    return released_demo


@pytest.fixture
def store(demo: Demo, tmp_path: Path) -> Path:
    """The demo's store, to be added to."""
    return Path(shutil.copytree(demo.folder / "releases" / "store", tmp_path / "store"))


def find_wheel(demo: Demo, name: str) -> Path:
    """A wheel of the demo as it was staged: those that lie in its folder other tests build anew."""
    (wheel,) = (demo.folder / "releases" / "store").rglob(f"{name}-*.whl")
    return wheel


def digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def reproduce(
    demo: Demo, store: Path, *words: str | Path, code: int = 0, **env: str
) -> list[dict[str, object]]:
    """Reproduce, and return the evidence that was added."""
    links = demo.folder / "rocm-packages" / "dist"
    named = ("set", "reproduce", store, "--set", "2.13", "--find-links", links, "--json")
    found: list[dict[str, object]] = json.loads(demo.ours(*named, *words, code=code, **env).out)
    return found


@needs_ssh_keygen
def test_another_folder_home_mask_locale_zone_day_and_core(demo: Demo, store: Path, tmp_path: Path) -> None:
    """Files of the checkout are of another day than the builder's, as those of every checkout are."""
    (tmp_path / "home").mkdir()
    key, output = make_key(tmp_path / "lab"), tmp_path / "another place" / "out"
    cores, mask = os.sched_getaffinity(0), os.umask(0o077)
    os.sched_setaffinity(0, {min(cores)})
    try:
        words = ("--sign-with", key, "-o", output)
        (entry,) = reproduce(demo, store, *words, HOME=str(tmp_path / "home"), **MINE)
    finally:
        os.sched_setaffinity(0, cores)
        os.umask(mask)
    assert (entry["kind"], entry["outcome"]) == ("reproduced", "pass")
    assert entry["hashes"] == sorted(map(digest, store.rglob("*.whl")))
    again = reproduce(demo, store, *words)  # which finds all done
    assert [(item["outcome"], item["new"]) for item in again] == [("pass", False)]

    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("KEY", " ".join(Path(f"{key}.pub").read_text().split()[:2])))
    gate = ("set", "gate", store, "--set", "2.13", "--channel", "nightly", "--policy", policy)
    judged = json.loads(demo.ours(*gate, "--json", code=0).out)
    (rule,) = [item for item in judged["rules"] if item["rule"] == "reproduced"]
    assert (rule["outcome"], rule["reasons"][0]) == (
        "pass",
        {"code": "reproduced", "wheels": 5, "by": ["lab"]},
    )


def test_one_project_is_built_against_the_torch_of_the_set(demo: Demo, store: Path, tmp_path: Path) -> None:
    (entry,) = reproduce(demo, store, "--project", "torchaudio", "-o", tmp_path / "out")
    assert (entry["outcome"], entry["hashes"]) == ("pass", [digest(find_wheel(demo, "torchaudio"))])
    assert [path.name for path in (tmp_path / "out" / "build-1" / "sources").iterdir()] == ["pytorch_audio"]


def test_a_companion_alone_is_checked_shown_installed_and_built_again(demo: Demo, tmp_path: Path) -> None:
    """Beside the set that has its torch: audited by `set check`, taken from the channel by pip and uv."""
    store, links = tmp_path / "store", demo.folder / "rocm-packages" / "dist"
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "channels: {nightly: {signed: false, rules: {audit: {fresh: 90d}, resolver: {fresh: 90d}}}}\n"
    )
    lock = ("--family", "multi-arch", "--lock", demo.folder / "sources.lock.json")
    of_torch = json.loads((demo.folder / "sources.lock.json").read_text())
    of_torch["projects"] = {name: of_torch["projects"][name] for name in ("triton", "pytorch")}
    (tmp_path / "torch.lock").write_text(json.dumps(of_torch))
    audio, ids = find_wheel(demo, "torchaudio"), list[str]()
    torch = [find_wheel(demo, name) for name in ("torch", "triton")]
    for wheels, its_lock in (([audio], lock), (torch, (*lock[:-1], tmp_path / "torch.lock"))):
        words = ("set", "stage", store, *wheels, *its_lock, "--json")
        ids.append(json.loads(demo.ours(*words, code=0).out)["set"])
        demo.ours("set", "check", store, "--set", ids[-1], code=0)
    words = (
        "set",
        "reproduce",
        store,
        "--set",
        ids[0],
        "--find-links",
        links,
        "-o",
        tmp_path / "out",
        "--json",
    )
    (entry,) = json.loads(demo.ours(*words, code=0).out)
    assert (entry["outcome"], entry["hashes"]) == ("pass", [digest(audio)])
    on_channel = ("--channel", "nightly", "--policy", policy)
    ended = demo.ours("set", "promote", store, "--set", ids[0], *on_channel, code=15)
    assert "requires torch==2.13.0a0+rocm7.1.0.miniature, which is not in the set" in ended.err
    for set_id in reversed(ids):
        demo.ours("set", "promote", store, "--set", set_id, *on_channel, code=0)
    demo.ours("set", "refresh", store, "--policy", policy, code=0)
    support = json.loads((store / "multi-arch" / "support.json").read_text())
    (told,) = [release["install"] for release in support["releases"] if release["set"] == ids[0]]
    with serve_folder(store) as server:
        for name, tool in (("pip", PIP), ("uv", UV)):
            line = told[name].replace("{index}", f"{server.url}multi-arch/simple/nightly/")
            words = line.partition(" install ")[2].split()
            demo.start(*tool, "--target", tmp_path / name, "--find-links", links, *words, code=0)
            installed = {path.name.partition("-")[0] for path in (tmp_path / name).glob("*.dist-info")}
            assert installed >= {"torchaudio", "torch", "triton", "rocm"}
    # and where its torch is in no set, that is said before anything is built
    (tmp_path / "apart").mkdir()
    (apart,) = (Path(shutil.copy2(audio, tmp_path / "apart")),)
    for beside in audio.parent.glob(f"{audio.name}.*"):
        shutil.copy2(beside, tmp_path / "apart")
    alone = json.loads(demo.ours("set", "stage", tmp_path / "other", apart, *lock, "--json", code=0).out)[
        "set"
    ]
    ended = demo.ours("set", "reproduce", tmp_path / "other", "--set", alone, "--find-links", links, code=15)
    assert "have 0 wheels of it" in ended.err


def test_a_split_and_a_fat_torch_are_packaged_again(demo: Demo, tmp_path: Path) -> None:
    """Below a folder with a space, as the demo is: without one, files are named in another way."""
    triton = find_wheel(demo, "triton")
    for name in ("split", "fat"):
        wheels = [*(demo.folder.parent / "as made" / name).glob("*.whl"), triton]
        lock = ("--lock", demo.folder / "sources.lock.json", "--family", "multi-arch")
        demo.ours("set", "stage", tmp_path / name, *wheels, *lock, code=0)
        (entry,) = reproduce(demo, tmp_path / name, "-o", tmp_path / "an out" / name)
        assert (entry["outcome"], entry["hashes"]) == ("pass", sorted(map(digest, wheels)))


def test_another_wheel_than_its_statement_says_is_told_member_by_member(demo: Demo, tmp_path: Path) -> None:
    """As if somebody had put something in after the build, and said that it came out of it."""
    (tmp_path / "wheels").mkdir()
    source = find_wheel(demo, "triton")
    wheel = Path(shutil.copy2(source, tmp_path / "wheels"))
    built = statement.read_statement(source)
    assert built is not None
    name, line = "triton/__init__.py", b"# built on 2026-11-30 12:00:00\n"
    with WheelArchive.open(wheel) as archive:
        content = archive.read(archive.member_by_name[name]) + line
    rewrite.rewrite_wheel(wheel, wheel.parent, WheelEdit(members={name: content}), replace=True)
    statement.write_statement(wheel, statement.format_statement(wheel.name, digest(wheel), built.predicate))
    lock = ("--lock", demo.folder / "sources.lock.json", "--family", "multi-arch")
    demo.ours("set", "stage", tmp_path / "store", wheel, *lock, code=0)
    links = demo.folder / "rocm-packages" / "dist"
    named = ("set", "reproduce", tmp_path / "store", "--set", wheel.name.split("-")[1][:5])
    ended = demo.ours(*named, "--find-links", links, "-o", tmp_path / "out", code=14)
    assert "triton/__init__.py: text: # built on 2026-11-30 12:00:00, here nothing" in ended.out
    assert "RECORD: follows: the other members" in ended.out
    assert f"the only wheel came out otherwise: {wheel.name}" in ended.err
    # where the store has other bytes, nothing is built
    stored = next((tmp_path / "store").rglob(wheel.name))
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    ended = demo.ours(*named, "-o", tmp_path / "other", "--find-links", links, code=15)
    assert "its set says" in ended.err and not (tmp_path / "other" / "build-1" / "sources").exists()
