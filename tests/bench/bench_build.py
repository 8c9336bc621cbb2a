"""What `build` costs beside the work of five stub projects, what it saves, and a peer's script on the same.

Run by hand: ``python tests/bench/bench_build.py [--peer PEER]``, where PEER is ``external-builds/pytorch`` of
a ROCm/TheRock checkout. Each front end computes for ``--work`` seconds on one processor; everything else is
as in a build of real projects: environment, checks of the wheels, installing torch. All figures are wall
times of whole processes; ratios are of two of the same run of this script. The peer's virtual environment
with its build tools is made before the clock starts; ours is made by the command itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from peer_lines import check_lines
from stub_projects import ROCM, TARGET, Stubs, calibrate, make_stubs, seconds

PARTS = ("overhead", "side-by-side", "again", "plan", "peer")
IMPORTS = (
    "import rocm_wheels.cli.main, rocm_wheels.cli.runs, rocm_wheels.pipeline.run_step, "
    "rocm_wheels.audit.verify"
)


def say(what: str, figure: str, note: str = "") -> None:
    print(f"{what:58} {figure:>10}  {note}".rstrip(), flush=True)


def overhead(stubs: Stubs) -> float:
    """Compare `build --jobs 1` with the very commands of its record, one by one; return its seconds."""
    stubs.edit()
    ours = seconds(stubs.words("work", "--jobs", "1"), stubs.working())
    events = stubs.events("work")
    base = {name: value for name, value in stubs.working().items() if name != "PYTHONPATH"}
    bare = 0.0
    for event in events:
        if event["event"] == "command":
            changes = event["environment"]
            env = {**base, **{name: value for name, value in changes.items() if value is not None}}
            env = {name: value for name, value in env.items() if changes.get(name, "") is not None}
            bare += seconds(["bash", "-c", event["command"]], env)
    steps = [event for event in events if event["event"] == "step-ended"]
    say("the five front ends, one after the other", f"{bare:.2f} s")
    say("`build --jobs 1`", f"{ours:.2f} s", f"{ours / bare - 1:+.1%}, goal < +10 %")
    inside = {event["step"]: event["seconds"] for event in events if event["event"] == "command"}
    within = sum(inside.values())
    say("  the front ends in that very run", f"{within:.2f} s", f"{ours / within - 1:+.1%} over them")
    say("  beside the front ends, a step", f"{(ours - within) / len(steps):.2f} s")
    for step in steps:
        more = step["seconds"] - inside[step["step"]]
        say(f"    {step['step']}", f"{more:.2f} s", "its process, without the front end")
    between = ours - sum(step["seconds"] for step in steps)
    say("    before, between and after the steps", f"{between:.2f} s")
    name, made = steps[-1]["step"], next(event["plan"] for event in events if event["event"] == "run-begun")
    alone = {
        "the imports of a step": [sys.executable, "-c", IMPORTS],
        "a step that is up to date": [sys.executable, "-m", "rocm_wheels", "run-step", name, "--plan", made],
    }
    for what, argv in alone.items():
        took = statistics.median(seconds(argv, stubs.env) for _ in range(5))
        say(f"    {what}, alone", f"{took:.2f} s", "median of 5")
    return ours


def side_by_side(stubs: Stubs, alone: float | None) -> None:
    """Compare one step at a time with as many as the machine has room for.

    ``alone``: what one step at a time took already.
    """

    def build(share: float, *more: str) -> float:
        stubs.edit()
        return seconds(stubs.words("work", *more), stubs.working(share))

    alone = alone or build(1, "--jobs", "1")
    together = build(1)
    say("one Python, one step at a time", f"{alone:.2f} s")
    say("one Python, as the machine allows", f"{together:.2f} s", f"{together / alone:.2f} of that")


def again(stubs: Stubs, python: str) -> None:
    """Run the same command when nothing changed."""
    for what, more in {"one Python": [], "two Pythons": pythons(python)}.items():
        if what == "two Pythons" and not python:
            continue
        seconds(stubs.words("work", *more), stubs.env)
        took = statistics.median(seconds(stubs.words("work", *more), stubs.env) for _ in range(5))
        say(f"nothing changed, five projects, {what}", f"{took:.2f} s", "median of 5, goal < 1 s")


def pythons(second: str) -> list[str]:
    return ["--python", sys.executable, "--python", second]


def plan(folder: Path) -> None:
    """Plan five projects for 28 targets, from facts to JSON."""
    from runs import finish, make_facts

    from rocm_wheels.models import gfx
    from rocm_wheels.pipeline.plan import PlanFile, make_plan_json, settle_all_steps
    from rocm_wheels.pipeline.step import Plan, make_steps

    def time_of(facts: Any) -> tuple[float, float, int]:
        begin = time.perf_counter()
        steps = settle_all_steps(make_steps(facts), facts)
        made = Plan(steps, facts.request.chosen_targets or ())
        middle = time.perf_counter()
        trees = {name: tree.identity for name, tree in facts.trees.items()}
        json.dumps(make_plan_json(PlanFile.from_plan(facts.request, made, trees, facts.locked)), indent=1)
        return middle - begin, time.perf_counter() - middle, len(steps)

    every = list(gfx.get_gfx_targets())
    new = make_facts(folder / "planned", targets=",".join(every), served=every)
    for state, facts in {"nothing done": new, "all done": finish(new)}.items():
        times = sorted(time_of(facts) for _ in range(5))
        planned, written, count = times[2]
        title = f"{len(every)} targets, {state}"
        say(title, f"{planned:.2f} s", f"{count} steps, goal < 0.5 s; as JSON {written:.2f} s more")


def list_peer_words(stubs: Stubs, peer: Path) -> list[str]:
    """Return the peer's build of all five."""
    folder = stubs.folder
    return [
        *(str(folder / "venv" / "bin" / "python"), str(peer / "build_prod_wheels.py")),
        *("build", "--install-rocm", "--find-links", str(stubs.packages)),
        *("--rocm-sdk-version", f"=={ROCM}", "--rocm-extras", f"device-{TARGET}"),
        *("--pytorch-rocm-arch", TARGET, "--root-checkout-dir", str(folder / "peer-sources")),
        *("--output-dir", str(folder / "peer-wheels")),
    ]


