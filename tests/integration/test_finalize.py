"""Sets of pre-releases finalized: real wheels, stores, installers; killed, short of room, and over again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_store import FaultyStore, Killed
from release_world import FAMILY, NEWER, NOW, OLDER, TAG, a_lock, rocm_wheel, several_drafts
from uv import find_uv_bin

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from audit_wheels import Draft, library
from index_server import serve_folder

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors, files, process
from rocm_wheels.index import update
from rocm_wheels.models.lock import Lock
from rocm_wheels.release import final_versions, finalize, layout, stage, wheel_set
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels import rewrite
from rocm_wheels.wheels.sbom import SBOM_MEMBER, WheelParts, format_sbom, list_steps

RC = "7.1.0rc1"
LOCK = a_lock().model_copy(update={"rocm": RC})
PLACES = layout.FamilyPaths(layout.load_layout(), FAMILY)
WORDS: tuple[list[str], list[str], list[str]] = ([], ["triton"], ["7.1.0"])  # --to, --keep, --rocm


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


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def staged(store: Store, wheels: list[Path], *locks: Lock, **more: Any) -> wheel_set.SetDocument:
    plan = stage.plan_stage(wheels, locks or [LOCK], **{"paths": PLACES, "layout": "per-family", **more})
    return stage.stage_set(store, plan, now=NOW).document


def final(
    store: Store, document: wheel_set.SetDocument, folder: Path, words: Any = WORDS
) -> finalize.FinalizedSet:
    places = layout.FamilyPaths(layout.load_layout(), document.family)
    return finalize.finalize_set(
        store,
        places,
        finalize.plan_finalize(
            store, places, document, final_versions.parse_finalize_request(document, *words)
        ),
        folder,
        now=NOW,
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.contract
def test_a_candidate_becomes_a_set_that_uv_installs_and_the_gate_knows_nothing_of(
    wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"
    store = FolderStore(place)
    old = staged(store, wheels)
    words = ["set", "finalize", str(place), "--set", old.id, "--keep", "triton", "--rocm", "7.1.0"]
    words += ["--work-dir", str(tmp_path)]
    assert boundary.run_command(main.cli, [*words, "--dry-run"]) == 0
    would = capsys.readouterr().out
    assert f"torch-2.9.1rc1+rocm{RC}-{TAG}.whl -> torch-2.9.1+rocm7.1.0-{TAG}.whl\n" in would
    assert (
        f"  requires rocm[devel]=={RC}; extra == 'devel' -> rocm[devel]==7.1.0; extra == 'devel'\n" in would
    )
    assert f"triton-3.5.0-{TAG}.whl stays\n" in would and "  torch/version.py\n" in would
    assert list(wheel_set.list_set_ids(store, FAMILY, layout=layout.load_layout())) == [old.id]
    assert boundary.run_command(main.cli, [*words, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert boundary.run_command(main.cli, words) == 0
    assert f"{done['set']} already staged in {FAMILY}, from {old.id}: 0 files sent" in capsys.readouterr().out
    assert not (tmp_path / f"finalize-{old.id}").exists()

    new = wheel_set.find_set(store, done["set"])
    assert (new.origin, new.version, new.rocm, new.locks) == (old.id, "2.9.1+rocm7.1.0", "7.1.0", old.locks)
    assert [len(new.files), new.planned, new.missing] == [len(old.files), old.planned, ()]
    was, now = ({file.project: file for file in one.files} for one in (old, new))
    assert was["triton"] == now["triton"] and was["torch"].sha256 != now["torch"].sha256
    torch = PLACES.wheel_file(now["torch"].sha256, now["torch"].name)
    before, after = contents(wheels[1]), contents(place / torch)
    renamed = {name.replace(f"2.9.1rc1+rocm{RC}.", "2.9.1+rocm7.1.0."): text for name, text in before.items()}
    changed = {name.rpartition("/")[2] for name, text in renamed.items() if after.get(name) != text}
    sbom = f"torch-2.9.1+rocm7.1.0.dist-info/{SBOM_MEMBER}"
    assert changed == {"version.py", "_rocm_init.py", "METADATA", "RECORD", Path(sbom).name}
    assert renamed.keys() == after.keys()
    assert json.loads(after[sbom])["metadata"]["component"]["version"] == "2.9.1+rocm7.1.0"
    assert list_steps(after[sbom]) == ["finalize"]
    assert after["torch/version.py"] == f"__version__ = '2.9.1+rocm7.1.0'\nhip = '{RC}'\n".encode()
    assert boundary.run_command(main.cli, ["audit", str(place / torch)]) == 0
    assert (
        boundary.run_command(main.cli, ["set", "gate", str(place), "--set", new.id, "--channel", "nightly"])
        == 15
    )
    assert "no evidence for 3 of 3 wheels" in capsys.readouterr().out

    update.add_wheels(place / "rocm", [rocm_wheel(tmp_path)], now=NOW)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    uv = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", sys.executable]
    with serve_folder(place) as server:
        index = ["--index-url", f"{server.url}{PLACES.set_index(new.id)}/", "--index", f"{server.url}rocm/"]
        process.capture_output([*uv, *index, "--target", str(tmp_path / "site"), "torchvision"], env=env)
    asked = (
        "import importlib.metadata as m, torch.version as v; print(v.__version__, m.version('torch'), v.hip)"
    )
    told = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["2.9.1+rocm7.1.0", "2.9.1+rocm7.1.0", RC]


@pytest.mark.contract
def test_the_next_candidate_of_a_version_gets_a_build_tag(
    wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one was finalized and its tests failed: its names are taken, and the version stays."""
    store = FolderStore(tmp_path / "store")
    first = final(store, staged(store, wheels), tmp_path / "work").staged.document
    made = drafts()
    for draft in made[1:]:
        draft.version = draft.version.replace("rc1+", "rc2+")
        draft.requires = [one.replace("2.9.1rc1", "2.9.1rc2") for one in draft.requires]
        draft.members = {name: text.replace(b"1rc1+", b"1rc2+") for name, text in draft.members.items()}
        old, new = f"-{draft.version.replace('rc2', 'rc1')}.d", f"-{draft.version}.d"
        draft.members = {name.replace(old, new): text for name, text in draft.members.items()}
    made[1].members["torch/mended.py"] = b""
    second = staged(store, [wheels[0], *(draft.write(tmp_path) for draft in made[1:])])
    words = ["set", "finalize", str(tmp_path / "store"), "--set", second.id, "--keep", "triton"]
    words += ["--rocm", "7.1.0", "--work-dir", str(tmp_path)]
    capsys.readouterr()
    assert boundary.run_command(main.cli, words) == 15
    said = capsys.readouterr().err
    assert f"other bytes under the same name: torch-2.9.1+rocm7.1.0-{TAG}.whl" in said
    assert "finalize with --build-tag 1" in said
    assert boundary.run_command(main.cli, [*words, "--build-tag", "x"]) == 2
    assert "'x' is not a build tag" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*words, "--build-tag", "1", "--json"]) == 0
    done = wheel_set.find_set(store, json.loads(capsys.readouterr().out)["set"])
    assert (done.version, done.origin) == (first.version, second.id)
    names = {file.project: file for file in done.files}
    assert names["torch"].name == f"torch-2.9.1+rocm7.1.0-1-{TAG}.whl"
    assert names["triton"].name == f"triton-3.5.0-{TAG}.whl"
    torch = tmp_path / "store" / PLACES.wheel_file(names["torch"].sha256, names["torch"].name)
    assert b"Build: 1" in contents(torch)["torch-2.9.1+rocm7.1.0.dist-info/WHEEL"]
    assert (
        boundary.run_command(main.cli, [*words, "--build-tag", "1", "--output-dir", str(tmp_path / "out")])
        == 0
    )
    assert "already staged" in capsys.readouterr().out
    there = {path.name: files.hash_file(path) for path in (tmp_path / "out").iterdir()}
    assert there == {file.name: file.sha256 for file in done.files}
    (tmp_path / "file").touch()
    assert (
        boundary.run_command(main.cli, [*words, "--build-tag", "1", "--output-dir", str(tmp_path / "file/x")])
        == 15
    )
    assert "the set is staged; name another --output-dir" in capsys.readouterr().err


