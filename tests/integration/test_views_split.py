"""A plain `pip install torch` from views of a split set: host and device wheels, by real installers."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest
import stores
from commands import Ended, call
from packaging.utils import canonicalize_name
from pythons import PIP, QUICK, UV, Environment, make_environment, plan_by_uv
from servers import serve_folder
from stores import ROCM

from rocm_wheels.index import update
from rocm_wheels.release import wheel_set
from rocm_wheels.release.policy import RetentionPolicy
from rocm_wheels.release.prune import Pruner
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores import folder

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="links ELF libraries"
)
FAMILY, GPUS, LIST = "multi-arch", ("gfx1100", "gfx942"), "datacenter"
PATHS, MOMENT = FamilyPaths(FAMILY), datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
RULES = "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}\n"
V1, V2 = (f"2.9.{number}+rocm{ROCM}" for number in (1, 2))


class SplitWorld(stores.SplitWorld):
    targets: ClassVar = GPUS


class Shop:
    """A store of split sets for two GPUs, which a server gives out, with a channel, views and a list."""

    def __init__(self, root: Path, url: str, worlds: list[stores.World]) -> None:
        self.folder, self.url = root, url
        self.store, self.policy = folder.FolderStore(root / "store"), root / "policy.yaml"
        self.policy.write_text(f"{RULES}views: {{{LIST}: [gfx942, gfx1100]}}\n")
        needed = [stores.rocm_wheel(root / "made"), *stores.device_packages(root / "made", GPUS)]
        update.add_wheels(root / "rocm", needed, now=stores.NOW)
        self.worlds = worlds

    def call(self, *words: object, code: int = 0) -> Ended:
        return call("set", words[0], self.folder / "store", *words[1:], "--policy", self.policy, code=code)

    def release(self, world: stores.World, *, good: tuple[str, ...] = GPUS) -> wheel_set.SetDocument:
        """Stage a set, test it on GPUs, and show it."""
        before = set(wheel_set.list_set_ids(self.store, FAMILY)) if self.store.folders("") else set()
        call(*world.words(self.folder / "store", "--family", FAMILY))
        (new,) = set(wheel_set.list_set_ids(self.store, FAMILY)) - before
        document, now = wheel_set.find_set(self.store, new), datetime.now(timezone.utc)
        stores.verified(self.store, document, now - timedelta(hours=1))
        for gfx in good:
            stores.know(self.store, document, gfx, "pass", now - timedelta(hours=1))
        self.call("promote", "--set", new, "--channel", "nightly")
        return document

    def view(self, name: str) -> str:
        return f"{self.url}store/{PATHS.view_pages(name, 'nightly')}/"

    @property
    def channel(self) -> str:
        return f"{self.url}store/{PATHS.channel_pages('nightly')}/"

    def install(self, place: Environment, tool: str, index: str, *words: str) -> None:
        """Install with a real installer, from an index and that of ROCm's packages."""
        indexes = ["--index-url", index, "--extra-index-url", f"{self.url}rocm/"]
        of_place = ["--python", str(place.python)]
        start = [*UV[:-2], *of_place]
        if tool == "pip":
            start = [*PIP[:3], *of_place, "install", *QUICK[:-1]]
        run(*start, *indexes, *words)