def beside_peer(stubs: Stubs, peer: Path) -> None:
    """Build where one project fails, then again with that one right: the peer's script, then ours.

    Both do half the work. The peer builds apex last; ours gets --keep-going, so that only apex is missing.
    """
    folder, bin = stubs.folder, stubs.folder / "venv" / "bin"
    shutil.copytree(stubs.sources, folder / "peer-sources")
    venv.create(folder / "venv", with_pip=True)
    tools = ["build", "wheel", "setuptools<82", "packaging", "cmake", "ninja"]
    env = {name: value for name, value in stubs.working(0.5).items() if name != "PYTHONPATH"}
    seconds([str(bin / "python"), "-m", "pip", "install", "-q", *tools], env)
    sides = {
        "peer": (list_peer_words(stubs, peer), {**env, "PATH": f"{bin}:{env['PATH']}"}),
        "ours": (stubs.words("beside", "--keep-going"), stubs.working(0.5)),
    }
    times: dict[str, tuple[float, float]] = {}
    counts: list[tuple[int, int]] = []
    for side, (command, its_env) in sides.items():
        output = "peer" if side == "peer" else "beside"
        first = seconds(command, {**its_env, "BENCH_FAIL": "apex"}, code=None)
        made = len(stubs.wheels(output))
        times[side] = first, seconds(command, its_env)
        counts.append((made, len(stubs.wheels(output))))
    if counts != [(4, 5)] * 2 or stubs.wheels("beside") != stubs.wheels("peer"):
        sys.exit(f"not the same wheels, or not where apex alone fails: {counts}")
    for row, what in enumerate(("first run, apex fails at its end", "again, apex is right now")):
        ours, its = times["ours"][row], times["peer"][row]
        say(what, f"{its / ours:.1f}", f"peer {its:.2f} s, ours {ours:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=float, default=6.0, metavar="SECONDS", help="of each front end [default: 6]"
    )
    parser.add_argument("--python", default="3.12", help="a second interpreter, '' for none [default: 3.12]")
    parser.add_argument("--peer", type=Path, help="external-builds/pytorch of a ROCm/TheRock checkout")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this; may be repeated [default: all]"
    )
    parser.add_argument("--check", action="store_true", help="only check the command lines")
    given = parser.parse_args()
    if given.check:
        stubs = Stubs(Path("/folder"), {}, 1)
        check_lines([stubs.words("work", "--keep-going", "--jobs", "1", *pythons("3.12"))])
        check_lines([list_peer_words(stubs, given.peer)] if given.peer else [])
        return
    if "peer" in (given.part or ()) and not given.peer:
        parser.error("--part peer needs --peer")
    wanted = given.part or [part for part in PARTS if part != "peer" or given.peer]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.perf_counter()
        rounds, slower = calibrate(given.work)
        say("two processes that compute, beside one alone", f"{slower:.2f}", "1.00: a processor for each")
        stubs = make_stubs(folder, rounds)
        if set(wanted) - {"plan", "peer"}:
            seconds(stubs.words("work"), stubs.env)
        alone: float | None = None
        for part in [part for part in PARTS if part in wanted]:
            print(f"-- {part}")
            match part:
                case "overhead":
                    alone = overhead(stubs)
                case "side-by-side":
                    side_by_side(stubs, alone)
                case "again":
                    again(stubs, given.python)
                case "plan":
                    plan(folder)
                case "peer":
                    beside_peer(stubs, given.peer.resolve())
        say("all of this", f"{time.perf_counter() - begin:.0f} s", f"{given.work:g} s of work a front end")


if __name__ == "__main__":
    main()
