"""What somebody can do who may write to a store below its channels, by hand: nothing of it is released.

A set with a wheel for each project, verified and tested on its GPU; in the other store it failed since.
Each attack is on a copy, and then the command is run that people run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import reseal
from stores import PATHS, TARGET, Attacked, World, is_same_result, list_leaves, overwrite, stage_attacked

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import wheel_set
from rocm_wheels.stores import folder

SAMPLE = 12  # each that many is in CI


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    return stage_attacked(tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def failed(good: Attacked) -> Attacked:
    attacked = good.copy("failed")
    attacked.know("smoke", "fail", 3)
    return attacked


def edit_leaf(text: bytes, at: tuple[str | int, ...], *, remove: bool) -> bytes:
    """Return a document with another value there, of the same kind where there is one, or without it.

    It is sealed again: what is met is what holds who means harm.
    """
    document = json.loads(text)
    parent = document
    for name in at[:-1]:
        parent = parent[name]
    value = parent[at[-1]]
    if remove:
        del parent[at[-1]]
    elif isinstance(value, bool):
        parent[at[-1]] = not value
    elif isinstance(value, int):
        parent[at[-1]] = value + 1
    elif isinstance(value, str) and value:
        last = "0" if value[-1] != "0" else "1"
        parent[at[-1]] = value[:-1] + last
    else:
        parent[at[-1]] = {"files": [], "locks": []}.get(
            str(at[-1]), "x" if value in ("", None) else value or ["x"]
        )
    return reseal(json.dumps(document, indent=1).encode() + b"\n")


Attack = tuple[str, Callable[[Attacked], None]]


def list_attacks(attacked: Attacked) -> Iterator[Attack]:
    """Yield edits, deletions and swaps over all that a set is made of, each with its name."""
    relative = [path.relative_to(attacked.place) for path in attacked.files("")]
    documents = [attacked.set_file, *attacked.results]
    for path in (path.relative_to(attacked.place) for path in documents):
        text = (attacked.place / path).read_bytes()
        for at in list_leaves(json.loads(text)):
            for remove in (False, True):
                new = edit_leaf(text, at, remove=remove)
                if json.loads(new) != json.loads(text) and not is_same_result(new, text):
                    name = f"{path.parts[1]}/{path.name}: {'without ' * remove}{at}"
                    yield name, lambda a, path=path, new=new: overwrite(a.place / path, new)
    # pages are made anew, and lost ones are told
    needless = {"index.json", "index.html"}
    for path in (path for path in relative if path.name not in needless):
        name = path.as_posix()
        yield f"{name} gone", lambda a, path=path: (a.place / path).unlink()
        yield (
            f"{name} cut",
            lambda a, path=path: overwrite(a.place / path, (a.place / path).read_bytes()[:-2]),
        )
    groups = [attacked.results, [path for path in attacked.files("") if path.suffix == ".whl"]]
    for group in groups:
        for first in group:
            for second in (path for path in group if path > first):
                pair = [path.relative_to(attacked.place) for path in (first, second)]
                yield f"{pair[0]} and {pair[1].name} swapped", lambda a, pair=pair: swap(a, *pair)


def swap(attacked: Attacked, first: Path, second: Path) -> None:
    one, other = ((attacked.place / path).read_bytes() for path in (first, second))
    overwrite(attacked.place / first, other)
    overwrite(attacked.place / second, one)


@pytest.mark.contract
def test_the_good_one_is_released_and_the_failed_one_is_not(good: Attacked, failed: Attacked):
    assert good.copy("good released").promote()
    assert not failed.copy("failed tried").promote()


@pytest.mark.contract
def test_a_wheel_that_was_exchanged_after_its_tests_is_held(good: Attacked):
    attacked = good.copy("exchanged")
    assert attacked.run("gate", "--channel", "nightly") == 0
    wheel = next(path for path in attacked.files("") if path.suffix == ".whl")
    content = wheel.read_bytes()
    overwrite(wheel, content[:-1] + bytes([content[-1] ^ 1]))
    assert attacked.run("gate", "--channel", "nightly") == 15
    assert not attacked.promote()


@pytest.mark.contract
def test_no_set_is_released_of_which_anything_was_changed(good: Attacked, exhaustive: bool):
    attacks = list(list_attacks(good))
    assert len(attacks) >= 230
    promoted = []
    for number, (name, attack) in enumerate(attacks if exhaustive else attacks[::SAMPLE]):
        attacked = good.copy(f"attack {number}")
        attack(attacked)
        promoted += [name] if attacked.promote() else []
        shutil.rmtree(attacked.place)
    assert promoted == [], "\n".join(promoted)


def test_no_failure_is_made_a_pass(failed: Attacked, exhaustive: bool):
    """Whoever may not delete it cannot be rid of it."""
    failure = failed.results[-1].relative_to(failed.place).as_posix()
    attacks = [(name, attack) for name, attack in list_attacks(failed) if name != f"{failure} gone"]
    assert len(attacks) >= 250
    promoted = []
    for number, (name, attack) in enumerate(attacks if exhaustive else attacks[::SAMPLE]):
        attacked = failed.copy(f"undone {number}")
        attack(attacked)
        promoted += [name] if attacked.promote() else []
        shutil.rmtree(attacked.place)
    assert promoted == [], "\n".join(promoted)


@pytest.mark.contract
def test_a_name_stays_with_its_bytes_when_they_are_taken_away(good: Attacked):
    """Another set with the same file names was tested as well: people who locked the first would get it."""
    attacked, world = good.copy("names"), World(good.place.with_name("other world"), text="other")
    assert attacked.promote()
    assert boundary.run_command(main.cli, world.words(str(attacked.place))) == 0
    other = replace(
        attacked, document=wheel_set.find_set(folder.FolderStore(attacked.place), world.plan().document.id)
    )
    for kind in ("audit", "smoke"):
        other.know(kind, "pass", 4)
    assert other.run("gate", "--channel", "nightly") == 0
    assert other.run("gate", "--channel", "nightly", "--explain") == 15  # the channel is asked, too
    channel = attacked.place / PATHS.channel_document("nightly")
    for _ in range(2):
        before = channel.read_bytes()
        assert other.run("promote", "--channel", "nightly") == 15
        assert channel.read_bytes() == before
        demote = ("demote", "--channel", "nightly", "--set", attacked.document.id)
        assert attacked.run(*demote) == 0


@pytest.mark.contract
def test_a_document_that_was_edited_is_refused_by_all_who_read_it(good: Attacked):
    released = good.copy("released and edited")
    assert released.promote()
    text = good.set_file.read_bytes()
    fields = [
        at for at in list_leaves(json.loads(text)) if at[0] in {"rocm", "version", "created", "planned"}
    ]
    fields += [("files", 1, name) for name in json.loads(text)["files"][1]]
    for number, at in enumerate(fields):
        new = edit_leaf(text, at, remove=False)
        if json.loads(new) == json.loads(text):
            continue
        attacked = released.copy(f"edited {number}")
        overwrite(attacked.set_file, new)
        assert attacked.run("gate", "--channel", "nightly") in {2, 15}, at
        assert attacked.run("refresh") == 15, at
        assert attacked.run("list", "--channel", "nightly") == 2, at
        shutil.rmtree(attacked.place)


def list_readers(attacked: Attacked) -> dict[str, tuple[str, ...]]:
    """Return the commands that read documents, by what each asks for."""
    store, chosen = str(attacked.place), ("--set", attacked.document.id)
    channel = ("--channel", "nightly")
    return {
        "stage": tuple(World(attacked.place.with_name("world")).words(store)),
        "check": ("set", "check", store, *chosen),
        "show": ("set", "show", store, *chosen),
        "gate": ("set", "gate", store, *chosen, *channel),
        "promote": ("set", "promote", store, *chosen, *channel),
        "demote": ("set", "demote", store, *chosen, *channel),
        "refresh": ("set", "refresh", store),
        "list": ("set", "list", store),
        "list of a channel": ("set", "list", store, *channel),
        "smoke": ("test", "smoke", "--store", store, *chosen),
        "audit": ("audit", "--set", str(attacked.set_file)),
        "fsck": ("store", "fsck", store),
        "prune": ("store", "prune", store),
    }


@pytest.mark.contract
@pytest.mark.parametrize("kind", ["set", "channel"])
def test_no_command_takes_a_document_that_was_edited_without_its_seal(
    good: Attacked, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a set was staged, and who promoted it, are stated by nothing else."""
    monkeypatch.chdir(tmp_path)
    released = good.copy(f"released, its {kind} edited")
    assert released.promote() and released.run("refresh") == 0
    path = released.set_file if kind == "set" else released.place / PATHS.channel_document("nightly")
    content = path.read_bytes()
    edits = {"set": (b'"created": "2', b'"created": "1'), "channel": (b'"by": "', b'"by": "eve')}
    overwrite(path, content.replace(*edits[kind]))
    # a set that cannot be read is taken away all the same, and `gate` looks at the channel for notes alone
    unread = {"set": ("demote",), "channel": ("stage", "check", "show", "gate", "smoke", "audit", "list")}[
        kind
    ]
    for name, words in list_readers(released).items():
        policy = ("--policy", str(released.policy)) if name in {"gate", "promote", "refresh"} else ()
        if name not in unread:
            assert boundary.run_command(main.cli, [*words, *policy]) in {2, 15}, name
    if kind == "set":  # as the tip says
        path.unlink()
        assert boundary.run_command(main.cli, list_readers(released)["stage"]) == 0
        assert path.read_bytes() == content
    else:
        overwrite(path, content)
    assert released.run("refresh") == 0
    assert boundary.run_command(main.cli, list_readers(released)["fsck"]) == 0


