"""Bisecting real sets: uv installs each from its own index, and a command runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import servers
import stores
from commands import call
from servers import serve_folder
from stores import ROCM, World, rocm_wheel

from rocm_wheels.core import process
from rocm_wheels.index import update
from rocm_wheels.release import refresh, stage
from rocm_wheels.release.policy import load_policy
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import open_store

COUNT, FIRST_BAD, NOT_INSTALLABLE = 9, 5, 6
# torch says in which set it is; the folder of the script says what to do besides
SCRIPT = """
import os, pathlib, subprocess, sys, time
import torch
here = pathlib.Path(__file__).parent
with open(here / "tried", "a") as file:
    print(torch.number, os.environ["ROCM_WHEELS_SET"], file=file)
assert os.environ["ROCM_WHEELS_INDEX"].endswith(os.environ["ROCM_WHEELS_SET"] + "/simple/")
assert sys.prefix == os.environ["VIRTUAL_ENV"] and torch.__file__.startswith(sys.prefix)
said = here / f"do-{torch.number}"
if said.exists() and said.read_text() == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (here / "hangs").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
sys.exit(int(said.read_text()) if said.exists() else torch.number >= FIRST_BAD)
""".replace("FIRST_BAD", str(FIRST_BAD))


@dataclass
class Bench:
    """A store with sets of which the later ones are broken, and what is needed to try them."""

    root: Path
    store: FolderStore
    plans: list[stage.StagePlan]
    env: dict[str, str]

    @property
    def ids(self) -> list[str]:
        """The sets, oldest first."""
        return [plan.document.id for plan in self.plans]

    def words(self, script: Path, *more: str, good: int = 0, bad: int = COUNT - 1) -> list[str]:
        """Return the words of the command; the script is what is run."""
        defaults = {"--good": self.ids[good], "--bad": self.ids[bad], "--gfx": "gfx942"}
        ends = [word for name, value in defaults.items() if name not in more for word in (name, value)]
        where = ["--dependency-index", (self.root / "rocm").as_uri() + "/"]
        return ["set", "bisect", str(self.store.folder), *ends, *where, *more, "--", "python", str(script)]


def created(number: int) -> str:
    return f"2026-11-{number + 1:02}T00:00:00Z"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("bench")
    store, plans = FolderStore(root / "store"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        update.add_wheels(root / "rocm", [rocm_wheel(root)], now="2026-11-01T00:00:00Z")
        triton = None
        for number in range(COUNT):
            patch.setitem(stores._COMMITS, "pytorch", f"{number:x}" * 40)
            patch.setattr(stores, "ROCM", "7.9.9" if number == NOT_INSTALLABLE else ROCM)
            world = World(root / str(number), f"2.9.{number}", text=f"number = {number}\n")
            triton = triton or next(world.folder.glob("triton*"))
            if number != NOT_INSTALLABLE:
                world.wheels = [triton, *(one for one in world.wheels if not one.name.startswith("triton"))]
            plan = world.plan()
            stage.stage_set(store, plan, now=created(number))
            plans.append(plan)
    env = {
        "UV_CACHE_DIR": str(root / "uv"),
        "UV_LINK_MODE": "copy",
        "UV_DEFAULT_INDEX": (root / "rocm").as_uri(),
    }
    return Bench(root, store, plans, env)


@pytest.fixture
def script(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "try.py").write_text(SCRIPT)
    return tmp_path / "try.py"


def tried(script: Path) -> list[int]:
    path = script.parent / "tried"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def left(script: Path) -> list[str]:
    folder = script.parent / "cache/rocm-wheels/bisect"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.contract
def test_it_names_the_first_bad_set(bench: Bench, script: Path) -> None:
    words = bench.words(script)
    alone = words[: words.index("--")]
    assert "there is no COMMAND to try sets with" in call(*alone, code=2).err
    assert "7 sets between: at most 3 of them are tried" in call(*alone, "--dry-run").out
    said = call(*bench.words(script, "--dry-run", "--json")).json
    assert said == {"sets": bench.ids} and left(script) == [] and tried(script) == []
    ended = call(*bench.words(script, "--json"))
    out, err = ended.out, ended.err
    found, old, new = json.loads(out), bench.ids[FIRST_BAD - 1], bench.ids[FIRST_BAD]
    assert f"{bench.ids[NOT_INSTALLABLE]} is skipped (it does not install: " in err and "7.9.9" in err
    assert tried(script) == [0, 8, 4, FIRST_BAD]
    assert left(script) == []
    assert (found["first_bad"], found["last_good"], found["certain"]) == (new, old, True)
    assert [(one["set"], one["outcome"]) for one in found["probes"]] == [
        (bench.ids[0], "good"),
        (bench.ids[8], "bad"),
        (bench.ids[4], "good"),
        (bench.ids[NOT_INSTALLABLE], "skip"),
        (new, "bad"),
    ]
    assert found["differs"]["versions"]["torch"] == {"old": "2.9.4+rocm7.1.0", "new": "2.9.5+rocm7.1.0"}
    change = found["differs"]["lock"]["projects"]["pytorch"]
    assert (change["old"]["commit"], change["new"]["commit"]) == ("4" * 40, "5" * 40)


@pytest.mark.contract
def test_sets_that_cannot_be_tested_are_named(bench: Bench, script: Path) -> None:
    (script.parent / "do-4").write_text("125")
    out = call(*bench.words(script, good=3, bad=7)).out
    assert tried(script) == [3, 7, FIRST_BAD, 4]
    assert "the first bad set is one of these" in out
    assert f"  {bench.ids[4]}: exit code 125\n  {bench.ids[5]}  ROCm" in out
    assert f"the last good set is {bench.ids[3]}" in out


def test_a_command_can_stop_it_and_people_read_what_differs(bench: Bench, script: Path) -> None:
    (script.parent / "do-4").write_text("130")
    err = call(*bench.words(script, good=3, bad=5), code=15).err
    assert f"stopped at {bench.ids[4]}: python {script} was killed by signal 2" in err
    (script.parent / "do-4").unlink()
    ended = call(*bench.words(script, good=3, bad=5))
    out, err = ended.out, ended.err
    assert tried(script) == [3, 5, 4, 3, 5, 4]
    old, new = bench.ids[4], bench.ids[5]
    assert f"the first bad set is {new}  ROCm {ROCM}  2026-11-06T00:00:00Z\nthe last good set is {old}" in out
    assert "torch  2.9.4+rocm7.1.0 → 2.9.5+rocm7.1.0" in out and "torchvision  0.24.4" in out
    assert "pytorch  main  444444444444 → 555555555555" in out
    err = call(*bench.words(script)[:-2], "no-such-program", code=15).err
    assert "there is no program no-such-program" in err


@pytest.mark.contract
def test_ends_that_are_not_what_was_said(bench: Bench, script: Path) -> None:
    err = call(*bench.words(script, good=FIRST_BAD), code=15).err
    assert f"{bench.ids[FIRST_BAD]} was given as good, but is bad: exit code 1" in err
    err = call(*bench.words(script, bad=3), code=15).err
    assert f"{bench.ids[3]} was given as bad, but is good: exit code 0" in err
    assert tried(script) == [FIRST_BAD, 0, 3]
    err = call(*bench.words(script, good=NOT_INSTALLABLE), code=15).err
    assert f"{bench.ids[NOT_INSTALLABLE]} was given as good, but cannot be tested: it does not install" in err
    err = call(*bench.words(script)[:-2], "sh", "-c", "exit 127", code=15).err
    assert (
        f"{bench.ids[0]} was given as good, but is bad: exit code 127" in err
        and "126 and 127 say that a program was not found" in err
    )


def started(bench: Bench, script: Path) -> tuple[subprocess.Popen[str], tuple[int, int]]:
    """Start a search whose command hangs with set 4, a child of its own beside it; return their numbers."""
    (script.parent / "do-4").write_text("hang")
    place = script.parent / "hangs"
    place.unlink(missing_ok=True)
    words = [sys.executable, "-m", "rocm_wheels", *bench.words(script, good=3, bad=5)]
    search = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (place.exists() and len(place.read_text().split()) == 2):
        assert search.poll() is None and time.monotonic() < deadline, search.communicate()[1]
        time.sleep(0.02)
    pid, child = map(int, place.read_text().split())
    return search, (pid, child)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_what_a_killed_run_left_goes_with_the_next(bench: Bench, script: Path) -> None:
    search, hanging = started(bench, script)
    search.send_signal(signal.SIGKILL)
    search.communicate()
    for pid in hanging:
        os.kill(pid, signal.SIGKILL)
    (script.parent / "do-4").unlink()
    out = call(*bench.words(script, good=3, bad=5)).out
    assert f"the first bad set is {bench.ids[FIRST_BAD]}" in out
    assert tried(script) == [3, 5, 4, 3, 5, 4] and left(script) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interruption_ends_all_that_the_command_started(bench: Bench, script: Path) -> None:
    search, hanging = started(bench, script)
    search.send_signal(signal.SIGINT)
    assert search.wait(60) == 130
    search.communicate()
    assert not any(process.is_process_alive(pid, "") for pid in hanging)
    assert left(script) == []


def test_sets_that_are_served_over_http(bench: Bench, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that is no folder, where it is served must be known: the store says it."""
    for name, value in servers.environment(servers.moto()).items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{servers.a_bucket()}/bisect", os.environ)
    for number in (3, 4, 5):
        stage.stage_set(store, bench.plans[number], now=created(number))
    words = bench.words(script, "--json", good=3, bad=5)
    words[2] = store.url
    assert "is not known to be served to installers" in call(*words, code=2).err
    path = bench.plans[4].index
    with serve_folder(bench.root) as server:
        where = (bench.root / "rocm").as_uri()
        rules = load_policy().model_copy(update={"other_indexes": (where,)})
        refresh.Refresher(store, rules, "ann", created(5), {}).set_public(f"{server.url}store/")
        found = call(*words).json
        assert (found["first_bad"], found["last_good"]) == (bench.ids[5], bench.ids[4])
        assert any(f"/store/{path}" in one.path for one in server.requests)
    assert tried(script) == [3, 5, 4]


