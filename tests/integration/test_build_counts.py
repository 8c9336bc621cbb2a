"""What a build does once: it plans, parses its targets, opens and scans each wheel that it made."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from projects import World, finish

pytestmark = [pytest.mark.slow, pytest.mark.network]

# Loaded by the Python of `build` itself, of which its steps are forks (no front end sees PYTHONPATH): notes
# the calls of COUNTED.
COUNTER = r"""
import json, os, sys, threading

COUNTED = {
    "parse_targets": "gfx.py",
    "plan_run": "plan.py",
    "gather_facts": "facts.py",
    "settle_step": "plan.py",
    "scan_wheel": "scan.py",
    "read_archive_layout": "zip_format.py",  # whatever opens a wheel begins with it
}
STEPS = ("build-", "repair-", "install-")

def note_call(frame, event, _):
    code = frame.f_code
    if event != "call" or code.co_name not in COUNTED:
        return
    if os.path.basename(code.co_filename) == COUNTED[code.co_name] and "rocm_wheels" in code.co_filename:
        with open(os.environ["COUNTS"], "a") as file:
            opened = ""
            if code.co_name == "read_archive_layout":  # our own edit makes another file of the same name
                path = frame.f_back.f_locals["path"]
                opened = f"{path} {os.stat(path).st_ino}"
            process = next((word for word in sys.argv[1:] if word.startswith(STEPS)), "build")
            file.write(json.dumps([process, code.co_name, opened]) + "\n")

sys.setprofile(note_call)
threading.setprofile(note_call)
"""


def test_a_run_plans_once_and_a_step_looks_at_itself_alone(world: World, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(COUNTER)
    file = tmp_path / "counts"
    ended = finish(world.start(*world.words(), PYTHONPATH=str(tmp_path), COUNTS=str(file)))
    assert ended.code == 0, ended.err
    calls = [json.loads(line) for line in file.read_text().splitlines()]
    counts = Counter((process, name) for process, name, _ in calls)
    steps = {process for process, _ in counts} - {"build"}
    builds = {step for step in steps if step.startswith("build-")}
    repairs = {step for step in steps if step.startswith("repair-")}
    assert (len(steps), len(builds), len(repairs)) == (7, 3, 3)
    assert counts["build", "plan_run"] == counts["build", "gather_facts"] == 1
    assert {counts[step, "plan_run"] for step in steps} == {0}
    assert {counts[step, "gather_facts"] for step in steps} == {1}
    assert {counts[step, "settle_step"] for step in steps} == {1}  # its own, no other
    assert counts["build", "parse_targets"] == 1
    assert {counts[step, "parse_targets"] for step in steps} <= {0, 1}
    assert {counts[step, "scan_wheel"] for step in (*builds, *repairs)} == {1}
    opened = Counter((process, wheel) for process, name, wheel in calls if name == "read_archive_layout")
    assert {process for process, _ in opened} == builds | repairs
    # a finished wheel once for what it requires, and once by its checks; it is written again by repair alone
    assert {count for (process, _), count in opened.items() if process in builds} == {1, 2}
    assert counts["build", "scan_wheel"] == 0
