"""Hostile wheels against every command that reads wheels: none is staged or published, none ends as a bug.

Each attack is a torch in which nothing is wrong but that. In CI every ninth meets every command.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from commands import call
from hostile_wheels import Attack, list_attacks, list_greedy_files, rewrite
from stores import FAMILY, World, drafts
from wheels import Draft, library, torch_draft

pytestmark = pytest.mark.contract

ATTACKS, GREEDY_FILES = list_attacks(), list_greedy_files()
EXIT_CODES = {0, 2, 13, 14, 15, 17}
Words = Callable[[str, str], list[str]]
# what is asked of a wheel (its path, and a folder for what is written)
COMMANDS: Mapping[str, Words] = {
    "audit": lambda wheel, _: ["audit", wheel],
    "audit --recipe": lambda wheel, _: ["audit", wheel, "--recipe", "pytorch"],
    "audit --by-recipe": lambda wheel, _: ["audit", "--by-recipe", wheel],
    "verify": lambda wheel, _: ["verify", wheel],
    "targets": lambda wheel, _: ["targets", wheel],
    "provenance verify": lambda wheel, _: ["provenance", "verify", wheel],
    "wheel check": lambda wheel, _: ["wheel", "check", wheel],
    "wheel show": lambda wheel, _: ["wheel", "show", wheel],
    "wheel diff": lambda wheel, folder: ["wheel", "diff", wheel, f"{folder}/../good/{Path(wheel).name}"],
    "wheel retag": lambda wheel, folder: ["wheel", "retag", wheel, "--local-version", "x1", "-o", folder],
    "wheel prune": lambda wheel, folder: ["wheel", "prune", wheel, "--gfx", "gfx942", "-o", folder],
    "wheel repair": lambda wheel, folder: ["wheel", "repair", wheel, "-o", folder],
    "wheel split": lambda wheel, folder: ["wheel", "split", wheel, "-o", folder],
    "wheel join": lambda wheel, folder: ["wheel", "join", wheel, "-o", folder],
    "wheel fat": lambda wheel, folder: ["wheel", "fat", wheel, "--find-links", folder, "-o", folder],
    "wheel stamp": lambda wheel, folder: ["wheel", "stamp", wheel, "--rocm", "7.1", "-o", folder],
}
EVERY_ATTACK = [pytest.param(1, id="all", marks=pytest.mark.exhaustive)]


def make_good_draft() -> Draft:
    """Return a torch that every command takes, with the lock that it was built from inside."""
    draft, other = drafts()["torch"], torch_draft()
    draft.members = {**other.members, **draft.members, "torch/__init__.py": b"from . import _rocm_init\n"}
    draft.members["torch/lib/libtorch_hip.so"] = library("gfx942")
    draft.members["torch/version.py"] = other.members["torch/version.py"].replace(b"2.9.0", b"2.9.1")
    return draft


def run(*words: object) -> tuple[int, str]:
    """Run a command; return its exit code and all that it printed."""
    ended = call(*words, code=None)
    return ended.code, ended.out + ended.err


def stage(world: World, wheel: Path, store: Path) -> int:
    """Stage a torch with the other wheels of the release; return the exit code."""
    others = [path for path in world.wheels if not path.name.startswith("torch-")]
    return run("set", "stage", store, *others, wheel, "--lock", world.lock, "--family", FAMILY)[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("release"))


def test_there_are_ninety_attacks_and_more_of_every_kind() -> None:
    assert len({(attack.kind, attack.name) for attack in ATTACKS}) == len(ATTACKS) >= 90
    assert min(Counter(attack.kind for attack in ATTACKS).values()) >= 4


@pytest.mark.parametrize("step", [pytest.param(3, id="sample"), *EVERY_ATTACK])
def test_no_hostile_wheel_is_published(step: int, world: World, tmp_path: Path) -> None:
    """By whom: ``index build`` with and without FILEs and ``set stage``; ``audit --by-recipe`` says why."""
    draft, store, good = make_good_draft(), tmp_path / "store", tmp_path / "good"
    good.mkdir()
    wheel = draft.write(good)
    assert run("audit", wheel, "--by-recipe")[0] == 0
    passed = Counter[str]()
    for attack in ATTACKS[::step]:
        folder = tmp_path / "in" / "torch"
        folder.mkdir(parents=True)
        hostile = attack.write(draft, folder)
        passed["audit --by-recipe"] += run("audit", hostile, "--by-recipe")[0] != 14
        passed["set stage"] += stage(world, hostile, store) not in (2, 15)
        if not attack.needs_recipe:  # in anybody's index it may be
            passed["index build FILE"] += run("index", "build", tmp_path / "index", hostile)[0] != 2
            passed["index build"] += run("index", "build", folder.parent)[0] != 2
            passed["audit"] += run("audit", hostile)[0] != 14 and attack.kind != "startup-files"
        shutil.rmtree(folder.parent)
    assert +passed == {}
    assert list((tmp_path / "index").rglob("*.whl*")) == []
    assert not any(path.name == "set.json" or path.suffix == ".whl" for path in store.rglob("*"))
    assert run("index", "build", tmp_path / "index", wheel)[0] == 0
    assert stage(world, wheel, store) == 0


@pytest.mark.parametrize("step", [pytest.param(9, id="sample"), *EVERY_ATTACK])
def test_no_command_ends_as_a_bug_or_commands_the_terminal(step: int, tmp_path: Path) -> None:
    draft = make_good_draft()
    for name in ("in", "good"):
        (tmp_path / name).mkdir()
    draft.write(tmp_path / "good")
    for attack in ATTACKS[::step]:
        hostile = attack.write(draft, tmp_path / "in")
        before = hostile.read_bytes()
        for name, words in COMMANDS.items():
            folder = tmp_path / "out"
            folder.mkdir()
            code, text = run(*words(str(hostile), str(folder)))
            assert code in EXIT_CODES, (attack, name, code)
            assert code == 0 or not list(folder.rglob("*.whl")), (attack, name)
            assert "\x1b" not in text and "\0" not in text, (attack, name)
            shutil.rmtree(folder)
        assert hostile.read_bytes() == before
        hostile.unlink()


REFUSED = [a for a in ATTACKS if a.kind in ("file-types", "colliding-names")][::2]


@pytest.mark.parametrize("attack", REFUSED, ids=lambda attack: f"{attack.kind}, {attack.name}")
def test_what_the_index_refuses_as_an_archive_no_command_opens(attack: Attack, tmp_path: Path) -> None:
    hostile, folder = attack.write(make_good_draft(), tmp_path), tmp_path / "out"
    for command, words in COMMANDS.items():
        if not command.startswith(("provenance", "wheel diff", "wheel join")):
            code = run(*words(str(hostile), str(folder)))[0]
            is_audit = command.split()[-1] in ("check", "--recipe", "--by-recipe", "audit", "verify")
            assert code in ((14,) if is_audit else (2, 13)), command
    assert not folder.exists()


@pytest.fixture
def one_gigabyte() -> Iterator[None]:
    """Give the tests no more memory than 1 GB beside what they have."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