def test_no_network_is_no_property_of_a_set(
    bench: Bench, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple/")
    words = [word for word in bench.words(script) if "rocm/" not in word and word != "--dependency-index"]
    err = call(*words, code=15).err
    assert f"{bench.ids[0]} could not be tried" in err and "could not be reached" in err
    assert tried(script) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--gfx", "gfx1100"], 15, "it is for gfx942, not for gfx1100"),
        (["--gfx", "gfx9423"], 2, "--gfx: gfx9423 is no GPU target; did you mean gfx942"),
        (["--project", "torchvison"], 2, "no set between the two has torchvison; did you mean torchvision?"),
        (["--python", "nowhere"], 2, "--python: 'nowhere' is not a Python"),
        (["--good", "2.9"], 15, "2.9 could be 2.9.0-"),
        (["--good", "3.0"], 15, "there is no set 3.0 in"),
        (["--good", "{ids[8]}"], 2, "{ids[8]} cannot be both good and bad"),
        (["--bad", "{ids[0]}", "--good", "{ids[1]}"], 2, "{ids[1]} is good and was made on 2026-11-02"),
    ],
)  # fmt: skip
def test_wrong_questions(words: list[str], code: int, said: str, bench: Bench, script: Path) -> None:
    filled = [word.format(ids=bench.ids, script=script) for word in words]
    err = call(*bench.words(script, *filled), code=code).err
    assert said.format(ids=bench.ids) in err.replace("\n", " ")
    assert tried(script) == []
