"""Release candidates finalized: real wheels, stores, installers; killed, short of room, and over again."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import call
from crash import run_on_full_disk
from pythons import UV
from servers import a_bucket, environment, moto, serve_folder
from stores import FAMILY, NEWER, NOW, OLDER, TAG, a_lock, rocm_wheel, several_drafts
from wheels import Draft, library, list_steps, read_members

from rocm_wheels.core import errors, process
from rocm_wheels.index import update
from rocm_wheels.models.lock import Lock
from rocm_wheels.release import channel, stage, store_paths, wheel_set
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store, open_store
from rocm_wheels.wheels.edit import compare_wheels
from rocm_wheels.wheels.sbom import SBOM_MEMBER, WheelParts, format_sbom

RC = "7.1.0rc1"
LOCK = a_lock().model_copy(update={"rocm": RC})
PLACES = store_paths.FamilyPaths(FAMILY)
USUAL = ("--keep", "triton", "--rocm", "7.1.0")


def drafts() -> list[Draft]:
    """Return a release candidate: triton is final, all else is not."""
    torch = f"2.9.1rc1+rocm{RC}"
    code, opened = library("gfx942"), "import torch.version\n__version__ = torch.version.__version__\n"
    made = [
        Draft("triton", "3.5.0", TAG, members={"triton/__init__.py": b"__version__ = '3.5.0'\n"}),
        Draft(
            "torch",
            torch,
            TAG,
            members={
                "torch/__init__.py": opened.encode(),
                "torch/version.py": f"__version__ = '{torch}'\nhip = '{RC}'\n".encode(),
                "torch/_rocm_init.py": f"def initialize():\n    f(check_version='{RC}')\n".encode(),
                "torch/lib/libtorch_hip.so": code,
                f"torch-{torch}.data/purelib/torch/note": b"x",
            },
            requires=[f"rocm[libraries]=={RC}", "triton==3.5.0; platform_system == 'Linux'"],
        ),
        Draft(
            "torchvision",
            f"0.24.1rc1+rocm{RC}",
            TAG,
            members={"torchvision/__init__.py": b"", "torchvision/_C.so": code},
            requires=[f"torch=={torch}", f"rocm[devel]=={RC}; extra == 'devel'"],
            fields=["Provides-Extra: devel"],
        ),
    ]
    for draft in made:
        draft.members[f"{draft.folder}/sources.lock.json"] = format_lock(LOCK).encode()
        sbom = format_sbom(WheelParts("0.1.0"), draft.distribution, draft.version)
        draft.members[f"{draft.folder}/{SBOM_MEMBER}"] = sbom
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return [draft.write(folder) for draft in drafts()]


def run(*words: object, code: int = 0) -> str:
    """Run a command and return what it says: its result, and its errors where ``code`` is not 0."""
    ended = call(*words, code=code)
    return ended.out + ended.err if code else ended.out


def staged(store: Store, wheels: list[Path], *locks: Lock, **more: Any) -> wheel_set.SetDocument:
    plan = stage.plan_stage(wheels, locks or [LOCK], **{"paths": PLACES, "layout": "per-family", **more})
    return stage.stage_set(store, plan, now=NOW).document


def stage_as_told(said: str, output: Path) -> wheel_set.SetDocument:
    """Run the command that was printed, and return the new set."""
    (line,) = re.findall("^stage them: rocm-wheels (.*)", said, re.MULTILINE)
    words = [
        one
        for word in shlex.split(line)
        for one in (output.glob("*.whl") if word == f"{output}/*.whl" else [word])
    ]
    store = open_store(words[2], dict(os.environ))
    return wheel_set.find_set(store, json.loads(run(*words, "--json"))["set"])


def files_in(folder: Path) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.contract
def test_a_candidate_becomes_a_set_that_uv_installs_and_the_gate_knows_nothing_of(
    wheels: list[Path], tmp_path: Path
) -> None:
    place, output = tmp_path / "store", tmp_path / "final"
    store = FolderStore(place)
    old = staged(store, wheels)
    before = files_in(place)
    words = ["wheel", "finalize", "--store", place, "--set", old.id, *USUAL, "--output-dir", output]
    would = run(*words, "--dry-run")
    assert f"torch-2.9.1rc1+rocm{RC}-{TAG}.whl -> torch-2.9.1+rocm7.1.0-{TAG}.whl\n" in would
    extra = "; extra == 'devel'"
    assert f"  requires rocm[devel]=={RC}{extra} -> rocm[devel]==7.1.0{extra}\n" in would
    assert f"triton-3.5.0-{TAG}.whl stays\n" in would and "  torch/version.py\n" in would
    assert not output.exists()
    said = run(*words)
    assert run(*words) == said  # once more, which changes nothing
    made = {path.name for path in output.iterdir()}
    assert made == {"sources.lock.json", f"triton-3.5.0-{TAG}.whl"} | {
        f"{name}+rocm7.1.0-{TAG}.whl" for name in ("torch-2.9.1", "torchvision-0.24.1")
    }
    assert files_in(place) == before
    new = stage_as_told(said, output)
    assert (new.version, new.rocm, new.locks) == ("2.9.1+rocm7.1.0", "7.1.0", old.locks)
    assert [len(new.files), new.planned, new.missing] == [len(old.files), old.planned, ()]
    was, now = ({file.project: file for file in one.files} for one in (old, new))
    assert was["triton"] == now["triton"] and was["torch"].sha256 != now["torch"].sha256

    torch = output / now["torch"].name
    after, sbom = read_members(torch), f"torch-2.9.1+rocm7.1.0.dist-info/{SBOM_MEMBER}"
    difference = compare_wheels(wheels[1], torch)  # nothing differs but what was meant
    changed = {"torch/version.py", "torch/_rocm_init.py", f"*.dist-info/{SBOM_MEMBER}"}
    assert set(difference.changed) == changed
    assert (difference.added, difference.removed) == ([], [])
    assert difference.metadata == {
        "version": ([f"2.9.1rc1+rocm{RC}"], ["2.9.1+rocm7.1.0"]),
        "requires-dist": ([f"rocm[libraries]=={RC}"], ["rocm[libraries]==7.1.0"]),
    }
    assert json.loads(after[sbom])["metadata"]["component"]["version"] == "2.9.1+rocm7.1.0"
    assert list_steps(after[sbom]) == ["finalize"]
    assert after["torch/version.py"] == f"__version__ = '2.9.1+rocm7.1.0'\nhip = '{RC}'\n".encode()
    run("audit", torch)
    gate = run("set", "gate", place, "--set", new.id, "--channel", "nightly", code=15)
    assert "no evidence for all 3 wheels" in gate

    update.add_wheels(place / "rocm", [rocm_wheel(tmp_path)], now=NOW)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    with serve_folder(place) as server:
        index = ["--index-url", f"{server.url}{PLACES.set_index(new.id)}/", "--index", f"{server.url}rocm/"]
        process.capture_output([*UV, *index, "--target", str(tmp_path / "site"), "torchvision"], env=env)
    asked = (
        "import importlib.metadata as m, torch.version as v; print(v.__version__, m.version('torch'), v.hip)"
    )
    words = [sys.executable, "-S", "-c", asked]
    told = process.capture_output(words, env={"PYTHONPATH": str(tmp_path / "site")})
    assert told.split() == ["2.9.1+rocm7.1.0", "2.9.1+rocm7.1.0", RC]


@pytest.mark.contract
def test_the_next_candidate_of_a_version_gets_a_build_tag(wheels: list[Path], tmp_path: Path) -> None:
    """The first one was finalized and people got it: its names are taken, and the version stays."""
    place, output = tmp_path / "store", tmp_path / "final"
    store = FolderStore(place)
    words = ["wheel", "finalize", *USUAL, "--store", place, "--set"]
    said = run(*words, staged(store, wheels).id, "--output-dir", output)
    first = stage_as_told(said, output)
    made = drafts()
    for draft in made[1:]:
        draft.version = draft.version.replace("rc1+", "rc2+")
        draft.requires = [one.replace("2.9.1rc1", "2.9.1rc2") for one in draft.requires]
        draft.members = {name: text.replace(b"1rc1+", b"1rc2+") for name, text in draft.members.items()}
        old, new = f"-{draft.version.replace('rc2', 'rc1')}.d", f"-{draft.version}.d"
        draft.members = {name.replace(old, new): text for name, text in draft.members.items()}
    made[1].members["torch/mended.py"] = b""
    second = staged(store, [wheels[0], *(draft.write(tmp_path) for draft in made[1:])])
    said = run(*words, second.id, "--output-dir", tmp_path / "again")
    shown = channel.ChannelSet(set=first.id, document=first.digest, when=NOW, by="ann")
    nightly = channel.Channel(family=FAMILY, channel="nightly", sets=(shown,))
    store.create(PLACES.channel_document("nightly"), nightly.to_json())
    taken = stage_as_told(said, tmp_path / "again")
    with pytest.raises(
        errors.ReleaseError, match=r"torch-2\.9\.1\+rocm7\.1\.0-.* has other bytes in 2\.9\.1-"
    ):
        channel.require_own_names(store, taken, channel.read_channels(store, PLACES))
    words += [second.id, "--output-dir", output]
    assert "exists with other bytes" in run(*words, code=2)
    again, tagged = tmp_path / "again", tmp_path / "tagged"
    torches = [wheel for wheel in again.glob("*.whl") if not wheel.name.startswith("triton")]
    run("wheel", "retag", "--build-tag", "1", "--output-dir", tagged, *torches)
    shutil.copy(*again.glob("triton*.whl"), tagged)
    done = stage_as_told(said.replace(f"{again}/*.whl", f"{tagged}/*.whl"), tagged)
    assert done.version == first.version
    names = {file.project: file for file in done.files}
    assert names["torch"].name == f"torch-2.9.1+rocm7.1.0-1-{TAG}.whl"
    assert names["triton"].name == f"triton-3.5.0-{TAG}.whl"
    torch = read_members(tmp_path / "tagged" / names["torch"].name)
    assert b"Build: 1" in torch["torch-2.9.1+rocm7.1.0.dist-info/WHEEL"]


@pytest.mark.contract
def test_variants_keep_their_labels_and_what_they_state(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    newer, older = (lock.model_copy(update={"rocm": f"{lock.rocm}rc1"}) for lock in (NEWER, OLDER))
    made = several_drafts(version="2.9.1rc1", locks=(newer, older))
    (tmp_path / "wheels").mkdir()
    raw = [draft.write(tmp_path / "wheels") for draft in made.values()]
    more = {"paths": store_paths.FamilyPaths("variants"), "layout": "variants"}
    old = staged(store, raw, newer, older, **more)
    words = ["wheel", "finalize", "--keep", "triton", "--store", store.url, "--set"]
    renamed = ["--rocm", "7.1.0rc1=7.1.0", "--rocm", "7.0.2rc1=7.0.2", "--output-dir", tmp_path / "1"]
    new = stage_as_told(run(*words, old.id, *renamed), tmp_path / "1")
    assert (new.rocms, new.is_complete) == (("7.0.2", "7.1.0"), True)
    assert new.locks[0].digest == old.locks[0].digest
    labelled = {(file.project, file.label): file for file in old.files}
    for file in new.files:
        was = labelled[file.project, file.label]
        assert (file.variant, file.lock, file.targets) == (was.variant, was.lock, was.targets)
        assert file.name == was.name.replace("2.9.1rc1", "2.9.1")
    # what was renamed before is known by its new name
    again = [new.id, "--to", "torch=2.9.1.post1", "--output-dir", tmp_path / "2"]
    later = stage_as_told(run(*words, *again), tmp_path / "2")
    assert later.rocms == new.rocms


def _bent(change: str, text: str) -> Callable[[list[Draft]], None]:
    def bend(made: list[Draft]) -> None:
        made[1].members[change] = text.encode()

    return bend


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "bend", "said"),
    [
        (["--rocm", "7.1.0"], None, r"triton 3\.5\.0 is no pre-release: say --keep triton"),
        ([*USUAL, "--keep", "torchvision"], None, r"torchvision-.*: it stays, and requires torch=="),
        ([*USUAL[:2], "--keep", "torch", "--keep", "torchvision"], None, r"all wheels stay as they are"),
        (USUAL, _bent("torch/version.py", "("), r"torch-.*whl: torch/version\.py is not Python"),
        (USUAL, _bent("torch/_rocm_init.py", "f()"), r"_rocm_init\.py does not ask for ROCm 7\.1\.0rc1"),
    ],
)
def test_what_is_refused_leaves_all_as_it_was(
    words: list[str], bend: Callable[[list[Draft]], None] | None, said: str, tmp_path: Path
) -> None:
    made = drafts()
    if bend is not None:
        bend(made)
    raw = [draft.write(tmp_path) for draft in made]
    before = files_in(tmp_path)
    assert re.search(said, run("wheel", "finalize", *raw, *words, "-o", tmp_path / "final", code=15))
    assert files_in(tmp_path) == before


def test_wheels_come_from_a_bucket(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(moto()).items():
        monkeypatch.setenv(name, value)
    store, output = open_store(f"s3://{a_bucket()}/w", dict(os.environ)), tmp_path / "final"
    old = staged(store, wheels)
    run("wheel", "finalize", "--store", store.url, "--set", old.id, *USUAL, "--output-dir", output)
    run("wheel", "finalize", *wheels, *USUAL, "--output-dir", tmp_path / "clean")
    assert {name: text for name, text in files_in(output).items() if name != "sources.lock.json"} == files_in(
        tmp_path / "clean"
    )


def test_wheels_of_the_store_that_are_not_what_was_staged_are_refused(
    wheels: list[Path], tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "store")
    document = staged(store, wheels)
    path = tmp_path / "store" / PLACES.pool_file(document.files[0].sha256, document.files[0].name)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    words = ["wheel", "finalize", "--store", store.url, "--set", document.id, *USUAL]
    assert "is not what was staged" in run(*words, "--output-dir", tmp_path / "final", code=15)
    assert path.exists() and not (tmp_path / "final").exists()
    path.unlink()
    assert "is not what was staged" in run(*words, "--output-dir", tmp_path / "final", code=15)


def test_room_is_looked_for_before_and_a_full_disk_is_named(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["wheel", "finalize", *map(str, wheels), *USUAL, "--output-dir", str(tmp_path / "final")]
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
        assert re.search("are to be written, and .* has room for 0 B", run(*words, code=15))
    code, said = run_on_full_disk(words, 900)
    assert code == 15, said
    assert "cannot write to" in said and "free some space" in said
    assert not list((tmp_path / "final").glob("*.whl"))
    run(*words)


def test_wheels_are_named_one_way(wheels: list[Path], tmp_path: Path) -> None:
    for words in ([], [wheels[0], "--store", tmp_path, "--set", "x"]):
        said = run("wheel", "finalize", *words, "-o", tmp_path / "final", code=2)
        assert "wheels are named one way" in said
    for half in (["--store", tmp_path], ["--set", "x"]):
        said = run("wheel", "finalize", *half, "-o", tmp_path / "final", code=2)
        assert "--store and --set go together" in said
