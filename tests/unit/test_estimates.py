"""What steps are expected to cost, from recorded runs and from stated figures."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.models import project, project_names
from rocm_wheels.pipeline import estimates, machine, run_record

GIB = 1 << 30
LARGE = machine.MachineResources(64, 512 * GIB, 500 * GIB)
SMALL = machine.MachineResources(16, 64 * GIB, 33 * GIB)
HOUR = 3600.0
NIGHT = estimates.PastStep("20261120-220000", 2 * HOUR, 64 * 1.5 * HOUR, 160 * GIB, 64, 12)


def record(runs: Path, step: str, *, outcome: str = "done", jobs: int | None = 8, **ended: Any) -> str:
    """Write a run of one step as the record has it; return its id."""
    run = run_record.create_run_record(runs, datetime(2026, 11, 20, 22, tzinfo=timezone.utc))
    run.write("run-begun", run=run.folder.name, cores=16, targets=["gfx942", "gfx1100"])
    run.write("step-begun", step=step, jobs=jobs, why="no earlier result")
    run.write("output", step=step, path="a.whl", targets=["gfx942", "gfx1100", "gfx1201"])
    run.write("step-ended", step=step, outcome=outcome, **{"seconds": 60.0, "cpu_seconds": 400.0, **ended})
    return run.folder.name


def test_stated_figures_fit_what_is_told_of_torch() -> None:
    one, all_of_them = (estimates.estimate_step("pytorch", n, LARGE, {}) for n in (1, 24))
    assert 0.5 * HOUR <= one.seconds <= HOUR
    assert 2 * HOUR <= all_of_them.seconds <= 2.5 * HOUR
    assert "believed" in one.source
    assert "TheRock" in one.source
    assert one.memory == 64 * 4 * GIB
    assert one.wheel < GIB < all_of_them.wheel
    assert 20 * GIB > one.disk > 10 * GIB


def test_memory_takes_jobs_away_and_so_makes_it_longer() -> None:
    narrow, given = (
        estimates.estimate_step("pytorch", 1, SMALL, {}),
        estimates.estimate_step("pytorch", 1, SMALL, {}, jobs=16),
    )
    assert narrow.memory == 8 * 4 * GIB
    assert narrow.seconds > 1.8 * given.seconds


@pytest.mark.parametrize(
    "name", [*project_names.list_project_names(), "install-rocm", "variant", "torchcodec"]
)
def test_every_step_has_figures_with_a_source(name: str) -> None:
    said = estimates.estimate_step(name, 3, SMALL, {})
    assert said.seconds > 0
    assert said.disk > 0
    assert said.memory_per_job > 0
    assert said.source.startswith("stated, ")


@pytest.mark.parametrize(
    ("step", "figure"),
    [
        ("install-rocm", "of 7.9 GB of local wheels 28 s"),
        ("install-tools", "5 s with uv"),
        ("probe-targets", "5 s for gfx1100"),
        ("configure", "30 s for torch 2.6.0"),
    ],
)
def test_what_was_measured_is_told_with_its_machine(step: str, figure: str) -> None:
    source = estimates.estimate_step(step, 1, SMALL, {}).source
    assert figure in source
    assert "measured" in source and "on two cores" in source


def test_a_recorded_run_goes_before_the_table_and_is_named() -> None:
    said = estimates.estimate_step("pytorch", 12, LARGE, {"pytorch": (NIGHT,)})
    assert (said.seconds, said.memory) == (2 * HOUR, 160 * GIB)
    assert said.source == "run 20261120-220000 (12 targets, 64 jobs)"


def test_a_recorded_run_is_scaled_by_jobs_and_targets() -> None:
    history = {"pytorch": (NIGHT,)}
    slower = estimates.estimate_step("pytorch", 12, SMALL, history, jobs=16)
    assert slower.seconds == pytest.approx(0.5 * HOUR + 4 * 1.5 * HOUR)  # what was not shared stays
    assert slower.memory == 40 * GIB
    more = estimates.estimate_step("pytorch", 24, LARGE, history)
    assert 2 * HOUR < more.seconds < 4 * HOUR  # not all of torch is compiled for each target
    assert more.source.endswith(", scaled to 24 targets, 64 jobs")


def test_memory_of_a_compiler_is_learned_only_from_a_whole_build() -> None:
    costs = project.get_step_costs("pytorch").time.get_core_seconds(2)
    whole = estimates.PastStep("a", 9000, costs, 32 * GIB, 16, 2)
    went_on = estimates.PastStep("b", 60, 300, 2 * GIB, 16, 2)
    history = {"pytorch": (went_on, whole)}
    assert estimates.estimate_step("pytorch", 2, SMALL, history).memory_per_job == int(2.5 * GIB)
    assert estimates.estimate_step("pytorch", 2, SMALL, history).seconds == 9000 * 16 / 13  # 13 jobs fit
    only = estimates.estimate_step("pytorch", 2, SMALL, {"pytorch": (went_on,)})
    assert only.memory_per_job == 4 * GIB


def test_what_was_not_measured_is_taken_from_the_table() -> None:
    history = {"pytorch": (estimates.PastStep("a", 2700, 0, 0, 64, 1),)}
    said = estimates.estimate_step("pytorch", 1, LARGE, history, jobs=32)
    assert said.memory == 32 * 4 * GIB
    assert 1.7 * 2700 < said.seconds < 2 * 2700
    past = {"install-rocm": (estimates.PastStep("a", 9, 0, 0, 2, 1),)}
    assert estimates.estimate_step("install-rocm", 1, LARGE, past).seconds == 9


def test_the_longest_of_the_newest_counts() -> None:
    pasts = tuple(
        estimates.PastStep(f"r{n}", seconds, 0, 0, 16, 1) for n, seconds in enumerate((5, 9, 7, 1, 2, 99))
    )
    assert estimates.estimate_step("apex", 1, SMALL, {"apex": pasts}, jobs=16).seconds == 9


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("build-pytorch-cp311", "pytorch"),
        ("build-pytorch_audio-cp313t", "pytorch_audio"),
        ("build-pytorch-cp311-gfx942", "pytorch"),
        ("build-flash-attention-cp312-gfx90a-xnack-on", "flash-attention"),
        ("install-rocm-cp311", "install-rocm"),
        ("install-tools-cp311-gfx942", "install-tools"),
        ("variant-pytorch-cp311", "variant"),
        ("probe-targets", "probe-targets"),
        ("probe-targets-gfx942", "probe-targets"),
        ("configure-pytorch-cp312-gfx942", "configure"),
        ("check-cache", "check-cache"),
    ],
)
def test_reads_the_record_of_a_step(tmp_path: Path, step: str, name: str) -> None:
    run = record(tmp_path, step, peak_memory=5 * GIB)
    assert estimates.read_history(tmp_path) == {name: (estimates.PastStep(run, 60, 400, 5 * GIB, 8, 3),)}


def test_reads_only_what_was_done_newest_first(tmp_path: Path) -> None:
    assert estimates.read_history(tmp_path / "none") == {}
    names = [record(tmp_path, "build-apex-cp311", jobs=None) for _ in range(11)]
    for outcome in ("failed", "interrupted", "killed"):
        record(tmp_path, "build-apex-cp311", outcome=outcome)
    (tmp_path / "stray").mkdir()
    (tmp_path / "file").write_text("no run")
    with (tmp_path / names[-1] / "events.jsonl").open("a") as file:
        file.write('[1]\n"event": "output"\n{"event":"step-ended","step":"build-apex-cp311","seco')
    found = estimates.read_history(tmp_path)["apex"]
    assert [past.run for past in found] == names[:-6:-1]
    assert found[0].jobs == 16  # as many as cores
