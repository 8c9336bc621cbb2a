"""``clean`` on work directories as builds leave them, with runs at work, links and kills."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import call
from crash import killed_at_events

from rocm_wheels.cli import boundary, main
from rocm_wheels.compile import build_trees
from rocm_wheels.pipeline import run_record

DAY = 86400


def cleaned(work: Path, *words: str) -> list[str]:
    """Clean, as JSON; return what went, as paths below the work directory. A dry run says just the same."""
    ask = ("clean", "--work-dir", work, *words, "--json")
    told, done = json.loads(call(*ask, "--dry-run").out), json.loads(call(*ask).out)
    assert (told["deleted"], done["deleted"]) == (False, True)
    assert [one["path"] for one in told["pieces"]] == [one["path"] for one in done["pieces"]]
    assert done["size"] == sum(one["size"] for one in done["pieces"])
    return [str(Path(one["path"]).relative_to(work)) for one in done["pieces"]]


def filled(folder: Path, *, days: float = 0, size: int = 4096) -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_bytes(b"x" * size)
    return aged(folder, days)


def aged(path: Path, days: float) -> Path:
    when = time.time() - days * DAY
    os.utime(path, (when, when))
    return path


def tree(folder: Path, tag: str, *, days: float = 0) -> Path:
    filled(folder)
    key = folder / "trees" / "build" / build_trees.TREE_KEY_FILE
    key.parent.mkdir(parents=True)
    key.write_text(json.dumps({"parts": {"python tag": tag}, "before": [], "key": "x"}))
    aged(key, days)
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory with something of everything, each of its own age."""
    work = tmp_path / "work"
    filled(work / "environments" / "py3.11-rocm-gt1.0", days=40)
    filled(work / "environments" / "py3.12-rocm-gt1.0", days=50)
    tree(work / "trees" / "pytorch" / "aaaaaaaaaaaa", "cp311", days=9)
    tree(work / "trees" / "pytorch" / "bbbbbbbbbbbb", "cp312", days=3)
    filled(work / "trees" / "pytorch" / "unnamed-1", days=99)
    (work / "trees" / "pytorch" / "running.json").write_text("{}")
    filled(work / "rejected" / "torch-2.9-cp311", days=20)
    filled(work / "fresh" / "build-pytorch-cp311", days=1)
    (work / "steps").mkdir()
    for step in ("build-pytorch-cp311", "build-pytorch-cp312", "install-rocm-cp311"):
        (work / "steps" / f"{step}.json").write_text("{}")
    (work / "collected.json").write_text("[]")
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    record(work, begin, "done", days=30)
    run = record(work, begin, None, days=2)  # killed: no end, and its process is gone
    (run.folder / "plan.json").write_text(str(work / "environments" / "py3.11-rocm-gt1.0"))
    return work


def record(
    work: Path, begin: datetime, outcome: str | None, *, days: float, **begun: Any
) -> run_record.RunRecord:
    run = run_record.create_run_record(work / "runs", begin)
    run.write("run-begun", pid=2**22 + 1, began="gone", **begun)
    if outcome:
        run.write("run-ended", outcome=outcome)
    aged(run.path, days)
    return run


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.contract
def test_a_dry_run_alone_lists_everything_and_touches_nothing(work: Path) -> None:
    before = listing(work)
    ended = call("clean", "--work-dir", work, "--dry-run")
    assert listing(work) == before
    kinds = Counter(line.split()[0] for line in ended.out.splitlines())
    assert kinds == {"environments": 2, "fresh": 1, "rejected": 1, "runs": 2, "trees": 2}
    assert "8 items would be deleted, " in ended.err and "50 d" in ended.out


@pytest.mark.contract
def test_nothing_is_deleted_unless_it_is_said_what(work: Path) -> None:
    before = listing(work)
    assert "nothing selected to delete" in call("clean", "--work-dir", work, code=2).err
    assert listing(work) == before


@pytest.mark.contract
def test_by_age(work: Path) -> None:
    # an environment is as old as the last run that used it
    assert cleaned(work, "--older-than", "7d") == [
        "environments/py3.12-rocm-gt1.0",
        "runs/20260101-000000",
        "rejected/torch-2.9-cp311",
        "trees/pytorch/aaaaaaaaaaaa",
    ]
    assert cleaned(work, "--older-than", "7d") == []
    assert (work / "trees" / "pytorch" / "unnamed-1" / "inner" / "file").exists()
    assert sorted(path.name for path in (work / "steps").glob("*.json")) != []


@pytest.mark.contract
def test_by_kind(work: Path) -> None:
    assert cleaned(work, "--kind", "rejected", "--kind", "fresh") == [
        "rejected/torch-2.9-cp311",
        "fresh/build-pytorch-cp311",
    ]
    assert cleaned(work, "--kind", "set-aside") == ["trees/pytorch/unnamed-1"]
    assert cleaned(work, "--kind", "trees", "--older-than", "5d") == ["trees/pytorch/aaaaaaaaaaaa"]


