"""``rocm-wheels set dashboard``: pages of what came of a day and of a store, and who is told of failures.

Of three families one set is promoted, one fails anew, and one waits for a label that is dead; a GPU gets
lost, and a test is flaky.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from github_server import TOKEN, Github, github
from html_pages import HOSTILE, Page
from judged_sets import a_set, put_set, said, wheel
from nights import Night, know, verified

from rocm_wheels.cli import dashboard as dashboard_cli
from rocm_wheels.cli.boundary import run_command
from rocm_wheels.cli.main import cli
from rocm_wheels.core import FolderStore
from rocm_wheels.models import Lock, LockedProject
from rocm_wheels.release import (
    FamilyPaths,
    SetDocument,
    SetLock,
    add_evidence,
    load_layout,
    make_set_id,
    update_listing,
)
from rocm_wheels.sources import format_lock
from rocm_wheels.wheels import BUILD_TYPE, STEP_TYPE, format_statement

_ = github  # a fixture
LAYOUT = load_layout()
FAILING, DEAD, SHOWN = "gfx103X-all", "gfx950-dcgpu", "gfx110X-all"
TEST = "test_linalg.py::TestLinalg::test_svd"
DAY = "2026-11-22"
POLICY = """
channels:
  nightly: {rules: {verify: {fresh: 14d}, smoke: {fresh: 7d, targets: one, pythons: one}}}
