"""What real pip and uv pick from an index and new wheels, and what is said of it."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pytest
from commands import Ended, call
from pythons import OLD_PIPS, get_pip
from servers import serve_folder
from stores import FAMILY, World
from wheels import NOW, files, wheel

from rocm_wheels.index import reader, update
from rocm_wheels.release import channel as channels
from rocm_wheels.release import stage, verdict
from rocm_wheels.release.evidence import results
from rocm_wheels.stores import folder

pytestmark = [
    pytest.mark.contract,
    pytest.mark.slow,
    pytest.mark.network,
]  # pip comes from there where this Python has none
OLD = "2.12.0+rocm7.15.0a20260728"
NEW = "2.12.0+rocm10.1.0a20260821"
TAGS = {"3.11": "cp311-cp311-manylinux_2_28_x86_64", "3.12": "cp312-cp312-linux_x86_64"}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index with the stack of before for two Pythons."""
    root, fresh = tmp_path / "index", tmp_path / "old"
    old = [wheel(fresh, version=OLD, tag=tag) for tag in TAGS.values()]
    update.add_wheels(root, [*old, wheel(fresh, "triton", "3.6.0")], now=NOW)
    return root


def check(*words: str | Path, code: int = 0) -> Ended:
    return call("index", "resolve-check", *words, code=code)


def test_a_build_that_sorts_below_the_old_one_is_refused(index: Path, tmp_path: Path) -> None:
    new = wheel(tmp_path / "new", version=NEW, tag=TAGS["3.12"])
    before = files(tmp_path)
    told = check(index, new, code=14)
    for tool in ("pip", "uv"):
        refused = f"error: torch, Python 3.12, {tool}: {tool} takes {OLD}, not {NEW} (the latest build"
        assert f"{refused} (20260821)" in told.out
    assert "'rocm7' and 'rocm10' are compared as text" in told.out
    assert "tip: spelled 2.12.0+rocmsdk.10.1.0a20260821 it would be taken" in told.err
    assert files(tmp_path) == before


def test_a_build_that_sorts_is_picked_by_both(index: Path, tmp_path: Path) -> None:
    new = [
        wheel(tmp_path / "new", version="2.12.0+rocmsdk.10.1.0a20260821", tag=tag) for tag in TAGS.values()
    ]
    with serve_folder(index) as server:
        told = check(server.url, *new, "--json").out
        wheels = [request.path for request in server.requests if request.path.endswith(".whl")]
    said = json.loads(told)
    checks = said["checks"]
    assert (said["tool"].split()[-1], said["when"][-6:]) == ("resolve-check", "+00:00")
    assert {(one["python"], one["tool"]) for one in checks} == {(p, t) for p in TAGS for t in ("pip", "uv")}
    assert {one["picked"] for one in checks} == {"2.12.0+rocmsdk.10.1.0a20260821"}
    assert wheels == []


def test_wheels_for_a_python_without_a_gil_are_asked_for_too(tmp_path: Path) -> None:
    """A set with wheels for both Pythons has evidence about each; uv resolves for installed ones alone."""
    tags = [f"cp313-{abi}-manylinux_2_28_x86_64" for abi in ("cp313", "cp313t")]
    new = [wheel(tmp_path / "new", version=NEW, tag=tag) for tag in tags]
    update.add_wheels(tmp_path / "index", new[1:], now=NOW)
    checks = check(tmp_path / "index", *new, "--json").json["checks"]
    asked = {(one["python"], one["tool"]) for one in checks if one["picked"] == NEW}
    assert asked == {("3.13", "pip"), ("3.13", "uv"), ("3.13t", "pip")}
    for path, python in zip(new, ("3.13", "3.13t"), strict=True):
        questions = {("torch", one["python"], one["picked"]) for one in checks if one["python"] == python}
        assert [results.covers_wheel(questions, each.name) for each in new] == [each == path for each in new]
    alone = check(tmp_path / "index", new[1], "--python", "3.13t", "--platform", "linux").out
    assert alone == f"torch, Python 3.13t, pip: takes {NEW} (the latest build (20260821))\n"


def test_they_are_asked_about_wheels_for_those_pythons_alone_that_take_them(tmp_path: Path) -> None:
    """That a wheel is not there for a Python is no fault of the others; one of the stable ABI has others."""
    torch = [
        wheel(tmp_path / "new", version=NEW, tag=f"{t}-linux_x86_64") for t in ("cp310-cp310", "cp313-cp313t")
    ]
    new = [*torch, wheel(tmp_path / "new", "triton", "3.6.0", tag="cp310-cp310-linux_x86_64")]
    new.append(wheel(tmp_path / "new", "torchaudio", NEW, tag="cp312-abi3-linux_x86_64"))
    update.add_wheels(tmp_path / "index", new, now=NOW)
    checks = check(tmp_path / "index", *new, "--json").json["checks"]
    asked = {(one["requirement"], one["python"]) for one in checks}
    audio = {pair for pair in asked if pair[0] == "torchaudio"}
    assert asked - audio == {("torch", "3.10"), ("torch", "3.13t"), ("triton", "3.10")}
    assert len(audio) == 1 and not audio & {("torchaudio", "3.10"), ("torchaudio", "3.13t")}
    assert [results.covers_wheel({(*pair, NEW) for pair in audio}, path.name) for path in new][3]
    assert not results.covers_wheel({("torchaudio", "3.13t", NEW)}, new[3].name)
    told = check(tmp_path / "index", new[2], "--python", "3.13", code=14).out
    assert "triton, Python 3.13, pip: " in told


