"""Builds that are killed, wherever: the next run makes the same wheels, and makes nothing twice.

Each kind of event is killed on one side, at one step; the exhaustive test kills on every side at every step.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from projects import TAG, World, finish, wait_until

from rocm_wheels.pipeline import run_record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

# Loaded by every Python of `build` itself (no front end sees PYTHONPATH): kills the run and the process of
# its step before, in the middle of, or after the writing of one event.
KILLER = r"""
import json, os, signal
from contextlib import suppress
from pathlib import Path

real, (side, event, step) = os.write, os.environ["KILLED"].split()

def read_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]  # and its parent

def list_children(pid):
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]

def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while read_state(pid)[0] not in "TZX":
        pass

def kill():
    pid, family = os.getpid(), []
    if event in PARENTS:  # a server that forks, those that wait for a step, steps: none forks meanwhile
        parents = [pid]
        for _ in range(3):
            children = []
            for parent in parents:
                with suppress(OSError):  # it has ended
                    children += list_children(parent)
            for child in children:
                with suppress(OSError):
                    stop(child)
            family, parents = [*children, *family], children
    else:
        waiting = os.getppid()
        server = read_state(waiting)[1]
        family = [int(read_state(server)[1])]
    for other in family:
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)

PARENTS = ("run-begun", "preflight", "step-skipped", "step-begun", "step-ended", "run-ended")