"""


def moment(day: int, hour: int = 6) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=timezone.utc)


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", *names, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repaired(name: str, sha256: str, statement: bytes) -> bytes:
    """Return the statement of a step, with that of the wheel of before in it."""
    before = {"name": name, "digest": {"sha256": sha256}}
    inside = {
        "name": f"{name}.intoto.json",
        "digest": {"sha256": hashlib.sha256(statement).hexdigest()},
        "content": base64.b64encode(statement).decode(),
    }
    definition = {
        "buildType": STEP_TYPE,
        "externalParameters": {},
        "resolvedDependencies": [before, inside],
    }
    details = {"builder": {"id": "urn:test"}}
    return format_statement(name, sha256, {"buildDefinition": definition, "runDetails": details})


@dataclass
class World:
    """A store with two nights, and the repository that their sets are from."""

    folder: Path
    commits: list[str] = field(default_factory=list)
    sets: dict[tuple[str, int], SetDocument] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = FolderStore(self.folder / "store")
        self.source = self.folder / "pytorch"
        self.source.mkdir()
        git(self.source, "init", "-q")
        for subject in ("Begin", "Speed up svd", f"Mend {HOSTILE[:30]}"):
            git(self.source, "commit", "-q", "--allow-empty", "-m", subject)
            self.commits.append(git(self.source, "rev-parse", "HEAD"))
        (self.folder / "policy.yaml").write_text(POLICY)
        for family, gfx in ((FAILING, ("gfx1030", "gfx1031")), (DEAD, ("gfx950",))):
            for day, commit in ((21, self.commits[0]), (22, self.commits[-1])):
                self.put(family, gfx, day, commit)

    def put(self, family: str, gfx: Sequence[str], day: int, commit: str) -> None:
        """Stage a set; of the last night of one family a wheel is missing, and statements say times."""
        pytorch = LockedProject(origin=str(self.source), ref="main", why="test", commit=commit)
        lock = format_lock(Lock(rocm="7.1.0", targets=tuple(gfx), projects={"pytorch": pytorch})).encode()
        digest = hashlib.sha256(lock).hexdigest()
        statements: dict[str, bytes] = {}
        files = []
        for python in ("311", "312"):
            file = wheel("torch", python, gfx)
            details = {
                "builder": {"id": "urn:test"},
                "metadata": {"startedOn": "2026-11-22T01:00:00Z", "finishedOn": "2026-11-22T02:10:00Z"},
                "byproducts": [
                    {"name": "compiler-cache", "annotations": {"hits": 30, "cacheable": 40}}
                ],
            }  # fmt: skip
            definition = {"buildType": BUILD_TYPE, "externalParameters": {}, "resolvedDependencies": []}
            built = {"buildDefinition": definition, "runDetails": details}
            statement = format_statement(file.name, file.sha256, built)
            if python == "312":  # it was repaired after it was built
                statement = repaired(file.name, file.sha256, statement)
            statements[file.name] = statement
            files.append(file.model_copy(update={"statement": hashlib.sha256(statement).hexdigest()}))
        model = a_set(*files)
        own = make_set_id(model.version, ((f.name, f.sha256) for f in files), digest)
        document = model.model_copy(
            update={
                "id": own,
                "family": family,
                "created": f"2026-11-{day:02}T03:00:00Z",
                "lock": SetLock(digest=digest, path="sources.lock.json"),
            }
        )
        put_set(self.store, document)
        paths = FamilyPaths(LAYOUT, family)
        self.store.create(f"{paths.set_folder(own)}/sources.lock.json", lock)
        for name, statement in statements.items():
            self.store.create(paths.set_statement(own, name), statement)
        update_listing(self.store, paths)
        self.sets[family, day] = document

    def know(self, family: str, day: int, kind: str, outcome: str, **more: Any) -> None:
        """Write a result down."""
        document, when = self.sets[family, day], moment(day, more.pop("hour", 6))
        result = said(kind, outcome, document=document, when=when, added=when, **more)
        add_evidence(self.store, LAYOUT, document, result.evidence)

    def fail(self, day: int = 22, *, name: str = TEST, **more: Any) -> None:
        """Write down that a test fails on one GPU and Python."""
        more = {
            "gfx": "gfx1030",
            "python": "312",
            "failed": (name,),
            "counts": {"passed": 9, "failed": 1},
            **more,
        }
        self.know(FAILING, day, "smoke", "fail", **more)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(dashboard_cli, "current_time", lambda: moment(22, 12))
    return World(tmp_path)


@dataclass
class Make:
    """Runs the command; ``printed`` is what it said."""

    world: World
    capsys: pytest.CaptureFixture[str]
    printed: str = ""

    def __call__(self, *words: str, code: int = 0) -> Any:
        """Return ``dashboard.json``."""
        folder = self.world.folder / "pages"
        options = ["-o", str(folder), "--policy", str(self.world.folder / "policy.yaml")]
        options += ["--source-dir", str(self.world.folder)]
        assert run_command(cli, ["set", "dashboard", self.world.store.url, *options, *words]) == code
        both = self.capsys.readouterr()
        self.printed = both.out + both.err
        path = folder / "dashboard.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def make(world: World, capsys: pytest.CaptureFixture[str]) -> Make:
    return Make(world, capsys)


def read_pages(world: World) -> dict[str, Page]:
    """Read the pages, and require what holds for every page: whole, safe, nothing from outside."""
    pages = {}
    for path in sorted((world.folder / "pages").glob("*.html")):
        page = pages[path.name] = Page(path.read_text())
        assert (page.open, page.wrong) == ([], [])
        assert not {"script", "img", "link", "iframe", "object", "base", "form"} & page.tags.keys()
        assert [name for name, count in page.ids.items() if count > 1] == []
        for tag, name, value in page.attributes:
            assert not name.startswith("on") and name != "style", (tag, name)
            if name == "href":
                inside = value.removeprefix("#") in page.ids or (path.parent / value).is_file()
                assert inside or value.startswith("https://"), value
    return pages


def cells_of(document: Any, family: str) -> dict[str, str]:
    (row,) = [row for row in document["rows"] if row["family"] == family]
    return {cell["python"]: cell["state"] for cell in row["cells"]}


def test_a_night_is_told_as_it_was(world: World, make: Make) -> None:
    """What failed and is new, what nobody tested and why, the commits between, times; nothing escapes."""
    night = Night("2.10.0", 22, family=SHOWN)
    promoted = night.stage(world.store, world.folder / "wheels")
    verified(world.store, promoted, moment(22))
    know(world.store, promoted, "gfx1100", "pass", moment(22))
    words = ["set", "promote", world.store.url, "--set", promoted.id, "--channel", "nightly"]
    assert run_command(cli, [*words, "--policy", str(world.folder / "policy.yaml")]) == 0
    world.fail(21, name="test_old")
    world.fail(
        22, name=HOSTILE.replace("\x1b", "").replace("\x00", "").replace("\ud800", ""), log="https://ci/1"
    )
    world.know(FAILING, 22, "smoke", "pass", gfx="gfx1031", python="311")
    world.know(FAILING, 22, "verify", "pass")
    document = make("--date", DAY, "--summary", str(world.folder / "summary.md"))
    assert cells_of(document, FAILING) == {"3.11": "held", "3.12": "failed"}
    assert cells_of(document, DEAD) == {"3.11": "untested", "3.12": "untested"}
    assert [*cells_of(document, SHOWN).values()] == ["promoted"]
    (dead,) = [row for row in document["rows"] if row["family"] == DEAD]
    assert "no result came from" in dead["cells"][0]["why"]
    times = [(item["python"], item["seconds"], item["cache"]) for item in dead["times"]]
    assert times == [("3.11", 4200, "30 of 40"), ("3.12", 4200, "30 of 40")]
    (failure,) = document["failures"]
    assert failure["new"] and (failure["gfx"], failure["pythons"]) == (["gfx1030"], ["3.12"])
    (change,) = document["changes"]
    assert {item["family"] for item in change["sets"]} == {FAILING, DEAD}
    history = change["diff"]["projects"]["pytorch"]["history"]
    assert [commit["commit"] for commit in history["added"]["commits"]] == world.commits[:0:-1]
    pages = read_pages(world)
    text = pages["night.html"].text
    assert all(words in text for words in ("Speed up svd", "<script>alert(1)</script>", "1 h 10 min"))
    landing = pages["index.html"].text
    assert f"torch=={night.version}" in landing and "Not signed." in landing and SHOWN in landing
    assert FAILING not in landing
    summary = (world.folder / "summary.md").read_text()
    assert "1 failed" in summary and "**new**" in summary and "Speed up svd" in summary
    first = {path.name: path.read_bytes() for path in (world.folder / "pages").iterdir()}
    make("--date", DAY)
    assert {path.name: path.read_bytes() for path in (world.folder / "pages").iterdir()} == first
    # a week later nothing was built, and each line says so
    later = make("--date", "2026-11-29", "--no-history")
    assert {row["set"] for row in later["rows"]} == {""} and later["states"] == {"missing": 3}


def test_flaky_tests_and_lost_gpus_are_named(world: World, make: Make) -> None:
    """A cell whose GPU was lost is lost; only tests that had failed before are failures to be told of."""
    flaky = {"counts": {"passed": 3, "flaky": 2}, "flaky": (TEST, "test_b")}
    world.know(FAILING, 22, "smoke", "pass", gfx="gfx1030", python="311", **flaky)
    lost = {"gfx": "gfx1031", "python": "312", "detail": "lost GPU 1: it hangs"}
    world.know(FAILING, 22, "tests", "lost", **lost, failed=(TEST,))
    document = make("--date", DAY, "--no-history")
    assert cells_of(document, FAILING) == {"3.11": "held", "3.12": "lost"}
    flaky = [(item["what"], item["gfx"]) for item in document["flaky"]]
    assert flaky == [(f"smoke: {TEST}", "gfx1030"), ("smoke: test_b", "gfx1030")]
    assert [(item["gfx"], item["pythons"]) for item in document["lost"]] == [("gfx1031", ["3.12"])]
    assert [item["name"] for item in document["failures"]] == [TEST]
    text = read_pages(world)["night.html"].text
    assert TEST in text and "GPU 1: it hangs" in text


TELL = ("--no-history", "--notify", "github:rocm/wheels")


def test_a_failure_is_one_issue_until_it_passes(
    world: World, make: Make, github: Github, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened once, however often it is told; more GPUs are a comment; nothing is closed by not testing."""
    names = [TEST, "test_b", "test_c"]
    for name in names:
        world.fail(name=name, gfx="gfx1030", machine=name)
    make(*TELL, "--dry-run", "--json")
    (told,) = json.loads(make.printed)["told"]
    assert {notice["failure"]["name"] for notice in told["notices"]} == set(names)
    assert github.issues == []
    make(*TELL)
    assert [issue["title"].partition(" fails")[0] for issue in github.issues] == sorted(names)
    make(*TELL)
    assert len(github.issues) == 3 and github.labels == {"rocm-wheels-failure"}
    assert TOKEN not in make.printed
    github.issues.append({**github.issues[0], "number": 4, "body": "by hand", "comments": []})
    world.fail(gfx="gfx1031", machine=TEST)
    make(*TELL)
    (first,) = [issue for issue in github.issues if TEST in issue["title"]]
    assert ["gfx1031" in comment for comment in first["comments"]] == [True]
    make(*TELL)
    assert len(first["comments"]) == 1
    # the next night is not tested: what is open stays open
    world.put(FAILING, ("gfx1030", "gfx1031"), 23, world.commits[1])
    monkeypatch.setattr(dashboard_cli, "current_time", lambda: moment(23, 12))
    make(*TELL)
    assert [issue["state"] for issue in github.issues] == ["open"] * 4
    world.know(FAILING, 23, "smoke", "pass", gfx="gfx1030")
    make(*TELL)
    states = {issue["title"].partition(" fails")[0]: issue["state"] for issue in github.issues[:3]}
    assert states == {TEST: "open", "test_b": "closed", "test_c": "closed"}
    world.know(FAILING, 23, "smoke", "pass", gfx="gfx1031")
    make(*TELL)
    assert first["state"] == "closed" and first["state_reason"] == "completed"
    world.fail(23, hour=7)
    make(*TELL)
    (again,) = [issue for issue in github.issues[4:] if issue["state"] == "open"]
    again.update(state="closed", state_reason="not_planned")
    make(*TELL)
    assert [issue["state"] for issue in github.issues].count("open") == 1  # that by hand