def run(*words: str | Path, cwd: Path | None = None) -> str:
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_PROXY": "*", "no_proxy": "*"}
    env = {**kept, "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kernels(place: Environment) -> list[str]:
    """Return the archives of device code that an environment has."""
    return sorted(path.name for path in (place.site / "torch" / ".kpack").glob("*"))


def named(place: Environment) -> dict[str, str]:
    """Return what an environment has of torch, by project."""
    found = {str(canonicalize_name(name)): version for name, version in place.packages().items()}
    return {name: version for name, version in found.items() if "torch" in name}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[stores.World]:
    folder = tmp_path_factory.mktemp("worlds")
    first = SplitWorld(folder / "1")
    return [first, first.next(folder / "2")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, worlds: list[stores.World]) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("shop")
    with serve_folder(root) as server:
        made = Shop(root, server.url, worlds)
        for world in worlds:
            made.release(world)
        yield made


@pytest.fixture
def empty_shop(tmp_path: Path, worlds: list[stores.World]) -> Iterator[Shop]:
    with serve_folder(tmp_path) as server:
        yield Shop(tmp_path, server.url, worlds)


@pytest.mark.contract
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_plain_torch_brings_host_and_device_wheels(tool: str, shop: Shop, tmp_path: Path) -> None:
    place = make_environment(tmp_path / "view")
    shop.install(place, tool, shop.view("gfx942"), "torchvision")
    parts = {"torch": V2, "amd-torch-device": V2, "amd-torch-device-gfx942": V2}
    assert named(place) == {**parts, "torchvision": f"0.24.2+rocm{ROCM}"}
    assert kernels(place) == ["torch_gfx942.kpack"]
    place.uv("check")
    # the channel, as before
    place = make_environment(tmp_path / "channel")
    shop.install(place, tool, shop.channel, "torch")
    assert named(place) == {"torch": V2, "amd-torch-device": V2} and kernels(place) == []
    shop.install(place, tool, shop.channel, "torch[device-gfx1100]")
    assert kernels(place) == ["torch_gfx1100.kpack"]
    # a list of targets
    place = make_environment(tmp_path / "list")
    shop.install(place, tool, shop.view(LIST), f"torch=={V2}")
    assert kernels(place) == ["torch_gfx1100.kpack", "torch_gfx942.kpack"]
    assert set(named(place).values()) == {V2}
    run(*PIP[:3], "--python", place.python, "check")


@pytest.mark.contract
def test_metadata_beside_a_selector_and_inside_it_agree_and_the_host_is_stored_once(shop: Shop) -> None:
    for view, tag in (("gfx942", "1gfx942"), (LIST, "1gfx1100.942")):
        page = f"{shop.view(view)}amd-torch-device/index.json"
        (file,) = json.loads(urlopen(page).read())["files"]
        assert file["filename"] == f"amd_torch_device-{V2}-{tag}-{stores.TAG}.whl"
        url = urljoin(page, file["url"])
        content, beside = urlopen(url).read(), urlopen(f"{url}.metadata").read()
        assert hashlib.sha256(content).hexdigest() == file["hashes"]["sha256"]
        assert hashlib.sha256(beside).hexdigest() == file["core-metadata"]["sha256"]
        wheel = shop.folder / file["filename"]
        wheel.write_bytes(content)
        with zipfile.ZipFile(wheel) as archive:
            assert archive.read(f"amd_torch_device-{V2}.dist-info/METADATA") == beside
        call("audit", wheel)
        call("index", "verify", shop.view(view))
    assert len(list((shop.folder / "store").rglob("torch-2*.whl"))) == len(shop.worlds)


@pytest.mark.contract
def test_a_lock_holds_when_the_view_is_at_another_set(empty_shop: Shop) -> None:
    """Its URLs are those of files of sets, which stay; and what is old is known to a check of the store."""
    shop, root = empty_shop, empty_shop.folder
    first = shop.release(shop.worlds[0])
    project = root / "project"
    project.mkdir()
    version = ".".join(map(str, sys.version_info[:2]))
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "x"\nversion = "1"\nrequires-python = "=={version}.*"\n'
        'dependencies = ["torch", "torchvision"]\n'
        "[tool.uv]\nenvironments = [\"sys_platform == 'linux'\"]\n"
        f'[[tool.uv.index]]\nurl = "{shop.view("gfx942")}"\ndefault = true\n'
        f'[[tool.uv.index]]\nurl = "{shop.url}rocm/"\n'
    )
    uv = UV[0]
    run(uv, "lock", "--no-cache", "--python", sys.executable, cwd=project)
    lock = (project / "uv.lock").read_text()
    assert f"selectors/amd_torch_device-{V1.replace('+', '%2B')}-1gfx942-" in lock
    upgraded = make_environment(root / "upgraded")
    shop.install(upgraded, "uv", shop.view("gfx942"), "torch")
    shop.release(shop.worlds[1])
    shop.install(upgraded, "uv", shop.view("gfx942"), "-U", "torch")
    assert set(named(upgraded).values()) == {V2} and kernels(upgraded) == ["torch_gfx942.kpack"]
    assert V2 in urlopen(f"{shop.view('gfx942')}torch/index.json").read().decode()
    run(uv, "sync", "--frozen", "--no-cache", "--python", sys.executable, cwd=project)
    place = Environment(project / ".venv")
    assert kernels(place) == ["torch_gfx942.kpack"] and set(named(place).values()) > {V1}
    call("store", "fsck", root / "store", "--hash")
    # lost and altered selectors are damage that follows from documents; others are nobody's
    earlier, later = (
        shop.folder / "store" / PATHS.selectors_folder(document.id)
        for document in (first, wheel_set.find_set(shop.store, shop.worlds[1].version))
    )
    for selectors in (earlier, later):
        wheel, text = sorted(path for path in selectors.iterdir() if "1gfx942-" in path.name)
        content = wheel.read_bytes()
        wheel.write_bytes(content[:-1])
        text.unlink()
        call("store", "fsck", root / "store", code=15)
        repaired = call("store", "fsck", root / "store", "--repair").out
        assert repaired.count(f"repaired: wrong-page: {PATHS.sets_folder}/{selectors.parent.name}/") == 2
        assert wheel.read_bytes() == content and text.exists()
        call("store", "fsck", root / "store")
    nobodys = earlier / "amd_torch_device-1-1gfx9-py3-none-any.whl"
    nobodys.write_bytes(b"")
    assert f"/{nobodys.name}: nothing names it" in call("store", "fsck", root / "store").out
    # of a document that was edited nothing follows, and so nobody is told to take its selectors away
    path = root / "store" / PATHS.set_document(first.id)
    intact = path.read_bytes()
    path.write_bytes(first.model_copy(update={"planned": first.planned[:1]}).to_json())
    told = call("store", "fsck", root / "store", code=15)
    assert "a channel says so" in told.out + told.err and "selectors/" not in told.out
    path.write_bytes(intact)
    # they go with their set
    shop.call("demote", "--channel", "nightly", "--set", first.id)
    hour = timedelta(hours=1)
    retention = RetentionPolicy(keep=1, keep_for=hour, keep_passed_for=hour, unfinished_for=hour)
    Pruner(shop.store, retention, datetime.now(timezone.utc) + timedelta(days=1)).prune(FAMILY)
    assert not list(earlier.glob("*")) and list(later.glob("*"))
    call("store", "fsck", root / "store")