@pytest.mark.contract
def test_links_are_not_followed(work: Path, tmp_path: Path) -> None:
    outside = filled(tmp_path / "outside", days=90)
    (work / "rejected" / "link").symlink_to(outside)
    (work / "trees" / "pytorch" / "aaaaaaaaaaaa" / "link").symlink_to(outside)
    (work / "fresh").rename(tmp_path / "elsewhere")
    (work / "fresh").symlink_to(tmp_path / "elsewhere")
    said = call("clean", "--work-dir", work, "--kind", "rejected", "--kind", "trees", "--kind", "fresh")
    assert "what is behind it is left alone" in said.err
    assert listing(work / "rejected") == []
    assert (outside / "inner" / "file").exists()
    assert (tmp_path / "elsewhere" / "build-pytorch-cp311" / "inner" / "file").exists()


def test_closed_folders_are_opened(work: Path) -> None:
    closed = work / "rejected" / "torch-2.9-cp311" / "inner"
    closed.chmod(0o500)
    closed.parent.chmod(0o500)
    assert cleaned(work, "--kind", "rejected") == ["rejected/torch-2.9-cp311"]


HOLDER = """
import sys, time
from pathlib import Path
from rocm_wheels.core.files import lock_folder
with lock_folder(Path(sys.argv[1]), purpose=sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_by(folder: Path, what: str) -> Iterator[int]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder, what], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout:
            holder.stdout.close()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("place", "what"),
    [
        (".", "build"),
        ("steps/.locks/build-pytorch-cp311", "step build-pytorch-cp311"),
        ("environments/.locks/py3.11-rocm-gt1.0", "the build environment py3.11-rocm-gt1.0"),
    ],
)
def test_what_is_at_work_is_named_and_left_alone(work: Path, place: str, what: str) -> None:
    with held_by(work / place, what) as pid:
        before = listing(work)
        said = call("clean", "--work-dir", work, "--kind", "trees", code=2).err
        assert f"is in use by process {pid} ({what})" in said
        assert "--dry-run" in said
        assert not [name for name in {*before} ^ {*listing(work)} if not name.endswith((".lock", ".owner"))]
        call("clean", "--work-dir", work, "--kind", "trees", "--dry-run")
    assert len(cleaned(work, "--kind", "trees")) == 2


def test_a_run_on_another_machine_keeps_its_record(work: Path) -> None:
    record(work, datetime(2026, 2, 1, tzinfo=timezone.utc), None, days=9, host="another-machine")
    assert cleaned(work, "--kind", "runs") == ["runs/20260101-000000", "runs/20260101-000000-2"]
    assert [path.name for path in (work / "runs").iterdir()] == ["20260201-000000"]


@pytest.mark.contract_slow
@pytest.mark.slow
def test_killed_in_the_middle_nothing_half_looks_whole_and_the_next_goes_on(
    work: Path, tmp_path: Path, exhaustive: bool
) -> None:
    """Killed at its deletions of files and folders; what is left is looked at."""
    victims = ["trees/pytorch/aaaaaaaaaaaa", "environments/py3.12-rocm-gt1.0", "rejected/torch-2.9-cp311"]
    whole = {victim: listing(work / victim) for victim in victims}
    template = shutil.copytree(work, tmp_path / "template")
    words = ["clean", "--work-dir", str(work), "--older-than", "7d"]

    def begin() -> None:
        shutil.rmtree(work)
        shutil.copytree(template, work)

    for event in killed_at_events(
        lambda: sys.exit(boundary.run_command(main.cli, words)),
        begin=begin,
        exhaustive=exhaustive,
        least=12,
        like=r"os\.(rename|remove|rmdir)",
    ):
        for victim in victims:
            assert not (work / victim).exists() or listing(work / victim) == whole[victim], event
        assert boundary.run_command(main.cli, words) == 0
        assert not any((work / victim).exists() for victim in victims), event
        assert [name for name in listing(work) if ".going" in name] == [], event
        assert (work / "trees" / "pytorch" / "bbbbbbbbbbbb" / "inner" / "file").exists()


def test_trees_that_wait_in_checkouts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    source = root / "pytorch"
    source.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", source], check=True)
    waiting = source / ".git" / "rocm-wheels" / "trees" / "pytorch"
    tree(waiting / "aaaaaaaaaaaa", "cp311", days=9)
    tree(waiting / "bbbbbbbbbbbb", "cp311", days=2)
    (root / ".rocm-wheels").mkdir()
    call("clean", "--work-dir", root / ".rocm-wheels", "--older-than", "7d")
    assert len(list(waiting.iterdir())) == 2  # a work directory alone says nothing about checkouts
    said = call("clean", "--source-dir", root, "--older-than", "7d", "--json")
    assert [one["path"] for one in json.loads(said.out)["pieces"]] == [str(waiting / "aaaaaaaaaaaa")]
    assert [path.name for path in waiting.iterdir()] == ["bbbbbbbbbbbb"]
    with held_by(source / ".git" / "rocm-wheels", "build-pytorch-cp311") as pid:
        said = call("clean", "--source-dir", root, "--kind", "trees", code=2)
        assert f"is in use by process {pid} (build-pytorch-cp311)" in said.err
