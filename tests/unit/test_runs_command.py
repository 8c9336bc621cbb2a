"""``runs``, ``runs show`` and ``runs report`` as somebody at a terminal meets them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from commands import take_down, transcript
from runs import NOON, WrittenRun, night

from rocm_wheels.cli import boundary, main, runs
from rocm_wheels.pipeline import run_record
from rocm_wheels.pipeline.status import read_run_status

_ = transcript  # a fixture for every test here
MESSAGES = "runs"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    night(folder / "runs")
    for failed in (folder / "runs").iterdir():
        (failed / "build-vision-cp312.log").write_text("nms_kernel.hip:41:7\n")
    later = WrittenRun(folder / "runs", NOON + timedelta(hours=5))
    later.begin(steps=3, command="rocm-wheels build --output-dir dist")
    later.skip("install-rocm-cp312")
    later.begin_step("build-pytorch-cp312", estimate={"seconds": 1e9, "source": "stated defaults"})
    (later.folder / "build-pytorch-cp312.log").write_text("[12/345] Building HIP object a.hip.o\n")
    return folder


def told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = boundary.run_command(main.cli, argv)
    said = capsys.readouterr()
    # how long a run runs is another each time, and a page is no message
    page_or_time = argv[-1] == "-" or said.out.startswith("run 2")
    if "--json" not in argv and (code or not page_or_time):
        take_down(argv, code, said.out + said.err)
    return code, said.out, said.err


@pytest.mark.contract
def test_runs_are_listed_newest_first(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = told(["runs", "--work-dir", str(work)], capsys)
    head, first, _second = out.splitlines()
    assert code == 0
    assert head.split() == ["run", "state", "began", "time", "steps", "command"]
    assert first.startswith("20261121-170000  running  2026-11-21 12:00:00")
    assert first.endswith("rocm-wheels build --output-dir dist")


@pytest.mark.contract
def test_runs_as_json_and_a_limit(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(told(["runs", "--work-dir", str(work), "--json"], capsys)[1])
    states = {run["run"]: run["state"] for run in found}
    assert [*states.items()] == [("20261121-170000", "running"), ("20261121-120000", "failed")]
    assert found[1]["steps"]["build-vision-cp312"]["state"] == "failed"
    monkeypatch.setattr("rocm_wheels.cli.runs._MOST_RUNS", 1)
    _, out, err = told(["runs", "--work-dir", str(work)], capsys)
    assert (len(out.splitlines()), err) == (2, "and 1 older; --json lists them\n")


@pytest.mark.contract
def test_one_run_in_full(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(["runs", "show", "20261121-120000", "--work-dir", str(work)], capsys)
    assert code == 0
    for said in (
        "state    failed after 3 h 28 min",
        "build-triton-cp312   done         22 min       3.0 GiB      no earlier result",
        "torch-2.9.0+rocm7.1-cp312-cp312-linux_x86_64.whl       2.2 GiB\n",
        "build-vision-cp312: failed: vision could not be built (exit code 1):\n  | csrc/nms_kernel.hip:41:7",
        "tip: see the whole log; run again afterwards\nlog: ",
        "ccache can be trusted with device code\n",
    ):
        assert said in out
    assert out.endswith("\n\nbuild-apex-cp312: interrupted\n"), "it ended before it wrote a log"


@pytest.mark.contract
def test_one_run_as_json_has_every_event(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs", "show", "20261121-120000", "--work-dir", str(work), "--json"]
    found = json.loads(told(words, capsys)[1])
    assert found["events"][0]["event"] == "run-begun"
    assert found["outputs"]["build-audio-cp312"][0]["size"] == 3 << 20
    assert (found["running"], found["left"]) == ([], None)


@pytest.mark.contract
def test_the_newest_run_is_shown_at_its_work(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(["status", "--work-dir", str(work)], capsys)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("run 20261121-170000: running, ")
    assert lines[1] == "1 running, 1 skipped, 1 to come"
    assert lines[3].startswith("build-pytorch-cp312  ")
    assert " left (stated defaults)" in lines[3]
    assert lines[4] == "  [12/345] Building HIP object a.hip.o"


def test_what_is_at_work_is_shown_when_a_step_alone_came_and_went(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = WrittenRun(work / "runs", NOON + timedelta(hours=6))
    step.begin(steps=1, command="rocm-wheels run-step build-vision-cp312 --plan plan.json")
    step.end("failed", 2)
    shown = told(["runs", "show", "--work-dir", str(work)], capsys)[1]
    assert shown.startswith("run 20261121-170000: running, ")


def test_what_is_at_work_fits_the_terminal_and_names_no_more_than_the_kind_of_an_estimate(
    tmp_path: Path,
) -> None:
    run = WrittenRun(tmp_path)
    run.begin(steps=1)
    long = (
        "stated, believed: README.md of that project (30-60 min for one target, over 2 h for 20), at 64 cores"
    )
    run.begin_step("build-pytorch-cp312", estimate={"seconds": 1e5, "source": long})
    status = read_run_status(run_record.read_run(run.folder), run.clock())
    status = replace(status, running=(replace(status.running[0], memory=3 << 30),))
    wide, narrow = (runs.describe_work(status, width=width).splitlines()[3] for width in (80, 40))
    assert wide == "build-pytorch-cp312  0 s  about 27 h 46 min left (stated, believed)  3.0 GiB"
    assert narrow == "build-pytorch-cp312  0 s  about 27 h 46…"


def test_a_run_at_work_as_json(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(["runs", "show", "--work-dir", str(work), "--json"], capsys)[1])
    assert (found["running"][0]["step"], found["to_come"]) == ("build-pytorch-cp312", 1)
    assert found["steps"]["build-pytorch-cp312"]["state"] == "running" and found["events"]


@pytest.mark.contract
def test_a_report_is_written_whole_or_to_stdout(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = told(["runs", "report", "20261121-120000", "--work-dir", str(work)], capsys)
    assert (code, out, err) == (0, "", "report.html: run 20261121-120000, failed\n")
    words = ["runs", "report", "20261121-120000", "--work-dir", str(work), "-o", "-"]
    assert told(words, capsys)[1] == Path("report.html").read_text()
    assert told(["runs", "report", "--work-dir", str(work), "-o", "deep/er/page.html"], capsys)[0] == 0
    assert "Still running" in Path("deep/er/page.html").read_text()


@pytest.mark.contract
def test_a_trace_is_written_whole_or_to_stdout(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["runs", "report", "--format", "trace", "--work-dir", str(work)]
    assert told(words, capsys)[0] == 0
    _, out, _ = told([*words, "-o", "-"], capsys)
    assert {event["name"] for event in json.loads(out)["traceEvents"]} >= {"build-pytorch-cp312"}
    assert json.loads(Path("trace.json").read_text())["otherData"]["run"] == "20261121-170000"
    assert told([*words, "-o", "trace.json/x"], capsys)[0] == 2


@pytest.mark.contract
def test_nothing_in_a_record_controls_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, evil = WrittenRun(tmp_path / "runs"), "\x1b]0;evil\x07\x1b[2J\u202e\x00"
    texts = dict.fromkeys(("command", "host", "version", "platform", "lock", "lock_digest"), evil)
    run.begin(targets=[evil], **texts)
    run.begin_step(evil, why=evil, log=evil, estimate={"seconds": 3, "source": evil})
    run.begin_step("build-" + evil, log=evil)
    run.record.write("output", step=evil, path=evil, size=3, sha256=evil)
    run.end_step("build-" + evil, "failed", 3, message=evil, tip=evil)
    for argv in (["runs"], ["runs", "show"], ["runs", "show"]):
        code, out, err = told([*argv, "--work-dir", str(tmp_path)], capsys)
        assert code == 0
        assert out.replace("\n", "").isprintable()
        assert "evil" not in out + err
        if argv == ["runs", "show"]:  # at its work; then ended, and in full
            run.end("failed", 2)


@pytest.mark.contract
def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = f"there are no runs in {tmp_path}/runs\n"
    assert told(["runs", "--work-dir", str(tmp_path)], capsys) == (0, "", nothing)
    assert told(["runs", "--work-dir", str(tmp_path), "--json"], capsys) == (0, "[]\n", "")


WRONG = [
    ["runs", "show", "20261121-12000"],
    ["runs", "report", "nonsense"],
    ["runs", "show", "../runs/20261121-120000"],
    ["runs", "report", "-o", "{work}"],
    ["runs", "report", "-o", "{work}/runs/20261121-120000/events.jsonl/page.html"],
    ["runs", "sohw"],
    ["status", "--work-dir", ""],
    ["status", "--work-dir", "{work}/missing"],
    ["runs", "report", "--work-dir", "{work}/runs"],
    ["runs", "show", "x", "--work-dir", "{work}/runs"],
]


@pytest.mark.contract
@pytest.mark.parametrize("argv", WRONG)
def test_what_is_wrong_is_said(
    argv: list[str],
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(work)
    given = [word.format(work=work) for word in argv]
    if not any("dir" in word for word in argv):
        given += ["--work-dir", str(work)]
    code, out, err = told(given, capsys)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