@pytest.mark.contract
def test_variants_keep_their_labels_and_what_they_state(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    newer, older = (lock.model_copy(update={"rocm": f"{lock.rocm}rc1"}) for lock in (NEWER, OLDER))
    made = several_drafts(version="2.9.1rc1", locks=(newer, older))
    wheels = [draft.write(tmp_path) for draft in made.values()]
    more = {"paths": layout.FamilyPaths(layout.load_layout(), "variants"), "layout": "variants"}
    old = staged(store, wheels, newer, older, **more)
    renamed = ["7.1.0rc1=7.1.0", "7.0.2rc1=7.0.2"]
    found = final(store, old, tmp_path / "work", ([], ["triton"], renamed))
    new = found.staged.document
    assert (new.rocms, new.locks[0].digest, new.is_complete) == (
        ("7.0.2", "7.1.0"),
        old.locks[0].digest,
        True,
    )
    labelled = {(file.project, file.label): file for file in old.files}
    for file in new.files:
        was = labelled[file.project, file.label]
        assert (file.variant, file.lock, file.targets) == (was.variant, was.lock, was.targets)
        assert file.name == was.name.replace("2.9.1rc1", "2.9.1")
    # what was renamed before is known by its new name
    later = final(store, new, tmp_path / "work", (["torch=2.9.1.post1"], ["triton"], [])).staged.document
    assert (later.rocms, later.origin) == (new.rocms, new.id)


def _bent(change: str, text: str) -> Callable[[list[Draft]], None]:
    def bend(made: list[Draft]) -> None:
        made[1].members[change] = text.encode()

    return bend


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "bend", "said"),
    [
        (([], [], ["7.1.0"]), None, r"triton 3\.5\.0 is no pre-release: say --keep triton"),
        (([], ["triton", "torchvision"], ["7.1.0"]), None, r"torchvision-.*: it stays, and requires torch=="),
        (([], ["triton", "torch", "torchvision"], []), None, r"all wheels of .* stay as they are"),
        (WORDS, _bent("torch/version.py", "("), r"torch-.*whl: torch/version\.py is not Python"),
        (WORDS, _bent("torch/_rocm_init.py", "f()"), r"_rocm_init\.py does not ask for ROCm 7\.1\.0rc1"),
    ],
)
def test_what_is_refused_leaves_the_store_as_it_was(
    words: Any, bend: Callable[[list[Draft]], None] | None, said: str, tmp_path: Path
) -> None:
    made = drafts()
    if bend is not None:
        bend(made)
    store = FolderStore(tmp_path / "store")
    document = staged(store, [draft.write(tmp_path) for draft in made])
    before = {one.path: one.tag for one in store.listing("")}
    with pytest.raises(errors.ReleaseError, match=said):
        final(store, document, tmp_path / "work", words)
    assert {one.path: one.tag for one in store.listing("")} == before


