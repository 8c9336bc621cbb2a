"""Views of a channel to which sets of several platforms and torch lines come, asked by real installers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import call
from crash import Killed, Watched, sample
from documents import policy
from pythons import plan_by_pip, plan_by_uv
from servers import serve_folder
from stores import FAMILY_OF_NIGHTS as FAMILY
from stores import GPUS, NOW, TAGS, Night, hours_ago, know, rocm_wheel

from rocm_wheels.index import update
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter
from rocm_wheels.release.refresh import Refresher, RefreshResult
from rocm_wheels.release.verdict import RuleResult, Verdict
from rocm_wheels.stores import store
from rocm_wheels.stores.folder import FolderStore

PATHS = store_paths.FamilyPaths(FAMILY)
RULES = "{signed: false, rules: {audit: {fresh: 14d}}}"
POLICY = f"channels: {{nightly: {RULES}, prerelease: {RULES}, stable: {RULES}}}"
MOMENT = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
GFX, OTHER = GPUS[0], GPUS[1]
OLDER, NEWEST = "2.12.1", "2.15.0a0"
SYSTEMS = {"linux": "x86_64-unknown-linux-gnu", "windows": "x86_64-pc-windows-msvc"}
PLATFORMS = {"linux": "linux_x86_64", "windows": "win_amd64"}


class Shop:
    """A store with a channel, which a server gives out."""

    def __init__(self, folder: Path, url: str, channel: str = "nightly") -> None:
        self.folder, self.channel, self.root = folder, channel, f"{url}{folder.name}/"
        self.store: store.Store = FolderStore(folder)
        update.add_wheels(folder / "rocm", [rocm_wheel(folder / "made")], now=NOW)

    def night(self, *args: Any, good: Sequence[str] = GPUS, **more: Any) -> wheel_set.SetDocument:
        """Stage a set, tested on these targets, and show it."""
        night = Night(*args, **more)
        document = night.stage(self.store, self.folder / "made")
        for gfx in good:
            know(self.store, document, gfx, "pass", hours_ago(MOMENT, 5))
        self.promote(document)
        return document

    def promote(self, document: wheel_set.SetDocument) -> None:
        passed = Verdict("x", FAMILY, self.channel, MOMENT, (RuleResult("hashes", "pass"),))
        actor = ChannelActor("ann@here", NOW)
        Promoter(self.store, PATHS, self.channel, actor).promote(document, lambda: passed)

    def refresh(self) -> RefreshResult:
        refresher = Refresher(self.store, policy(POLICY), "bob@here", MOMENT, {})
        done = refresher.refresh_channel(FAMILY, self.channel)
        assert done is not None
        refresher.refresh_support()
        return done

    def shown(self, gfx: str = GFX) -> set[str]:
        """Return the versions of torch on the pages of a view."""
        page = f"{PATHS.view_pages(gfx, self.channel)}/torch/index.json"
        if self.store.head(page) is None:
            return set()
        files = json.loads(self.store.read(page).content)["files"]
        return {f"{one['filename'].split('-')[1].split('+')[0]} {one['filename'][-9:-4]}" for one in files}

    def get(self, platform: str, *projects: str, tool: str = "uv", gfx: str = GFX) -> dict[str, str]:
        """Return what a real installer takes from the view on a platform, without the local parts."""
        words = ["--index-url", f"{self.root}{PATHS.view_pages(gfx, self.channel)}/"]
        words += ["--extra-index-url", f"{self.root}rocm/", "--target", str(self.folder / "none")]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "NO_PROXY": "*", "no_proxy": "*"}
        env["PIP_CONFIG_FILE"] = os.devnull  # a machine's constraints are not those of the test
        wanted = list(projects or ("torch", "torchvision"))
        if tool == "pip":
            of_platform = ["--platform", PLATFORMS[platform], "--only-binary", ":all:"]
            found = plan_by_pip([*words, *of_platform, *wanted], env)
        else:
            found = plan_by_uv([*words, "--python-platform", SYSTEMS[platform], *wanted], env)
        return {name: version.split("+")[0] for name, version in found.items() if name in wanted}

    def support(self, path: str = PATHS.support_document) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.store.read(path).content)
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    root = tmp_path_factory.mktemp("shops")
    with serve_folder(root) as found:
        yield root, found.url


@pytest.fixture
def open_shop(server: tuple[Path, str], tmp_path: Path) -> Any:
    root, url = server

    def shop(**more: Any) -> Shop:
        return Shop(root / tmp_path.name, url, **more)

    return shop


@pytest.mark.contract_slow
def test_each_platform_has_the_newest_torch_that_is_good_there(open_shop: Any) -> None:
    """A night: the newest line first, then older ones, then those for Windows, one of which fails."""
    shop = open_shop()
    linux = shop.night(NEWEST, 11, line="nightly")
    assert [*shop.refresh().views] == [(gfx, None, linux.id, "linux") for gfx in GPUS]
    shop.night("2.14.0", 11, line="2.14")
    shop.night(OLDER, 12, line="2.12")  # made and shown last: no reason to go back
    assert shop.refresh().views == ()
    windows = shop.night("2.14.0", 12, "windows", line="2.14", good=[GFX])
    shop.night(OLDER, 13, "windows", line="2.12", good=[])
    moved = shop.refresh().views
    assert moved == ((GFX, None, windows.id, "windows"),)
    assert shop.shown() == {"2.15.0a0 86_64", "2.14.0 amd64"} == {f"{NEWEST} 86_64", "2.14.0 amd64"}
    for tool in ("uv", "pip"):
        assert shop.get("linux", tool=tool) == {"torch": NEWEST, "torchvision": "0.15.0a0"}
        assert shop.get("windows", tool=tool) == {"torch": "2.14.0", "torchvision": "0.14.0"}
        assert shop.get("linux", "torch", tool=tool) == {"torch": NEWEST}
        assert shop.get("windows", "torch", tool=tool) == {"torch": "2.14.0"}
    assert shop.shown(OTHER) == {f"{NEWEST} 86_64"} and shop.get("windows", gfx=OTHER) == {}
    # the next night of the newest line is bad on one GPU: there the night before stays
    bad = shop.night(NEWEST, 13, line="nightly", good=[OTHER])
    know(shop.store, bad, GFX, "fail", hours_ago(MOMENT, 4))
    moved = shop.refresh().views
    assert moved == ((OTHER, linux.id, bad.id, "linux"),)
    know(shop.store, linux, GFX, "fail", hours_ago(MOMENT, 3))  # and that turns out to be bad: 2.14 is next
    shop.refresh()
    assert shop.get("linux") == {"torch": "2.14.0", "torchvision": "0.14.0"}
    know(shop.store, windows, GFX, "fail", hours_ago(MOMENT, 3))
    assert shop.refresh().views == ((GFX, windows.id, None, "windows"),)
    assert shop.get("windows") == {} and shop.shown() == {"2.14.0 86_64"}
    before = {path: path.read_bytes() for path in shop.folder.rglob("*.json")}
    assert shop.refresh().views == ()
    assert before == {path: path.read_bytes() for path in shop.folder.rglob("*.json")}


@pytest.mark.contract
def test_support_json_says_what_each_platform_gets(open_shop: Any) -> None:
    shop = open_shop()
    windows = shop.night("2.14.0", 10, "windows")
    shop.refresh()
    (view,) = [one for one in shop.support()["views"] if one["gfx"] == GFX]
    assert (view["set"], [one["os"] for one in view["sets"]]) == (windows.id, ["windows"])
    linux = shop.night("2.13.0", 11)
    old = shop.night(OLDER, 12)
    shop.refresh()
    for path in (PATHS.support_document, "support.json"):
        said = shop.support(path)
        (view,) = [one for one in said["views"] if one["gfx"] == GFX]
        (channel,) = said["channels"]
        assert channel["current"] == old.id  # the one that came last
        for one in (view, channel):
            assert [(its["os"], its["set"], its["version"]) for its in one["sets"]] == [
                ("linux", linux.id, linux.version),
                ("windows", windows.id, windows.version),
            ]
            assert one["install"] == one["sets"][0]["install"]
            assert one["sets"][1]["install"]["uv"].endswith(f" torch=={windows.version}")
        assert (view["set"], view["version"]) == (linux.id, linux.version)
        assert [one["set"] for one in said["releases"]] == [old.id, linux.id, windows.id]  # as they were made


@pytest.mark.contract
@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ("nightly", NEWEST),
        pytest.param("prerelease", "2.14.0", marks=pytest.mark.exhaustive),  # as stable
        ("stable", "2.14.0"),
    ],
)
def test_a_channel_of_finals_takes_a_pre_release_as_installers_do(
    channel: str, expected: str, open_shop: Any
) -> None:
    shop = open_shop(channel=channel)
    shop.night("2.14.0", 11, good=[GFX])
    shop.night(NEWEST, 10)
    shop.refresh()
    assert shop.get("linux")["torch"] == expected
    assert shop.get("linux", gfx=OTHER)["torch"] == NEWEST  # nothing else is good there
    words = ["--index-url", f"{shop.root}{PATHS.channel_pages(channel)}/", "torch"]
    words += ["--extra-index-url", f"{shop.root}rocm/", "--target", str(shop.folder / "none")]
    words += ["--prerelease", "allow"] if channel == "nightly" else []
    found = plan_by_uv(words, {"NO_PROXY": "*"})  # what uv takes from the whole channel
    assert found["torch"].startswith(f"{expected}+")


def test_pins_say_whose_a_wheel_for_every_platform_is(open_shop: Any) -> None:
    shop = open_shop()
    shop.night("2.14.0", 11, vision=TAGS["any"])
    shop.night("2.13.0", 12, "windows", vision=TAGS["any"])
    shop.refresh()
    for tool in ("uv", "pip"):  # newer on Linux
        assert shop.get("windows", tool=tool) == {"torch": "2.13.0", "torchvision": "0.13.0"}
        assert shop.get("linux", tool=tool) == {"torch": "2.14.0", "torchvision": "0.14.0"}


@pytest.mark.contract
@pytest.mark.parametrize(("platform", "torch"), [("linux", NEWEST), ("windows", "2.14.0")])
def test_our_own_choice_of_such_a_view(platform: str, torch: str, open_shop: Any) -> None:
    shop = open_shop()
    shop.night("2.14.0", 11, "windows")
    shop.night(NEWEST, 12)
    shop.refresh()
    where = ["--index", str(shop.folder / PATHS.view_pages(GFX, "nightly")), "--platform", platform]
    told = call("choose", "torch", *where, "--gfx", GFX, "--rocm", "none", "--json").out
    assert f"torch-{torch}+night1" in told


@pytest.mark.parametrize("where", [[], ["--channel", "nightly"]])
def test_what_views_show_passed_and_is_listed(where: list[str], open_shop: Any) -> None:
    shop = open_shop()
    linux, windows = shop.night("2.14.0", 11), shop.night("2.13.0", 11, "windows", good=[GFX])
    failed = shop.night(NEWEST, 12, good=[])
    know(shop.store, failed, GFX, "fail", hours_ago(MOMENT, 4))
    older, _ = shop.night(OLDER, 13), shop.night(OLDER, 13, "windows", good=[])
    shop.refresh()
    (shop.folder / "policy.yaml").write_text(POLICY)
    rules = ["--policy", str(shop.folder / "policy.yaml"), "--json"]
    views = {one["gfx"]: {its["set"] for its in one["sets"]} for one in shop.support()["views"]}
    for gfx, passed in ((GFX, {linux.id, windows.id, older.id}), (OTHER, {linux.id, older.id})):
        document = call("set", "list", shop.folder, "--passed", gfx, *where, *rules).json
        listed = document["channels"][0]["sets"] if where else document["sets"]
        assert {one["set" if where else "id"] for one in listed} == passed > views[gfx]


def test_while_one_platform_gets_another_set_the_other_keeps_its_own(
    open_shop: Any, tmp_path: Path, exhaustive: bool
) -> None:
    """Pages change one after the other: killed after each write that people see, and finished."""
    shop = open_shop()
    shop.night("2.13.0", 11), shop.night("2.12.1", 11, "windows")
    shop.refresh()
    shop.night("2.14.0", 12)
    shutil.copytree(shop.folder, tmp_path / "kept")

    def again(at: str = "") -> Watched:
        shutil.rmtree(shop.folder)
        shutil.copytree(tmp_path / "kept", shop.folder)
        shop.store = Watched(FolderStore(shop.folder), at=at, fault="after" if at else "")
        return shop.store

    clean = again()
    assert shop.refresh().views == tuple((gfx, *_moved(shop), "linux") for gfx in GPUS)
    seen = []
    pages = [one for one in clean.writes if f" {PATHS.view_pages(GFX, 'nightly')}/" in one]
    for write in sample(pages, exhaustive, 5):
        again(write)
        with pytest.raises(Killed):
            shop.refresh()
        assert shop.get("windows") == {"torch": "2.12.1", "torchvision": "0.12.1"}, write
        seen.append(shop.get("linux"))
        shop.store = FolderStore(shop.folder)
        assert (GFX, *_moved(shop), "linux") in shop.refresh().views
        assert shop.shown() == {"2.14.0 86_64", "2.12.1 amd64"}
    old, new = ({"torch": f"2.{n}.0", "torchvision": f"0.{n}.0"} for n in (13, 14))
    assert len(seen) > 2 and seen == [old] * seen.count(old) + [new] * seen.count(new)
    assert old in seen and new in seen


def _moved(shop: Shop) -> tuple[str, str]:
    """Return the sets for Linux, the older one first."""
    names = sorted(one for one in shop.store.folders(PATHS.sets_folder) if "2.12" not in one)
    return names[0], names[1]
