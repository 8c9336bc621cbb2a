"""A companion alone: staged without the torch that it needs, shown only beside one, installed with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from commands import call
from crash import Watched, killed_at_writes
from pythons import PIP, UV
from servers import serve_folder
from stores import FAMILY, NOW, PYTHON, ROCM, World, a_lock, drafts, hours_ago, know, rocm_wheel, verified
from wheels import Draft, library

from rocm_wheels.core import process
from rocm_wheels.index import update
from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.release import channel, policy, prune, refresh, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import format_lock, write_lock
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

RULES = "{signed: false, rules: {audit: {fresh: 14d}, complete: {}}}"
POLICY = f"channels: {{nightly: {RULES}, stable: {RULES}}}\n"
TORCH = f"2.9.1+rocm{ROCM}"
BITSANDBYTES = f"0.50.2+rocm{ROCM}"


class Shop:
    """A store, to which sets are staged and promoted by commands; what is staged passed its audit."""

    def __init__(self, root: Path, name: str = "store") -> None:
        self.root, self.place, self.policy = root, root / name, root / "policy.yaml"
        self.store = folder.FolderStore(self.place)
        self.policy.write_text(POLICY)

    def stage(self, wheels: list[Path], lock: Path, *more: str) -> tuple[str, str]:
        """Return the id of the set, and all that is printed."""
        words = ["set", "stage", self.place, *wheels, "--lock", lock, "--family", FAMILY, *more]
        printed = call(*words)
        set_id = printed.out.split()[0]
        document = wheel_set.find_set(self.store, set_id)
        verified(self.store, document, hours_ago(datetime.now(timezone.utc), 1))
        return set_id, printed.out + printed.err

    def stage_torch(self, version: str = "2.9.1") -> str:
        made = World(self.root / version, version)
        return self.stage(made.wheels, made.lock)[0]

    def stage_companion(
        self, requires: str, *, version: str = BITSANDBYTES, rocm: str = ROCM
    ) -> tuple[str, str]:
        """Stage bitsandbytes alone, as its recipe builds it from a lock of its own."""
        home = self.root / version
        home.mkdir()
        members = {
            "bitsandbytes/libbitsandbytes_rocm71.so": library("gfx942"),
            "bitsandbytes/__init__.py": b"",
        }
        draft = Draft("bitsandbytes", version, "py3-none-linux_x86_64", members=members)
        draft.requires = [requires, "numpy", f"rocm[libraries]=={rocm}"]
        locked = LockedProject(origin="https://h/b.git", ref="main", why="test", commit="d" * 40)
        lock = Lock(rocm=rocm, targets=("gfx942",), pythons=(PYTHON,), projects={"bitsandbytes": locked})
        write_lock(home / "own.lock", lock)
        return self.stage([draft.write(home)], home / "own.lock")

    def change(self, action: str, *ids: str, channel: str = "nightly", code: int = 0) -> str:
        named = [word for set_id in ids for word in ("--set", set_id)]
        words = ["set", action, self.place, *named, "--channel", channel, "--policy", self.policy]
        printed = call(*words, code=code)
        return printed.out + printed.err


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.contract
def test_a_companion_is_shown_beside_a_torch_that_it_takes_and_installed_with_it(
    shop: Shop, tmp_path: Path
) -> None:
    alone, printed = shop.stage_companion("torch<3,>=2.4")
    assert "needs: torch<3,>=2.4, of another set\n" in printed
    refused = (
        "bitsandbytes-0.50.2+rocm7.1.0-py3-none-linux_x86_64.whl requires torch<3,>=2.4, which is not in"
    )
    assert f"will refuse this set as things are: {refused} the set, and the channel has none" in printed
    assert f"error: {refused}" in (told := shop.change("promote", alone, code=15))
    assert "tip: promote a set that has it first" in told
    explained = call(
        *("set", "gate", shop.place, "--set", alone, "--channel", "nightly", "--policy", shop.policy),
        *("--explain", "--json"), code=15,
    ).json  # fmt: skip
    assert [rule["rule"] for rule in explained["rules"] if rule["outcome"] == "fail"] == ["channel"]

    torch = shop.stage_torch()
    shop.change("promote", torch)
    again = shop.stage([*(tmp_path / BITSANDBYTES).glob("*.whl")], tmp_path / BITSANDBYTES / "own.lock")
    assert "`set promote` to nightly" not in again[1]
    shop.change("promote", alone)
    assert "nothing to do" in call("set", "refresh", shop.place, "--policy", shop.policy).out
    # stable shows no torch: each channel for itself
    assert "and the channel has none" in shop.change("promote", alone, channel="stable", code=15)

    others = Draft("torch", "2.99.0", "py3-none-any", members={"torch/__init__.py": b""}).write(tmp_path)
    update.add_wheels(shop.place / "rocm", [rocm_wheel(tmp_path), numpy_wheel(tmp_path), others], now=NOW)
    support = json.loads((shop.place / FAMILY / "support.json").read_text())
    (told,) = [release for release in support["releases"] if release["set"] == alone]
    with serve_folder(shop.place) as server:
        assert told["install"]["pip"].startswith("pip install --index-url {index}")
        assert told["install"]["pip"].endswith(f" torch=={TORCH}"), "else it would take that of PyPI"
        shown, other = f"{server.url}{FAMILY}/simple/nightly/", f"{server.url}rocm/"
        indexes = {
            "pip": ["--index-url", shown, "--extra-index-url", other],
            "uv": ["--index", shown, "--default-index", other],
        }
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        for tool in (PIP, UV):
            name = "pip" if tool is PIP else "uv"
            site = tmp_path / name
            asked = [word for word in told["install"][name].split() if "==" in word]
            process.capture_output([*tool, "--target", str(site), *indexes[name], *asked], env=env)
            installed = {path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info")}
            assert installed >= {f"bitsandbytes-{BITSANDBYTES}", f"torch-{TORCH}", f"rocm-{ROCM}"}

    told = shop.change("demote", torch, code=15)
    assert f"{alone} would stay without what it needs: {refused}" in told
    assert f"tip: take it away as well: --set {alone}" in told
    newer = shop.stage_torch("2.9.2")
    shop.change("promote", newer)
    assert f"{torch} demoted" in shop.change("demote", torch)  # the other one does as well
    assert "demoted" in shop.change("demote", newer, alone)


def numpy_wheel(place: Path) -> Path:
    return Draft("numpy", "2.0", "py3-none-any", members={"numpy/__init__.py": b""}).write(place)


@pytest.mark.contract
def test_a_view_shows_companions_that_passed_and_take_its_torch(shop: Shop) -> None:
    view = shop.place / FAMILY / "by-gfx/gfx942/nightly"

    def shows(*passing: str) -> set[str]:
        """Return what the view has when these sets passed, too."""
        for set_id in passing:
            moment = hours_ago(datetime.now(timezone.utc), 1)
            know(shop.store, wheel_set.find_set(shop.store, set_id), "gfx942", "pass", moment)
        call("set", "refresh", shop.place, "--policy", shop.policy)
        assert "nothing to do" in call("set", "refresh", shop.place, "--policy", shop.policy).out
        call("store", "fsck", shop.place)
        pages = [view / project / "index.json" for project in ("torch", "bitsandbytes")]
        listed = [json.loads(page.read_text())["files"] for page in pages if page.is_file()]
        return {"-".join(file["filename"].split("-")[:2]) for files in listed for file in files}

    torch, newer = shop.stage_torch(), shop.stage_torch("2.9.2")
    pinned, _ = shop.stage_companion(f"torch=={TORCH}")
    loose, _ = shop.stage_companion("torch<3,>=2.4", version=f"0.50.3+rocm{ROCM}")
    shop.change("promote", torch)
    shop.change("promote", pinned)
    assert shows() == set()
    assert shows(pinned) == set()  # without a torch that passed it is nothing
    assert shows(torch) == {f"torch-{TORCH}", f"bitsandbytes-{BITSANDBYTES}"}
    shop.change("promote", newer)
    assert shows(newer) == {f"torch-2.9.2+rocm{ROCM}"}  # which the companion does not take
    shop.change("promote", loose)
    assert shows(loose) == {f"torch-2.9.2+rocm{ROCM}", f"bitsandbytes-0.50.3+rocm{ROCM}"}
    shop.change("demote", newer)
    assert shows() == {f"torch-{TORCH}", f"bitsandbytes-0.50.3+rocm{ROCM}"}


def test_a_companion_is_never_seen_without_its_torch(shop: Shop) -> None:
    """Not while both come to a view or are taken away either: installers would take a torch of PyPI."""
    torch, (alone, _) = shop.stage_torch(), shop.stage_companion("torch<3,>=2.4")
    for set_id in (torch, alone):
        shop.change("promote", set_id)
        moment = hours_ago(datetime.now(timezone.utc), 1)
        know(shop.store, wheel_set.find_set(shop.store, set_id), "gfx942", "pass", moment)
    rules = policy.load_policy(shop.policy)
    now = datetime.now(timezone.utc)

    def refresher(store: Store) -> refresh.Refresher:
        return refresh.Refresher(store, rules, "ann@here", now, {})

    def look(change: Callable[[Watched], object], *, of: str) -> None:
        seen = set()
        for write, place in killed_at_writes(shop.place, change, exhaustive=True):
            present = {page.parent.name for page in (place / FAMILY / of).glob("*/index.*")}
            assert "torch" in present or "bitsandbytes" not in present, write
            seen |= present
        assert seen > {"torch", "bitsandbytes"}

    look(lambda store: refresher(store).refresh_channel(FAMILY, "nightly"), of="by-gfx/gfx942/nightly")
    refresher(shop.store).refresh_channel(FAMILY, "nightly")

    def demote(store: Store) -> object:
        return refresher(store).make_promoter(FamilyPaths(FAMILY), "nightly").demote([torch, alone])

    look(demote, of="simple/nightly")


def test_a_damaged_companion_stands_in_nobodys_way(shop: Shop) -> None:
    """Sets beside it are refreshed, and taken away; it leaves the views, for installers refuse it."""
    torch, newer = shop.stage_torch(), shop.stage_torch("2.9.2")
    alone, _ = shop.stage_companion("torch<3,>=2.4")
    for set_id in (torch, newer, alone):
        shop.change("promote", set_id)
        moment = hours_ago(datetime.now(timezone.utc), 1)
        know(shop.store, wheel_set.find_set(shop.store, set_id), "gfx942", "pass", moment)
    words = ["set", "refresh", shop.place, "--policy", shop.policy]
    view = shop.place / FAMILY / "by-gfx/gfx942/nightly"
    call(*words)
    assert {page.parent.name for page in view.glob("*/index.json")} > {"torch", "bitsandbytes"}
    (wheel,) = shop.place.glob(f"{FAMILY}/files/*/bitsandbytes-*.whl")
    metadata = wheel.with_name(f"{wheel.name}.metadata")
    content = metadata.read_bytes()
    metadata.unlink()
    metadata.write_bytes(content[:-1])
    told = f"what {alone} needs is not known"
    found = call(*words, code=15)
    assert told in found.err and "damage: other-bytes" in found.out
    assert (view / "torch").is_dir() and not (view / "bitsandbytes").exists()
    assert told in (printed := shop.change("demote", torch)) and f"{torch} demoted" in printed
    metadata.unlink()
    assert told in shop.change("demote", newer)
    assert shop.stage([wheel], shop.root / BITSANDBYTES / "own.lock")[0] == alone


def test_a_prune_keeps_companions_by_their_own_line_and_what_a_view_shows(shop: Shop) -> None:
    """One whose version looks like that of torch takes no place of it; one that nothing shows goes."""
    torch = shop.stage_torch()
    older, _ = shop.stage_companion("torch<3,>=2.4")
    newer, _ = shop.stage_companion("torch<3,>=2.4", version=f"0.50.3+rocm{ROCM}")
    alike, _ = shop.stage_companion("torch<3,>=2.4", version=f"2.9.3+rocm{ROCM}")
    later = datetime.now(timezone.utc) + timedelta(days=365)
    pruner = prune.Pruner(shop.store, policy.RetentionPolicy(keep=1), later)
    assert pruner.plan(FAMILY).kept.keys() == {torch, newer, alike}

    shop.change("promote", torch)
    shop.change("promote", older)
    for set_id in (torch, older):
        moment = hours_ago(datetime.now(timezone.utc), 1)
        know(shop.store, wheel_set.find_set(shop.store, set_id), "gfx942", "pass", moment)
    call("set", "refresh", shop.place, "--policy", shop.policy)
    actor = channel.ChannelActor("ann@here", NOW)  # killed before it comes to the views
    channel.Promoter(shop.store, FamilyPaths(FAMILY), "nightly", actor).demote([older])
    assert pruner.plan(FAMILY).kept[older] == "a view of nightly shows it"


@pytest.mark.parametrize(
    ("requires", "rocm", "lack"),
    [
        ("torch>=2.10", ROCM, f"the channel has torch {TORCH}:"),
        ("torch==2.9.1+rocm7.0.0", ROCM, f"the channel has torch {TORCH}:"),
        ("torch>=2.4", "7.2.0", f"the channel has torch {TORCH}, for ROCm {ROCM}:"),
        ("torchaudio", ROCM, "requires torchaudio, which is not in the set, and the channel has none:"),
        ("torch>=2.4; python_version >= '3.99'", ROCM, ""),
        (f"torch=={TORCH}", ROCM, ""),
    ],
)
def test_what_no_shown_set_has_is_refused(shop: Shop, requires: str, rocm: str, lack: str) -> None:
    shop.change("promote", shop.stage_torch())
    alone, printed = shop.stage_companion(requires, rocm=rocm)
    assert lack in printed and ("`set promote` to nightly" in printed) == bool(lack)
    assert lack in shop.change("promote", alone, code=15 if lack else 0)


@pytest.mark.parametrize("requires", [[], ["torch<3,>=2.9"]])
def test_what_is_compiled_against_a_torch_says_which(shop: Shop, tmp_path: Path, requires: list[str]) -> None:
    """Installers would put it beside the next torch, whose C++ is another, and so would a view."""
    shop.change("promote", shop.stage_torch())
    lock = a_lock(["pytorch_vision"])
    write_lock(tmp_path / "own.lock", lock)
    vision = drafts("2.9.3")["torchvision"]
    vision.requires = requires
    vision.members[f"{vision.folder}/sources.lock.json"] = format_lock(lock).encode()
    wheel = vision.write(tmp_path)
    alone, printed = shop.stage([wheel], tmp_path / "own.lock")
    told = f"{wheel.name} is compiled against torch, and does not require one version of it"
    assert told in printed
    assert told in shop.change("promote", alone, code=15)


def test_an_index_of_the_policy_may_have_the_torch(shop: Shop, tmp_path: Path) -> None:
    """That of another store; PyPI is none, whatever it has."""
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other")
    torch = other.stage_torch()
    other.change("promote", torch)
    alone, _ = shop.stage_companion("torch<3,>=2.4")
    with serve_folder(other.place) as server:
        for addresses, code in (
            (["https://pypi.org/simple/"], 15),
            ([f"{server.url}nothing/"], 15),
            ([f"{server.url}{FAMILY}/simple/nightly/"], 0),
        ):
            shop.policy.write_text(f"{POLICY}other_indexes: {json.dumps(addresses)}\n")
            shop.change("promote", alone, code=code)
    shop.policy.write_text(f"{POLICY}other_indexes: ['http://127.0.0.1:9/simple/']\n")
    shop.change("demote", alone)
    assert "http://127.0.0.1:9/simple/ cannot be asked for it" in shop.change("promote", alone, code=15)


@pytest.mark.contract
def test_a_companion_under_the_lock_of_its_torch_is_whole_without_that_torch(
    shop: Shop, tmp_path: Path
) -> None:
    """Its pin says which one: what that brings is not planned. What no set has is refused, as before."""
    world = World(tmp_path / "2.9.1")
    vision = [path for path in world.wheels if path.name.startswith("torchvision")]
    printed = call(
        "set", "stage", shop.place, *vision, "--lock", world.lock, "--family", FAMILY, "--json"
    ).json
    assert (printed["planned"], printed["missing"], printed["needs"]) == (1, [], [f"torch=={TORCH}"])
    torch = shop.stage([path for path in world.wheels if path not in vision], world.lock)[0]
    alone = shop.stage(vision, world.lock)[0]
    assert "requires torch==2.9.1+rocm7.1.0" in shop.change("promote", alone, code=15)
    found = call(
        "set", "gate", shop.place, "--set", torch, "--channel", "nightly", "--policy", shop.policy, code=15
    )
    assert "torchvision" in found.out  # planned by the lock, and nobody pins it
    whole = drafts()["torch"].write(tmp_path)
    told = call("set", "stage", shop.place, whole, "--lock", world.lock, "--family", FAMILY, code=15).err
    assert f"it requires triton==3.5.0+rocm{ROCM}, which is not in the set" in told