def test_what_github_refuses_is_said_and_opens_nothing_twice(
    world: World, make: Make, github: Github, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("test_a", "test_b"):
        world.fail(name=name, machine=name)
    github.pushes = False
    make(*TELL, code=15)
    assert github.issues == [] and "403" in make.printed
    github.labels.add("rocm-wheels-failure")
    make(*TELL, code=15)  # the label is there, and GitHub drops it
    assert len(github.issues) == 1 and "#1" in make.printed
    github.pushes = True
    make(*TELL, "--most-new", "1")
    assert "1 more failure is" in make.printed
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_wrong")
    make(*TELL, code=15)
    assert "ghs_wrong" not in make.printed
    monkeypatch.delenv("GITHUB_TOKEN")
    make(*TELL, code=2)
    for target in ("github:rocm", "http://example.org/hook", "mail"):
        make("--notify", target, code=2)
    make("--date", "2026-11-01", *TELL, code=2)
    make("--summary", str(world.folder / "no folder" / "file"), "--no-history", code=15)


def test_a_webhook_is_told_once(
    world: World, make: Make, github: Github, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was not taken is sent again later; its address is in no file and no log."""
    hook = f"{github.url}/hook/s3cret"
    tell = ("--no-history", "--notify", hook)
    world.fail()
    github.hook_status = 500
    make(*tell, *TELL[1:], code=15)
    assert len(github.issues) == 1, "who comes behind one that cannot be told is told"
    make(*tell)  # it is claimed: another run may be sending it
    assert len(github.hooks) == 1
    github.hook_status = 204
    monkeypatch.setattr(dashboard_cli, "current_time", lambda: moment(22, 13))
    make(*tell)
    make(*tell)
    assert [(item["event"], item["failure"]["name"]) for item in github.hooks[1:]] == [("failed", TEST)]
    assert "s3cret" not in make.printed
    assert "s3cret" not in (Path(world.store.url) / "v2" / "notified.json").read_text()
    world.know(FAILING, 22, "smoke", "pass", python="312", gfx="gfx1030", hour=8)
    make(*tell)
    make(*tell)
    assert [item["event"] for item in github.hooks[2:]] == ["passed"]


def test_pages_are_put_into_the_store(world: World, make: Make) -> None:
    """At the root of what is released, whole; a dry run writes none."""
    make("--date", DAY, "--no-history", "--publish", "--dry-run")
    root = Path(world.store.url) / "v2"
    assert not root.exists() or not list(root.iterdir())
    make("--date", DAY, "--no-history", "--publish")
    make("--date", DAY, "--no-history", "--publish")
    for path in (world.folder / "pages").iterdir():
        assert (root / path.name).read_bytes() == path.read_bytes()