def test_what_is_asked_for_and_expected_can_be_said(index: Path, tmp_path: Path) -> None:
    new = wheel(tmp_path / "new", version=NEW, tag=TAGS["3.12"], requires=("triton==3.6.0",))
    told = check(index, new, "--python", "3.12", "--expect", f"torch=={OLD}").out
    assert f"torch, Python 3.12, uv: takes {OLD}" in told


def test_older_and_missing_ones_are_told(index: Path, tmp_path: Path) -> None:
    older = wheel(tmp_path / "new", version="2.11.0+rocm10.1.0", tag=TAGS["3.12"])
    told = check(index, older).out
    assert "torch==2.11.0, Python 3.12, pip: takes 2.11.0+rocm10.1.0 (the only new one)" in told
    windows = wheel(tmp_path / "new", version="2.13.0+rocm10.1.0", tag="cp312-cp312-win_amd64")
    check(index, windows)  # its platform is that of the new wheels
    told = check(
        index, windows, wheel(tmp_path / "new", "x", "1.0"), "--python", "3.13", "--json", code=14
    ).out
    assert [one["picked"] for one in json.loads(told)["checks"]] == ["", "", "1.0", "1.0"]  # asked together
    told = check(index, windows, "--python", "3.13", code=14).out
    assert "error: torch, Python 3.13, uv: uv pip compile failed" in told
    assert "error: torch, Python 3.13, pip: pip install --dry-run failed" in told


@pytest.mark.contract_slow
@pytest.mark.parametrize("version", OLD_PIPS)
def test_the_oldest_pips_are_asked_too(
    version: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_pip(version, tmp_path / "pip")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "pip"))
    new = wheel(tmp_path / "new", version="2.12.0+rocmsdk.10.1.0a20260821", tag=TAGS["3.12"])
    assert "torch, Python 3.12, pip: takes 2.12.0+rocmsdk.10.1.0a20260821" in check(index, new).out


WRONG = [
    (["{box}/none", "{new}"], "neither a folder nor the URL of an index"),
    (["{box}/index", "{box}/no.whl"], "does not exist"),
    (["{box}/index", "{box}/note"], "note is not the name of a wheel"),
    (["{box}/index", "{new}", "--python", "3.14.1"], "is not a Python that tools"),
    (["{box}/index", "{new}", "--expect", "torch"], "is not name==version"),
    (["{box}/index", "{new}", "--expect", "torch==x"], "is not name==version"),
    (["{box}/index", "{new}", "--expect", "a b==1"], "'a b' is not a requirement"),
    (["{box}/index", "{new}", "{win}"], "for linux and windows"),
    (["http://127.0.0.1:9/", "{new}"], "cannot be reached"),
    (["{box}/index", "{box}/torch-2.13.0-py3-none-any-rocm7.whl"], "is a variant wheel"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_input(
    words: list[str], said: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        reader, "IndexReader", partial(reader.IndexReader, retries=0)
    )  # a server is asked again for seconds
    new = wheel(tmp_path / "new", version=NEW, tag=TAGS["3.12"])
    win = wheel(tmp_path / "new", version=NEW, tag="cp312-cp312-win_amd64")
    (tmp_path / "note").write_text("a note\n")
    (tmp_path / "torch-2.13.0-py3-none-any-rocm7.whl").write_bytes(new.read_bytes())
    before = files(tmp_path)
    told = check(
        *(word.format(box=tmp_path, new=new, win=win) for word in words),
        code=17 if words[0].startswith("http") else 2,
    ).err
    assert said in told
    assert files(tmp_path) == before


def test_files_may_lie_beside_the_folder_of_the_index(tmp_path: Path) -> None:
    """As those of a store do, of which a channel's pages name them in a folder beside."""
    world = World(tmp_path / "wheels")
    plan, store = world.plan(), folder.FolderStore(tmp_path / "store")
    document = stage.stage_set(store, plan, now=NOW).document
    rules = (verdict.RuleResult("hashes", "pass"),)
    passed = verdict.Verdict(document.id, FAMILY, "nightly", datetime.now(timezone.utc), rules)
    actor = channels.ChannelActor("ann", NOW)
    channels.Promoter(store, world.places, "nightly", actor).promote(document, lambda: passed)
    told = check(tmp_path / "store" / FAMILY / "simple/nightly", world.wheels[1]).out
    assert told.count("takes 2.9.1+rocm7.1.0") == 2
    linked = wheel(tmp_path / "else where", version="2.10.0+rocm7.1.0")
    page = tmp_path / "strange+place" / "torch" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{linked.as_uri()}">{linked.name}</a>')
    words = ("--python", "3.12", "--expect", "torch==2.10.0+rocm7.1.0")
    assert check(page.parent.parent, linked, *words).out.count("takes 2.10.0+rocm7.1.0") == 2