def test_a_run_may_end_at_any_write_and_the_next_carries_on(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FolderStore(tmp_path / "first")
    document = staged(first, wheels)
    clean = FaultyStore(_copy(first, tmp_path / "clean"))
    expected = final(clean, document, tmp_path / "work").staged.document
    new = [
        write for write in clean.writes if first.head(write.split()[1]) is None
    ]  # the name of triton is there
    for number, write in enumerate(new[::4]):
        store = _copy(first, tmp_path / str(number))
        with pytest.raises(Killed):
            final(FaultyStore(store, at=write, fault="after"), document, tmp_path / f"work {number}")
        with monkeypatch.context() as patched:
            patched.delattr(rewrite, "rewrite_wheel")  # what was finished before is taken
            assert final(store, document, tmp_path / f"work {number}").staged.document == expected


def _copy(store: FolderStore, place: Path) -> FolderStore:
    assert store.folder is not None
    shutil.copytree(store.folder, place, symlinks=True)
    return FolderStore(place)


def test_what_a_killed_run_left_damaged_is_made_again(wheels: list[Path], tmp_path: Path) -> None:
    """Where a store is not a folder of ours, wheels are fetched; what lies there already is not believed."""
    store, work = FaultyStore(FolderStore(tmp_path / "far")), tmp_path / "work"
    store.folder = None
    document = staged(store, wheels)
    torch = next(file for file in document.files if file.project == "torch")
    for place, content in (
        (work / "old" / torch.sha256 / torch.name, b"half"),
        (work / "new" / f"torch-2.9.1+rocm7.1.0-{TAG}.whl", wheels[1].read_bytes()),
    ):
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
    found = final(store, document, work)
    assert (found.staged.new, work.exists()) == (True, False)
    assert (
        found.staged.document.id
        == final(FolderStore(tmp_path), staged(FolderStore(tmp_path), wheels), work).staged.document.id
    )


def test_wheels_of_the_store_that_are_not_what_was_staged_are_refused(
    wheels: list[Path], tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "store")
    document = staged(store, wheels)
    path = tmp_path / "store" / PLACES.wheel_file(document.files[0].sha256, document.files[0].name)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(errors.ReleaseError, match=r"is not what was staged"):
        final(store, document, tmp_path / "work")


@pytest.mark.contract
def test_a_wheel_that_differs_in_anything_else_is_refused(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rewrite.rewrite_wheel

    def strays(source: Path, folder: Path, edit: Any, **more: Any) -> Any:
        return real(source, folder, replace(edit, put={"extra.txt": b""}), **more)

    monkeypatch.setattr(rewrite, "rewrite_wheel", strays)
    store = FolderStore(tmp_path / "store")
    with pytest.raises(
        errors.ReleaseError, match=r"differs from torch.*: added \['\*\.dist-info/extra\.txt'\]"
    ):
        final(store, staged(store, wheels), tmp_path / "work")


def test_room_is_looked_for_before_and_a_full_disk_is_named(
    wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(tmp_path / "store")
    document = staged(store, wheels)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
        with pytest.raises(errors.ReleaseError, match=r"are to be written, and .* has room for 0 B"):
            final(store, document, tmp_path / "work")
    # -B: a compiled module would be cut off, too
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900)); "
    program += "from rocm_wheels.cli.main import main; main()"
    words = [
        "set",
        "finalize",
        str(tmp_path / "store"),
        "--set",
        document.id,
        "--keep",
        "triton",
        "--work-dir",
        str(tmp_path),
    ]
    ended = subprocess.run(
        [sys.executable, "-B", "-c", program, *words, "--rocm", "7.1.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 15, ended.stderr
    assert "cannot write to" in ended.stderr and "free some space, or name another --work-dir" in ended.stderr
    left = [path.name for path in (tmp_path / f"finalize-{document.id}" / "new").iterdir()]
    assert left == []
    assert boundary.run_command(main.cli, [*words, "--rocm", "7.1.0"]) == 0


TARGETS = ("gfx942", "gfx1100", "gfx1101")


def split_drafts(version: str) -> list[Draft]:
    """Return a torch whose kernels are in parts, one a target and one for two, and a triton."""
    parts = {
        "gfx942": ["gfx942"],
        "gfx1100": ["gfx1100"],
        "gfx1101": ["gfx1101"],
        "gfx11": ["gfx1100", "gfx1101"],
    }
    extras = [f"Provides-Extra: device-{gfx}" for gfx in TARGETS] + ["Provides-Extra: device-all"]
    requires = [f"rocm[libraries]=={RC}", "triton==3.5.0"]
    for gfx in TARGETS:
        requires += [
            f"torch-device-{gfx}=={version}; extra == '{extra}'" for extra in (f"device-{gfx}", "device-all")
        ]
        if gfx != "gfx942":
            requires.append(f"torch-device-gfx11=={version}; extra == 'device-{gfx}'")
    host = {"torch/__init__.py": b"", "torch/version.py": f"__version__ = '{version}'\n".encode()}
    made = [
        Draft("triton", "3.5.0", TAG, members={"triton/__init__.py": b""}),
        Draft(
            "torch",
            version,
            TAG,
            members={**host, "torch/lib/x.so": library()},
            requires=requires,
            fields=extras,
        ),
    ]
    for gfx, code in parts.items():
        members = {f"torch/lib/kernels_{gfx}.so": library(*code)}
        made.append(
            Draft(f"torch_device_{gfx}", version, TAG, members=members, requires=[f"torch=={version}"])
        )
    lock = LOCK.model_copy(update={"targets": TARGETS})
    for draft in made:
        draft.members[f"{draft.folder}/sources.lock.json"] = format_lock(lock).encode()
    return made


def fields_of(wheel: Path, *names: str) -> list[str]:
    (content,) = (text for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return [line for line in content.decode().splitlines() if line.startswith(names)]


@pytest.mark.contract
def test_a_keep_list_leaves_out_what_is_for_others_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version, store = f"2.9.1rc1+rocm{RC}", FolderStore(tmp_path / "store")
    places = layout.FamilyPaths(layout.load_layout(), "multi-arch")
    (tmp_path / "wheels").mkdir()
    raw = [draft.write(tmp_path / "wheels") for draft in split_drafts(version)]
    lock = LOCK.model_copy(update={"targets": TARGETS, "projects": dict(list(LOCK.projects.items()))})
    old = staged(store, raw, lock, paths=places, layout="multi-arch")
    base = ["set", "finalize", str(tmp_path / "store"), "--set", old.id, "--work-dir", str(tmp_path)]
    final_words = [*base, "--keep", "triton", "--rocm", "7.1.0"]

    def run(*words: str, code: int = 0) -> str:
        assert boundary.run_command(main.cli, list(words)) == code
        both = capsys.readouterr()
        return both.err if code else both.out

    assert "has no code for gfx90a" in run(*final_words, "--keep-gfx", "gfx942,gfx90a", code=2)
    assert "is for other targets than" in run(*final_words, "--keep-gfx", ",".join(TARGETS), code=15)
    assert "goes with --keep-gfx" in run(*base, "--skip-version-promotion", code=2)
    said = run(*final_words, "--keep-gfx", "gfx1100", "--dry-run")
    assert f"torch_device_gfx942-{version}-{TAG}.whl is left out" in said
    assert f"  no longer requires torch-device-gfx1101=={version}; extra == 'device-all'" in said
    done = json.loads(
        run(*final_words, "--keep-gfx", "gfx1100", "--json", "--output-dir", str(tmp_path / "new"))
    )
    new = wheel_set.find_set(store, done["set"])
    assert new.projects == ("torch", "torch-device-gfx11", "torch-device-gfx1100", "triton")
    assert len(done["left_out"]) == 2 and new.origin == old.id
    assert {cell.target for cell in new.planned} == {"gfx1100", ""}
    (torch,) = (tmp_path / "new").glob("torch-2*.whl")
    final_version = "2.9.1+rocm7.1.0"
    assert set(fields_of(torch, "Requires-Dist", "Provides-Extra")) == {
        "Requires-Dist: rocm[libraries]==7.1.0",
        "Requires-Dist: triton==3.5.0",
        f"Requires-Dist: torch-device-gfx1100=={final_version}; extra == 'device-gfx1100'",
        f"Requires-Dist: torch-device-gfx1100=={final_version}; extra == 'device-all'",
        f"Requires-Dist: torch-device-gfx11=={final_version}; extra == 'device-gfx1100'",
        "Provides-Extra: device-gfx1100",
        "Provides-Extra: device-all",
    }
    assert boundary.run_command(main.cli, ["audit", str(torch)]) == 0
    # the same versions: what is written anew needs names of its own
    words = [*base, "--keep-gfx", "gfx942", "--skip-version-promotion"]
    assert "say --build-tag 1" in run(*words, code=15)
    capsys.readouterr()
    done = json.loads(run(*words, "--build-tag", "1", "--json"))
    trimmed = wheel_set.find_set(store, done["set"])
    assert trimmed.version == old.version and {file.name for file in trimmed.files} == {
        f"triton-3.5.0-{TAG}.whl", f"torch-{version}-1-{TAG}.whl", f"torch_device_gfx942-{version}-{TAG}.whl"
    }  # fmt: skip
    assert {file.sha256 for file in old.files} >= {f.sha256 for f in trimmed.files if f.project != "torch"}


def test_variants_for_others_are_left_out_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing has to be written anew: all that stays is what was staged."""
    made = several_drafts()
    (tmp_path / "wheels").mkdir()
    raw = [draft.write(tmp_path / "wheels") for name, draft in made.items() if "plain" not in name]
    store, places = FolderStore(tmp_path / "store"), layout.FamilyPaths(layout.load_layout(), "multi-arch")
    old = staged(store, raw, NEWER, OLDER, paths=places, layout="variants")
    only = sorted(
        set(old.targets) - {t for file in old.files if "rocm7.0" in file.label for t in file.targets}
    )
    words = ["set", "finalize", str(tmp_path / "store"), "--set", old.id, "--skip-version-promotion"]
    assert (
        boundary.run_command(main.cli, [*words, "--keep-gfx", only[0], "--work-dir", str(tmp_path), "--json"])
        == 0
    )
    done = json.loads(capsys.readouterr().out)
    new = wheel_set.find_set(store, done["set"])
    assert set(new.hashes) < set(old.hashes) and not any("rocm7.0" in file.label for file in new.files)
