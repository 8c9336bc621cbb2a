"""The page of a run: whole, safe whatever a record holds, the same for the same record, never too large."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import HOSTILE, Page, read_page
from runs import WrittenRun, night, ninja_log

from rocm_wheels.cli import boundary, main
from rocm_wheels.pipeline import report, run_record
from rocm_wheels.pipeline.trace import make_trace


def checked(folder: Path) -> Page:
    """Make the page of a run and check what holds for every page."""
    return check_page(report.render_report(run_record.read_run(folder)))


def check_page(text: str) -> Page:
    page = read_page(text)
    assert re.findall(r"url\(|@import|<svg", text) == []
    return page


SAID = [
    "Failed after 3 h 28 min",
    "6 done, 1 up to date, 1 failed, 1 interrupted",
    "390 GiB may be needed in /srv/work, 240 GiB are free",
    "Tip: free some space below /srv",
    "csrc/nms_kernel.hip:41:7: error: use of undeclared identifier '__shfl'",
    "inputs changed: cmake (3.31 → 4.1)",
    "after build-pytorch-cp312",
    "3 recorded runs on this machine",
    "torch-2.9.0+rocm7.1-cp312-cp312-linux_x86_64.whl sha256 7777",
    "2.2 GiB",
    "torch/lib/aotriton.images/amd-gfx942/ (40 files) : gfx942",
    "torch/lib/libc10_hip.so : gfx1030, gfx1100, gfx90a, gfx942",
    "error: unknown target CPU 'gfx1250'",
    "host code: 3,300 of 3,612, 91 % device code: 790 of 911, 87 %",
    "ccache can be trusted with device code",
    "4,568 commands in 11 min 8 s, up to 64 at a time",
    "rocm-wheels run-step build-vision-cp312",
    "CUDA_HOME removed",
]


def test_a_page_says_what_the_record_holds(tmp_path: Path) -> None:
    page = checked(night(tmp_path).folder)
    assert [text for text in SAID if text not in page.text] == []
    assert page.tags["h1"] == page.tags["main"] == page.tags["header"] == page.tags["nav"] == 1
    assert ("meta", "content", "width=device-width, initial-scale=1") in page.attributes
    assert page.tags["section"] == page.tags["h2"] == 7
    scrolling = sum(1 for one in page.attributes if one == ("div", "class", "scroll"))
    assert scrolling == page.tags["table"]


def test_bars_lie_where_their_steps_ran(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin()
    for step, seconds in (("build-triton-cp312", 30), ("build-pytorch-cp312", 60), ("build-apex-cp312", 10)):
        with run.step(step, seconds):
            pass
    run.end()
    text = report.render_report(run_record.read_run(run.folder))
    bars = re.findall(r"#bar-\d+ \{ margin-left: ([\d.]+)%; width: ([\d.]+)%; \}", text)
    places = [(round(float(left)), round(float(width))) for left, width in bars]
    assert places == [(0, 30), (30, 60), (90, 10)]
    assert read_page(text).ids["bar-3"] == 1


_WORDS = """
preflight packages command cache cache-test probe ninja-begun ninja built output audit step-ended run-begun
run-ended step-skipped
run version command pid began host platform cores memory plan steps lock lock_digest targets pythons output
findings check severity text tip why fingerprint outputs path size sha256 after environment log jobs estimate
seconds source cwd returncode kind device unsorted hits misses trusted checks what expected seen passed
done commands libraries note wheel more id where outcome peak_memory cpu_seconds exit_code message
"""
EVENTS, FIELDS = _WORDS.split()[:15], _WORDS.split()[15:]
PART = dict.fromkeys(FIELDS, HOSTILE)
VALUES = [
    HOSTILE,
    [HOSTILE],
    PART,
    [PART],
    {HOSTILE: HOSTILE},
    {HOSTILE: [HOSTILE]},
    3,
    -1,
    1e300,
    True,
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_string_leaves_its_place_and_no_type_breaks_a_reader(
    tmp_path: Path, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event has every field that there is, with a value that only some of them may have."""
    run = WrittenRun(tmp_path / "runs")
    fields = {**dict.fromkeys(FIELDS, value), "run": HOSTILE}
    run.begin_step(HOSTILE)
    for number, event in enumerate(EVENTS):
        run.record.write(event, step=HOSTILE + "2" * (event == "step-skipped"), **fields)
        if number == 5:
            run.begin_step(f"{HOSTILE}3", **fields)
    run.record.write("ninja", step=HOSTILE, log="a.log", began=value)
    edges = f"# ninja log v7\n0\t900000\t0\t{HOSTILE}.hip.o\tab\n".encode("utf-8", "replace")
    (run.folder / "a.log").write_bytes(edges)
    (run.folder / "plan.json").write_text(json.dumps({"steps": [fields, {"id": HOSTILE}, value]}))
    assert run_record.read_run(run.folder).damaged == 0
    page = checked(run.folder)
    assert page.text.count("<script>alert(1)</script>") > (20 if value == [PART] else 3)
    for words in (["list"], ["show"], ["show", "--json"], ["report", "--format", "trace", "-o", "-"]):
        assert boundary.run_command(main.cli, ["runs", *words, "--work-dir", str(tmp_path)]) == 0
        said = capsys.readouterr()
        assert "Traceback" not in said.err and (said.out + said.err).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("written", "said"), [(0, "No step is"), (1, "4 not begun"), (2, "1 killed, 3 not begun")]
)
def test_a_run_that_was_killed_early_has_a_page(tmp_path: Path, written: int, said: str) -> None:
    run = WrittenRun(tmp_path)
    if written:
        run.begin(pid=2**22 + 1)
    if written > 1:
        run.begin_step("install-rocm-cp312", pid=2**22 + 1)
    page = checked(run.folder)
    assert "Killed; last heard of after" in page.text
    assert said in page.text