@pytest.mark.contract
def test_a_list_of_targets_has_a_view_while_the_policy_names_it(empty_shop: Shop) -> None:
    """The newest set that passed on all of them; without the name its pages go, and nothing else does."""
    shop, root = empty_shop, empty_shop.folder
    first = shop.release(shop.worlds[0])
    shop.release(shop.worlds[1], good=("gfx942",))

    def views() -> dict[str, Any]:
        listed = json.loads((root / "store" / "support.json").read_text())["views"]
        return {view["gfx"]: (view["targets"], view["version"]) for view in listed}

    # the very words that it gives to people
    rocm = f"other_indexes: ['{shop.url}rocm/']\n"
    shop.policy.write_text(f"{shop.policy.read_text()}{rocm}")
    shop.call("refresh", "--public-url", f"{shop.url}store")
    listed = json.loads((root / "store" / "support.json").read_text())["views"]
    (words,) = (view["install"]["uv"] for view in listed if view["gfx"] == LIST)
    planned = plan_by_uv([*shlex.split(words)[3:], "--target", str(root / "none")], os.environ)
    assert {f"amd-torch-device-{gfx}" for gfx in GPUS} < set(planned) and planned["torch"] == V1
    single = {"gfx942": (["gfx942"], V2), "gfx1100": (["gfx1100"], V1)}
    assert views() == {**single, LIST: ([*GPUS], V1)}
    shop.policy.write_text(f"{RULES}views: {{{LIST}: [gfx942]}}\n")
    told = shop.call("refresh").out
    assert f"view of {LIST} in nightly of {FAMILY}: 2.9.2" in told and f"(it was {first.id})" in told
    assert views() == {**single, LIST: (["gfx942"], V2)}
    shop.policy.write_text(RULES)
    shop.call("refresh")
    assert views() == single and not list(shop.store.listing(PATHS.view_pages(LIST, "nightly")))
    call("store", "fsck", root / "store", "--hash")


@pytest.mark.parametrize(
    ("views", "says"),
    [
        ("{datacenter: [gfx9420]}", "there is no GPU target gfx9420; did you mean gfx942?"),
        ("{gfx942: [gfx942]}", "with gfx begin those of targets"),
        ("{../x: [gfx942]}", "a name such as datacenter"),
        ("{datacenter: []}", "it must name a GPU target"),
    ],
)
def test_a_list_that_no_view_can_be_made_of_is_refused(views: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(f"{RULES}views: {views}\n")
    refused = call("set", "refresh", tmp_path / "store", "--policy", tmp_path / "policy.yaml", code=2)
    assert says in refused.err and "policy.yaml:2" in refused.err