def write(file, data):
    data = bytes(data)  # wheels are written by views of memory
    line = json.loads(data) if data.lstrip().startswith(b'{"time"') else {}
    if (line.get("event"), line.get("step", "-")) != (event, step):
        return real(file, data)
    if side == "before":
        kill()
    if side == "within":
        real(file, data[: len(data) // 2])
        kill()
    real(file, data)
    kill()

os.write = write
"""


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killer")
    (folder / "sitecustomize.py").write_text(KILLER)
    return folder


def killed(
    world: World, killer: Path, side: str, event: str, step: str, *more: str
) -> run_record.RecordedRun:
    """Run `build` until it is killed there; return what can be read of its run."""
    env = {"PYTHONPATH": str(killer), "KILLED": f"{side} {event} {step}"}
    before = len(world.runs())
    ended = world.build(*more, **env)
    assert ended.code == -signal.SIGKILL, (side, event, step, ended)
    assert len(world.runs()) == before + 1
    return world.runs()[-1]


TWO = ("--no-build-pytorch-audio",)
STEPS = (
    f"install-tools-{TAG}",
    *(f"{kind}-{project}-{TAG}" for project in ("triton", "pytorch") for kind in ("build", "repair")),
)
EVENTS = {
    "install": ("step-begun", "packages", "packages", "step-ended"),
    "build": ("step-begun", "command", "audit", "built", "step-ended"),
    "repair": ("step-begun", "audit", "output", "step-ended"),
}
LATE = ("built", "output", "step-ended", "run-ended")  # by then the step is stamped


@pytest.mark.contract_slow
def test_killed_at_every_event_a_run_loses_nothing(world: World, killer: Path, exhaustive: bool) -> None:
    """Killed before or after each event of a build, the same build gets further with each run."""
    assert world.build(*TWO).code == 0
    wheels = world.wheels()
    events = [(event["event"], event.get("step", "-")) for event in world.runs()[-1].events]
    assert events == [
        *(("run-begun", "-"), ("preflight", "-"), ("step-skipped", f"install-rocm-{TAG}")),
        ("step-skipped", "probe-targets"),
        *((name, step) for step in STEPS for name in EVENTS[step.partition("-")[0]]),
        ("run-ended", "-"),
    ]
    world.reset()
    following = dict(zip(STEPS, [("step-begun", step) for step in STEPS[1:]], strict=False))
    for event, step in events:
        for side in choose_sides(event, step, exhaustive):
            last = STEPS[-1] if step == "-" else step
            if event in LATE:
                forget(world, last)
            run = killed(world, killer, side, event, step, *TWO)
            over = (event, side) == ("run-ended", "after")
            assert (run.state, run.torn) == ("done" if over else "killed", side == "within")
            assert all(wheels[name] == digest for name, digest in world.wheels().items()), (side, event, step)
            if event not in LATE:
                continue
            world.calls()
            if last in following:
                killed(world, killer, "before", *following[last], *TWO)
            else:
                ended = world.build(*TWO)
                assert (ended.code, "nothing to do" in ended.err) == (0, True), ended.err
            assert world.calls() == [], (side, event, step)
    assert world.wheels() == wheels


# where the suite kills: at each kind of event, on one side of it
SAMPLE = {
    ("run-begun", "-"): "within",
    ("step-begun", STEPS[0]): "before",
    ("command", STEPS[1]): "after",
    ("built", STEPS[1]): "within",
    ("output", STEPS[4]): "after",
    ("step-ended", STEPS[4]): "before",
    ("run-ended", "-"): "after",
}


def choose_sides(event: str, step: str, exhaustive: bool) -> tuple[str, ...]:
    """Choose where to kill: on every side of every event, or at samples."""
    if exhaustive:
        return (
            ("before", "within", "after")
            if event in ("run-begun", "built", "output")
            else ("before", "after")
        )
    return (SAMPLE[event, step],) if (event, step) in SAMPLE else ()


def forget(world: World, step: str) -> None:
    """Have a step that was done not be done."""
    stamp = world.work / "steps" / f"{step}.json"
    if stamp.exists() and step.startswith(("build-", "repair-")):
        for output in world.stamp(step)["outputs"]:
            Path(output["path"]).unlink()
    stamp.unlink(missing_ok=True)


SLEEPS = "subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); note('stubborn'); " + SLEEPS
# ends when it was asked to, and may
SLOW = """
global asked
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(note("asked")))
note("slow")
while not asked or not Path({go!r}).exists():
    time.sleep(0.02)
raise SystemExit("ended")
"""
BESIDE = ("--jobs", "2", "--no-build-pytorch")  # triton and torchaudio, which then do not wait for each other


@pytest.mark.contract_slow
def test_when_only_the_run_is_killed_the_next_one_ends_what_it_left(world: World) -> None:
    world.disturb("triton", SLEEPS)
    process = world.start(*world.words(*TWO))
    world.wait_for("triton begun")
    step = world.runs()[-1].steps[f"build-triton-{TAG}"].begun["pid"]
    process.kill()
    finish(process)
    assert step in world.processes()
    assert world.runs()[-1].state == "killed"
    world.disturb("triton")
    ended = world.build(*TWO)
    assert ended.code == 0, ended.err
    assert re.search(r"ended \d+ process(es)? of a run that was killed", ended.err)
    assert world.calls() == ["triton begun", "triton begun", "triton done", "pytorch begun", "pytorch done"]


def test_when_a_step_is_killed_its_programs_end_and_others_go_on(world: World) -> None:
    world.disturb("triton", SLEEPS)
    world.disturb("pytorch_audio", f"while not Path({str(world.place / 'go')!r}).exists(): time.sleep(0.02)")
    process = world.start(*world.words(*BESIDE))
    world.wait_for("triton begun")
    world.wait_for("pytorch_audio begun")
    os.kill(world.runs()[-1].steps[f"build-triton-{TAG}"].begun["pid"], signal.SIGKILL)
    wait_until(lambda: world.runs()[-1].steps[f"build-triton-{TAG}"].ended, "the end of the step")
    assert not [pid for pid in world.processes() if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
    (world.place / "go").touch()
    ended = finish(process)
    (world.place / "go").unlink()
    assert ended.code == 12
    assert f"error: build-triton-{TAG} was killed by signal 9 (log: {world.work}/runs/" in ended.err
    assert "tip: run the same command again; it continues where it stopped" in ended.err
    run = world.runs()[-1]
    assert (run.state, run.ended["exit_code"] if run.ended else None) == ("failed", 12)
    assert run.steps[f"build-pytorch_audio-{TAG}"].state == "done"
    assert f"triton {TAG}  " in ended.out and "killed" in ended.out
    world.calls()
    world.disturb("triton")
    assert world.build(*BESIDE).code == 0
    assert world.calls() == ["triton begun", "triton done"]


@pytest.mark.contract_slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_an_interrupted_run_ends_its_whole_tree(world: World, number: signal.Signals) -> None:
    """Also what does not listen: within the seconds that each is given, all at the same time."""
    stubborn, impatient, go = number == signal.SIGTERM, number == signal.SIGINT, world.place / "go"
    for name in ("triton", "pytorch_audio"):
        world.disturb(name, STUBBORN if stubborn else SLOW.format(go=str(go)) if impatient else SLEEPS)
    process = world.start(*world.words(*BESIDE))
    for name in ("triton", "pytorch_audio"):
        world.wait_for(f"{name} {'stubborn' if stubborn else 'slow' if impatient else 'begun'}")
    begin = time.monotonic()
    process.send_signal(number)
    if impatient:
        world.wait_for("triton asked")
        process.send_signal(number)
        go.touch()
    ended = finish(process)
    go.unlink(missing_ok=True)
    assert time.monotonic() - begin < 60
    assert world.processes() == []
    assert ended.code == 130, ended.err
    assert "error: interrupted\ntip: run the same command again; it continues where it stopped" in ended.err
    assert ended.err.count("interrupted\n") == 1, "said by the run, not by each step as well"
    run = world.runs()[-1]
    assert run.state == "interrupted"
    assert {run.steps[f"build-{name}-{TAG}"].state for name in ("triton", "pytorch_audio")} <= {
        "interrupted",
        "killed",
    }