def test_what_could_not_be_read_is_said(tmp_path: Path) -> None:
    run = night(tmp_path)
    with run.record.path.open("ab") as file:
        file.write(b'{"damaged\n{"torn')
    page = checked(run.folder)
    assert "1 line of the record is damaged and left out" in page.text
    assert "The last line of the record broke off" in page.text


def test_a_log_of_ninja_that_is_not_there_is_said(tmp_path: Path) -> None:
    run = night(tmp_path)
    (run.folder / "build-pytorch-cp312.ninja_log").unlink()
    assert "the copy of ninja's log cannot be read" in checked(run.folder).text


def test_steps_of_the_plan_that_did_not_begin_are_named(tmp_path: Path) -> None:
    run = night(tmp_path)
    (run.folder / "plan.json").write_text('{"steps": [{"id": "variant-audio-cp312"}, {"id": "check-cache"}]}')
    assert "Not begun: variant-audio-cp312." in checked(run.folder).text


def test_a_very_long_build_stays_a_page_that_a_phone_can_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record.os, "fsync", lambda _: None)  # nobody pulls the plug on 2,000 events
    run = WrittenRun(tmp_path)
    run.begin()
    for number in range(700):
        with run.step(f"build-pytorch-cp312-gfx{number}", 90):
            run.record.write("command", step=f"build-pytorch-cp312-gfx{number}", command="uv " + "x" * 200)
    (run.folder / "a.ninja_log").write_text(ninja_log(20_000, 128))
    run.record.write("ninja", step="build-pytorch-cp312-gfx0", log="a.ninja_log", began=run.clock.seconds)
    run.end()
    text = report.render_report(run_record.read_run(run.folder))
    assert "20,001 commands" in check_page(text).text
    assert len(text.encode()) < 2_000_000


def test_what_audits_found_is_told_once_for_all_wheels(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin()
    untidy = {"id": "RW021", "check": "run-paths", "severity": "warning", "what": "looks in /home/x"}
    damaged = {"id": "RW001", "check": "archive", "severity": "error", "what": "cut", "tip": "again"}
    for step, findings in (("build-a", [untidy | {"where": "a.so"}]), ("build-b", [untidy, damaged])):
        with run.step(step, 3):
            run.record.write("audit", step=step, wheel=f"{step}.whl", checks=40, findings=findings, more=2)
    page = checked(run.folder)
    assert "error RW001 archive cut Tip: again build-b.whl" in page.text
    assert "warning RW021 run-paths looks in /home/x build-a.whl a.so build-b.whl" in page.text
    assert "2 findings more: see the log build-a.whl build-b.whl" in page.text


def test_the_steps_that_made_a_run_long_are_named(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path)
    run.begin()
    with run.step("install-rocm-cp312", 10):
        pass
    begin = run.clock.seconds
    run.begin_step("build-triton-cp312", after=["install-rocm-cp312"])
    with run.step("build-apex-cp312", 5, after=["install-rocm-cp312"]):
        pass
    run.clock.seconds = begin + 40
    run.end_step("build-triton-cp312", seconds=40)
    with run.step("build-pytorch-cp312", 50, after=["build-apex-cp312", "build-triton-cp312"]):
        pass
    run.end()
    path = report.find_critical_path(run_record.read_run(run.folder))
    assert [step.id for step in path] == ["install-rocm-cp312", "build-triton-cp312", "build-pytorch-cp312"]
    assert "build-triton-cp312 critical done 40 s" in checked(run.folder).text


def test_a_trace_has_steps_and_commands_at_their_times(tmp_path: Path) -> None:
    run = run_record.read_run(night(tmp_path).folder)
    trace = make_trace(run)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = {event["name"]: event for event in events if event["cat"] == "step"}
    ran = {step.id for step in run.steps.values() if step.state != "skipped"}
    assert steps.keys() == ran
    torch = steps["build-pytorch-cp312"]
    commands = [event for event in events if event["pid"] != torch["pid"]]
    assert len(commands) == 4568
    assert {event["cat"] for event in commands} == {"device", "host", "link"}
    assert all(torch["ts"] <= event["ts"] for event in commands)
    assert all(event["ts"] + event["dur"] <= torch["ts"] + torch["dur"] for event in commands)
    by_thread: dict[tuple[int, int], int] = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        thread = event["pid"], event["tid"]
        assert event["ts"] >= by_thread.get(thread, 0), "two at a time in a thread"
        by_thread[thread] = event["ts"] + event["dur"]