@pytest.mark.parametrize("name", GREEDY_FILES)
def test_what_a_file_states_fills_no_memory(
    name: str, world: World, tmp_path: Path, one_gigabyte: None
) -> None:
    """Each is a finding, and a fault to all commands that read such files; none takes long, or is a bug."""
    draft, (member, content) = make_good_draft(), GREEDY_FILES[name]
    draft.members[member] = content
    hostile, begin = draft.write(tmp_path), time.monotonic()
    rewrite(lambda _members: None, method=zipfile.ZIP_DEFLATED)(hostile)
    assert hostile.stat().st_size < 400_000
    assert run("audit", hostile, "--by-recipe")[0] == 14
    if not member.endswith(".py"):  # which only a recipe has read
        assert run("wheel", "check", hostile)[0] == 14
        assert run("audit", hostile)[0] == 14
        assert run("index", "build", tmp_path / "index", hostile)[0] == 2
        assert stage(world, hostile, tmp_path / "store") in (2, 15)
    for command in ("targets", "wheel repair", "wheel prune", "wheel split", "wheel stamp", "wheel show"):
        code, text = run(*COMMANDS[command](str(hostile), str(tmp_path / "out")))
        assert code in EXIT_CODES, (command, text)
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.kind == "record"][::4], ids=lambda attack: attack.name
)
@pytest.mark.parametrize("command", ["wheel retag", "wheel prune", "wheel stamp", "wheel repair"])
def test_no_edit_makes_a_wrong_record_right(attack: Attack, command: str, tmp_path: Path) -> None:
    hostile, folder = attack.write(make_good_draft(), tmp_path), tmp_path / "out"
    assert run(*COMMANDS[command](str(hostile), str(folder)))[0] in (2, 13)
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("command", [*COMMANDS, "index build", "index resolve-check", "set stage"])
def test_a_pipe_is_refused_at_once(command: str, world: World, tmp_path: Path) -> None:
    pipe = tmp_path / "torch-2.9.1-cp311-cp311-linux_x86_64.whl"
    os.mkfifo(pipe)
    if command == "set stage":
        assert stage(world, pipe, tmp_path / "store") == 2
    elif command in COMMANDS:
        assert run(*COMMANDS[command](str(pipe), str(tmp_path / "out")))[0] == 2
    else:
        assert run(*command.split(), tmp_path / "index", pipe)[0] == 2


def test_a_pth_is_published_where_somebody_says_so(tmp_path: Path) -> None:
    draft = Draft("demo", "1.0", "py3-none-any", members={"demo.py": b"", "a.pth": b"import demo\n"})
    wheel = draft.write(tmp_path)
    assert run("index", "build", tmp_path / "index", wheel, "--allow-pth", "b.pth")[0] == 2
    assert run("index", "build", tmp_path / "index", wheel, "--allow-pth", "a.pth")[0] == 0
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(wheel, folder)
    assert run("index", "build", folder)[0] == 2
    assert run("index", "build", folder, "--allow-pth", "*.pth")[0] == 0


def test_what_others_wrote_is_shown_and_not_heeded(tmp_path: Path) -> None:
    """A Summary, a reason to yank, and an entry of METADATA that is said to be wrong."""
    draft, title = Draft("demo", "1.0", "py3-none-any", members={"demo.py": b""}), "\x1b]0;evil\x07"
    (tmp_path / "other").mkdir()
    wheel, index = draft.write(tmp_path), tmp_path / "index"
    assert run("index", "build", index, wheel)[0] == 0
    assert run("index", "yank", index, "demo==1.0", "--reason", title)[0] == 0
    code, chosen = run("choose", "demo", "--index", index, "--gfx", "none", "--rocm", "none")
    draft.fields = [f"Summary: {title}", f"License-Expression: {title}"]
    other = draft.write(tmp_path / "other")
    compared, audited = run("wheel", "diff", wheel, other)[1], run("audit", other)[1]
    assert code == 17
    for text in (chosen, compared, audited):
        assert "\\x1b]0;evil\\x07" in text and "\x1b" not in text