def list_shown_states(attacked: Attacked) -> set[str]:
    """Return the words for tests of all that people read of a channel: documents, pages, listing, answers."""
    words = set[str]()
    for path in attacked.files(""):
        if path.name.endswith(".json") and "/simple/" not in str(path):
            document = json.loads(path.read_bytes())
            for leaf in list_leaves(document) if isinstance(document, dict) else ():
                value = get_leaf(document, leaf)
                if leaf[-1] == "state" or "told" in leaf:
                    words.add(str(value))
    for page in (attacked.place / PATHS.channel_pages("nightly")).rglob("index.html"):
        words |= set(re.findall(r"<p>(.*?)</p>", page.read_text()))
    return words


def get_leaf(value: Any, at: tuple[str | int, ...]) -> Any:
    for name in at:
        value = value[name]
    return value


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed")
@pytest.mark.parametrize("signed_by", ["nobody", "mallory", "ann"])
def test_a_line_that_nobody_known_signed_makes_nothing_tested(
    good: Attacked, tmp_path: Path, signed_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ann", "mallory"):
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(make_key, check=True)
    policy = tmp_path / "policy.yaml"
    rules = "{audit: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}"
    channels = f"channels: {{nightly: {{signed: false, rules: {rules}}}, stable: {{rules: {rules}}}}}\n"
    policy.write_text(f"{channels}signers: {{ann: {(tmp_path / 'ann.pub').read_text().strip()}}}\n")
    attacked = replace(good.copy(f"signed-by-{signed_by}"), policy=policy)
    for kind in ("audit", "smoke") if signed_by != "nobody" else ():
        attacked.know(kind, "pass", 2, tmp_path / signed_by)
    expected, code = ("tested", 0) if signed_by == "ann" else ("reported, unsigned", 15)
    assert attacked.run("promote", "--channel", "nightly") == 0  # which takes reports
    assert attacked.run("refresh") == 0
    states = list_shown_states(attacked)
    assert any(expected in word for word in states), states
    assert any(re.search(r"(?<!un)(?<!partly )tested", word) for word in states) == (signed_by == "ann")
    view = attacked.place / PATHS.view_pages(TARGET, "nightly")
    assert view.exists(), "nightly takes reports, so that stores without keys have views"
    capsys.readouterr()
    listing = ["set", "list", str(attacked.place), "--policy", str(policy), "--channel", "nightly", "--json"]
    assert boundary.run_command(main.cli, listing) == 0
    (shown,) = json.loads(capsys.readouterr().out)["channels"][0]["sets"]
    assert shown["then"]["state"] == shown["now"]["state"] == expected
    assert {target["state"] for target in shown["now"]["targets"]} == {expected}
    assert attacked.run("gate", "--channel", "stable") == code
    assert attacked.run("promote", "--channel", "stable") == code
    assert (attacked.place / PATHS.channel_document("stable")).exists() == (code == 0)
    assert attacked.run("list", "--passed", TARGET, "--channel", "stable", "--policy", str(policy)) == code
