"""Sets with one thing wrong each, by whoever writes wheels, results or documents, or anything by hand.

None is released: not by the policy that ships, nor by a strict one, which takes signed passes alone. Each
attack is on a copy of a set with a wheel for each project that has passed all, and then the commands are run
that people run. The sample takes some of the attacks; the exhaustive test all.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import call, make_key, needs_ssh_keygen
from documents import edit_sealed, reseal, sha
from stores import PATHS, TARGET, Attacked, World, is_same_result, list_leaves, overwrite, stage_attacked

from rocm_wheels.core import errors
from rocm_wheels.models import project_names
from rocm_wheels.release import wheel_set
from rocm_wheels.stores import folder

SAMPLE = 12  # each that many is in CI
REFUSED = {2, 15}
STRICT = """
signers: {{ann: {key}}}
channels:
  nightly:
    signed: true
    passes_after_failure: 2
    bypasses: refused
    rules:
      audit: {{fresh: 14d}}
      complete: {{}}
      resolver: {{fresh: 14d}}
      smoke: {{fresh: 7d, targets: every, pythons: every, at_least: 3}}
"""
pytestmark = [pytest.mark.contract, needs_ssh_keygen]
KINDS = ("audit", "resolver", "smoke")


@dataclass(frozen=True)
class Bench:
    """A set without results, the keys of ann (trusted by the strict policy) and mallory, both policies."""

    bare: Attacked
    keys: Path
    policies: tuple[Path, ...]

    def pass_all(self, attacked: Attacked, *kinds: str, **fields: Any) -> None:
        """Add a signed pass of each kind, of hours that grow less."""
        for age, kind in enumerate(reversed(kinds or KINDS), start=1):
            attacked.know(kind, "pass", age, self.keys / "ann", **fields)

    def list_promoting(self, attacked: Attacked, commands: Iterable[str]) -> list[str]:
        """Return the policies by which one of the commands let a set pass."""
        passed = []
        for policy in self.policies:
            here = replace(attacked, policy=policy)
            codes = {here.run(command, "--channel", "nightly") for command in commands}
            shown = (here.place / PATHS.channel_document("nightly")).exists()
            passed += [policy.name] if shown or not codes <= REFUSED else []
        return passed

    def require_none_promoted(
        self, attacks: Sequence[Attack], start: Attacked, *, exhaustive: bool, step: int
    ) -> None:
        """Do attacks to a copy each, and have it promoted by nobody, by whichever policy."""
        promoted = []
        for name, attack in attacks if exhaustive else attacks[::step]:
            attacked = start.copy("attacked")
            try:
                attack(attacked)
            except errors.RocmWheelsError as refusal:
                assert refusal.exit_code in REFUSED, name
            # the gate reads no METADATA; pages are made of it by whoever promotes
            commands = ("promote",) if ".metadata " in name else ("gate", "promote")
            found = self.list_promoting(attacked, commands)
            promoted += [f"{name}: {policy}" for policy in found]
            shutil.rmtree(attacked.place)
        assert promoted == [], "\n".join(promoted)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    home = tmp_path_factory.mktemp("attacked")
    for name in ("ann", "mallory"):
        make_key(home / name)
    strict, usual = home / "strict.yaml", home / "usual.yaml"
    strict.write_text(STRICT.format(key=(home / "ann.pub").read_text().strip()))
    shipped = (project_names.get_data_folder() / "release_policy.yaml").read_text()
    usual.write_text(shipped.replace("    rules:\n", "    signed: false\n    rules:\n"))
    return Bench(stage_attacked(home, passes=False), home, (usual, strict))


@pytest.fixture(scope="module")
def good(bench: Bench) -> Attacked:
    """The set that has passed all, to be released by a policy without signatures."""
    attacked = bench.bare.copy("passed")
    bench.pass_all(attacked)
    return attacked


@pytest.fixture(scope="module")
def failed(bench: Bench, good: Attacked) -> Attacked:
    attacked = good.copy("failed")
    attacked.know("smoke", "fail", 0.5, bench.keys / "ann")
    return attacked


Attack = tuple[str, Callable[[Attacked], None]]


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
        name, content = path.as_posix(), (attacked.place / path).read_bytes()
        yield f"{name} gone", lambda a, path=path: (a.place / path).unlink()
        others = {"cut": content[:-2], "empty": b"", "twice": content * 2, "edited": b"Q" + content[1:]}
        for how, other in others.items():
            yield f"{name} {how}", lambda a, path=path, other=other: overwrite(a.place / path, other)
    groups = [attacked.results, [path for path in attacked.files("") if path.suffix == ".whl"]]
    for group in groups:
        for first in group:
            for second in (path for path in group if path > first):
                pair = [path.relative_to(attacked.place) for path in (first, second)]
                yield f"{pair[0]} and {pair[1].name} swapped", lambda a, pair=pair: swap(a, *pair)
    for name, change in EDITS.items():
        yield name, lambda a, e=change: overwrite(a.set_file, edit_sealed(a.set_file.read_bytes(), e))


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        f"without {name}": lambda document, name=name: document.pop(name)
        for name in ("files", "locks", "planned")
    },
    "targets of other cards": lambda document: document["files"][0].update(targets=["gfx90a"]),
    "a target more": lambda document: document["files"][0].update(targets=["gfx90a", TARGET]),
    "a wheel less": lambda document: document["files"].pop(),
    "a wheel twice": lambda document: document["files"].append(document["files"][0]),
    "a cell less": lambda document: document["planned"].pop(),
    "a cell that is missing": lambda document: document.update(
        missing=[{"project": "torchaudio", "python": "3.99", "target": TARGET}]
    ),
}


def swap(attacked: Attacked, first: Path, second: Path) -> None:
    one, other = ((attacked.place / path).read_bytes() for path in (first, second))
    overwrite(attacked.place / first, other)
    overwrite(attacked.place / second, one)


def list_bad_results(bench: Bench) -> Iterator[Attack]:
    """Yield results that are missing, failed, old, from the future, of other wheels, cards or people."""

    def but(*kinds: str, **fields: Any) -> Callable[[Attacked], None]:
        """Have all pass, and those kinds with other fields."""

        def know(attacked: Attacked) -> None:
            bench.pass_all(attacked, *(kind for kind in KINDS if kind not in kinds))
            bench.pass_all(attacked, *kinds, **fields)

        return know

    def then(kind: str, outcome: str, **fields: Any) -> Callable[[Attacked], None]:
        """Have all pass, and then one not."""

        def know(attacked: Attacked) -> None:
            bench.pass_all(attacked)
            attacked.know(kind, outcome, 0.5, bench.keys / "ann", **fields)

        return know

    def edit_result(**fields: object) -> Callable[[Attacked], None]:
        def write(attacked: Attacked) -> None:
            then("smoke", "fail")(attacked)
            result = json.loads(attacked.results[-1].read_bytes())
            overwrite(attacked.results[-1], (json.dumps({**result, **fields}, indent=1) + "\n").encode())

        return write

    now = datetime.now(timezone.utc).replace(microsecond=0)
    yield "no results", lambda attacked: None
    for kind in KINDS:
        yield f"{kind} never done", lambda a, k=kind: bench.pass_all(a, *(x for x in KINDS if x != k))
        yield f"{kind} failed then", then(kind, "fail")
        yield f"{kind} crashed then", then(kind, "crash")
        yield f"{kind} of other wheels", but(kind, hashes=(sha("another wheel"),))
        yield f"{kind} of one wheel", but(kind, hashes=(bench.bare.document.files[-1].sha256,))
        yield f"{kind} too old", but(kind, when=now - timedelta(days=40), added=now - timedelta(days=40))
        yield (
            f"{kind} from the future",
            but(kind, when=now + timedelta(days=2), added=now + timedelta(days=2)),
        )
        yield f"{kind} about another document", but(kind, about="0" * 64)
    yield "smoke on another card", but("smoke", gfx="gfx1100")
    yield "smoke of chosen tests", but("smoke", selected="-k nothing")
    yield "failure made a pass", edit_result(outcome="pass", counts={"passed": 3})
    yield "failure of another set", edit_result(set="2.9.1-rocm7.1.0-000000000000")
    yield "failure on another card", edit_result(gfx="gfx90a")
    yield "failure of before", edit_result(when="2026-01-01T00:00:00Z")


def test_the_good_one_is_released_by_both_and_the_failed_one_by_none(
    bench: Bench, good: Attacked, failed: Attacked
) -> None:
    for policy in bench.policies:
        attacked = replace(good.copy(f"good {policy.name}"), policy=policy)
        assert attacked.run("gate", "--channel", "nightly") == 0
        assert attacked.promote()
    bench.require_none_promoted([("as it is", lambda _: None)], failed, exhaustive=True, step=1)


def test_no_set_is_released_of_which_anything_was_changed(
    bench: Bench, good: Attacked, exhaustive: bool
) -> None:
    attacks = list(list_attacks(good))
    assert len(attacks) >= 330
    bench.require_none_promoted(attacks, good, exhaustive=exhaustive, step=SAMPLE)


def test_no_failure_is_made_a_pass(bench: Bench, failed: Attacked, exhaustive: bool) -> None:
    """Whoever may not delete it cannot be rid of it."""
    failure = failed.results[-1].relative_to(failed.place).as_posix()
    attacks = [(name, attack) for name, attack in list_attacks(failed) if name != f"{failure} gone"]
    assert len(attacks) >= 350
    bench.require_none_promoted(attacks, failed, exhaustive=exhaustive, step=SAMPLE)


def test_no_set_is_released_that_has_not_passed(bench: Bench, exhaustive: bool) -> None:
    cases = list(list_bad_results(bench))
    assert len(cases) >= 30
    bench.require_none_promoted(cases, bench.bare, exhaustive=exhaustive, step=5)


def test_a_wheel_that_was_exchanged_after_its_tests_is_held(good: Attacked) -> None:
    attacked = good.copy("exchanged")
    assert attacked.run("gate", "--channel", "nightly") == 0
    wheel = next(path for path in attacked.files("") if path.suffix == ".whl")
    content = wheel.read_bytes()
    overwrite(wheel, content[:-1] + bytes([content[-1] ^ 1]))
    before = {path: path.read_bytes() for path in attacked.files("")}
    assert attacked.run("gate", "--channel", "nightly") == 15
    told = call("set", "promote", attacked.place, "--set", attacked.document.id, "--channel", "nightly",
                "--policy", attacked.policy, code=15).err  # fmt: skip
    assert "has other bytes: their sha256 is" in told
    assert {path: path.read_bytes() for path in attacked.files("")} == before


def test_a_name_stays_with_its_bytes_when_they_are_taken_away(good: Attacked) -> None:
    """Another set with the same file names was tested as well: people who locked the first would get it."""
    attacked, world = good.copy("names"), World(good.place.with_name("other world"), text="other")
    assert attacked.promote()
    call(*world.words(str(attacked.place)))
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


def test_a_document_that_was_edited_is_refused_by_all_who_read_it(good: Attacked) -> None:
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
            call(*words, *policy, code={2, 15})
    if kind == "set":  # as the tip says
        path.unlink()
        call(*list_readers(released)["stage"])
        assert path.read_bytes() == content
    else:
        overwrite(path, content)
    assert released.run("refresh") == 0
    call(*list_readers(released)["fsck"])


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


@pytest.mark.parametrize("signed_by", ["nobody", "mallory", "ann"])
def test_a_line_that_nobody_known_signed_makes_nothing_tested(
    bench: Bench, tmp_path: Path, signed_by: str
) -> None:
    policy = tmp_path / "policy.yaml"
    rules = "{audit: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}"
    channels = f"channels: {{nightly: {{signed: false, rules: {rules}}}, stable: {{rules: {rules}}}}}\n"
    policy.write_text(f"{channels}signers: {{ann: {(bench.keys / 'ann.pub').read_text().strip()}}}\n")
    attacked = replace(bench.bare.copy(f"signed-by-{signed_by}"), policy=policy)
    for kind in ("audit", "smoke"):
        attacked.know(kind, "pass", 4)
        if signed_by != "nobody":
            attacked.know(kind, "pass", 2, bench.keys / signed_by)
    expected, code = ("tested", 0) if signed_by == "ann" else ("reported, unsigned", 15)
    assert attacked.run("promote", "--channel", "nightly") == 0  # which takes reports
    assert attacked.run("refresh") == 0
    states = list_shown_states(attacked)
    assert any(expected in word for word in states), states
    assert any(re.search(r"(?<!un)(?<!partly )tested", word) for word in states) == (signed_by == "ann")
    view = attacked.place / PATHS.view_pages(TARGET, "nightly")
    assert view.exists(), "nightly takes reports, so that stores without keys have views"
    listing = ["set", "list", str(attacked.place), "--policy", str(policy), "--channel", "nightly", "--json"]
    (shown,) = call(*listing).json["channels"][0]["sets"]
    assert shown["then"]["state"] == shown["now"]["state"] == expected
    assert {target["state"] for target in shown["now"]["targets"]} == {expected}
    assert attacked.run("gate", "--channel", "stable") == code
    assert attacked.run("promote", "--channel", "stable") == code
    assert (attacked.place / PATHS.channel_document("stable")).exists() == (code == 0)
    assert attacked.run("list", "--passed", TARGET, "--channel", "stable", "--policy", str(policy)) == code
