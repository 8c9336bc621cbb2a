"""What else can go wrong in a build: damaged files, steps that hang or fail, runs in each other's way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from commands import Ended
from projects import TAG, World, finish, wait_until
from servers import serve_requests
from sources import GIT

from rocm_wheels.sources.lock import digest_lock, read_lock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]

TWO = ("--no-build-pytorch-audio",)
BESIDE = ("--jobs", "2", "--no-build-pytorch")  # triton and torchaudio, which then do not wait for each other
TRITON, TORCH, AUDIO = (f"build-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio"))
TOOLS = f"install-tools-{TAG}"
REPAIR = f"repair-pytorch-{TAG}"


@pytest.fixture
def built(world: World) -> World:
    """triton and torch are built."""
    ended = world.build(*TWO)
    assert ended.code == 0, ended.err
    world.calls()
    return world


def wheel(world: World, name: str) -> Path:
    return next(world.output.glob(f"{name}-*.whl"))


def built_wheel(world: World, project: str) -> Path:
    """A wheel as it was built, and before it is packaged."""
    return next((world.work / "built").glob(f"build-{project}-*/*.whl"))


def tampered(world: World) -> None:
    path = built_wheel(world, "pytorch")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swapped(world: World) -> None:
    """The wheel in the output folder, its size kept: the bytes that were verified come back."""
    path = wheel(world, "torch")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_another_version(world: World) -> None:
    for step, other in ((TRITON, {"format": 99}), (TORCH, {"inputs": ["a list"]})):
        path = world.work / "steps" / f"{step}.json"
        path.write_text(json.dumps({**world.stamp(step), **other}))


def half_installed(world: World) -> None:
    """As a kill in the middle of an installation leaves it; and torch has to be built again."""
    site = next(world.work.glob(f"environments/*/lib/python{sys.version_info[0]}.{sys.version_info[1]}"))
    shutil.rmtree(next((site / "site-packages").glob("triton-*.dist-info")))
    built_wheel(world, "pytorch").unlink()


DAMAGES: list[tuple[Callable[[World], object], str, set[str]]] = [
    (tampered, f"{TORCH}: starting ({{built}}/{TORCH}/torch-", {"pytorch"}),
    (
        lambda world: built_wheel(world, "triton").unlink(),
        f"{TRITON}: starting ({{built}}/{TRITON}/triton-",
        {"triton"},
    ),
    (lambda world: wheel(world, "torch").unlink(), f"{REPAIR}: starting ({{output}}/torch-", set()),
    (swapped, f"{REPAIR}: starting ({{output}}/torch-", set()),
    (
        lambda world: cut(world.work / "steps" / f"{TRITON}.json"),
        f"{TRITON}: starting (no earlier result)",
        {"triton"},
    ),
    (of_another_version, f"{TORCH}: starting (no earlier result)", {"triton", "pytorch"}),
    (half_installed, f"{TORCH}: starting ({{built}}/{TORCH}/torch-", {"pytorch"}),
]


@pytest.mark.contract_slow
def test_what_is_damaged_is_built_again_and_nothing_else(built: World) -> None:
    wheels = built.wheels()
    for damage, why, projects in DAMAGES:
        damage(built)
        ended = built.build(*TWO)
        assert ended.code == 0, ended.err
        assert why.format(output=built.output, built=built.work / "built") in ended.err
        assert {call.split()[0] for call in built.calls()} == projects
        assert built.wheels() == wheels


def test_what_an_earlier_run_left_may_be_half_or_torn(built: World) -> None:
    """One build, looked at again and again."""
    require_a_killed_installation_to_be_done_again(built)
    require_nothing_of_an_earlier_run_but_its_stamps(built)
    require_a_torn_list_of_wheels_to_be_named(built)


def require_a_killed_installation_to_be_done_again(built: World) -> None:
    """The installer itself takes packages for installed whose files it had not brought yet."""
    (site,) = built.work.glob("environments/*/tools/pytorch/lib/python*/site-packages")
    before = {path for path in site.rglob("*") if "__pycache__" not in path.parts}
    (place,) = built.work.glob("environments/.locks/*.packages")
    assert not (place / "unfinished").exists()
    (place / "unfinished").touch()
    (built.work / "steps" / f"{TOOLS}.json").unlink()
    shutil.rmtree(site / "setuptools" / "command")
    next(site.glob("packaging-*.dist-info/RECORD")).unlink()
    next(site.glob("wheel-*.dist-info/METADATA")).unlink()
    ended = built.build(*TWO)
    assert ended.code == 0, ended.err
    assert {path for path in site.rglob("*") if "__pycache__" not in path.parts} == before
    assert not (place / "unfinished").exists()
    assert built.calls() == []


def require_nothing_of_an_earlier_run_but_its_stamps(built: World) -> None:
    """Its record torn, its plan torn, its time in the future, as the sources': what is done stays done."""
    run = built.runs()[0]
    said = built.run("runs", "why", TRITON, run.id, "--work-dir", str(built.work))
    assert said.code == 0 and said.out.startswith(f"{TRITON}: up to date\n"), said
    assert f"  in run {run.id}: no earlier result\n" in said.out
    said = built.run("runs", "why", TRITON, f"{run.id}0", "--work-dir", str(built.work))
    assert (said.code, f"did you mean {run.id}?" in said.err) == (2, True), said
    cut(run.folder / "plan.json")
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"time":"2026-')
    shutil.copytree(run.folder, built.work / "runs" / "20991231-235959")
    for path in [built.sources / "triton" / "source.txt", built.work / "steps" / f"{TRITON}.json"]:
        os.utime(path, (4e9, 4e9))
    ended = built.build(*TWO)
    assert (ended.code, "nothing to do" in ended.err) == (0, True), ended.err
    assert built.calls() == []
    said = built.run("runs", "show", run.id, "--work-dir", str(built.work))
    assert (said.code, "the last line broke off" in said.out) == (0, True), said
    said = built.run("runs", "why", TRITON, "--work-dir", str(built.work))
    assert said.code == 2
    assert said.err.startswith("error: ") and "plan.json is no plan: it is not JSON" in said.err
    built.disturb("pytorch", "raise SystemExit('no')")
    (built.sources / "pytorch" / "source.txt").write_text("two")
    try:
        assert built.build(*TWO).code == 12  # its record is one of its own
    finally:
        (built.sources / "pytorch" / "source.txt").write_text("one")


def require_a_torn_list_of_wheels_to_be_named(built: World) -> None:
    cut(built.work / "collected.json")
    wheel(built, "triton").unlink()
    ended = built.build(*TWO)
    assert ended.code == 2
    assert f"error: {built.work}/collected.json is not the list of wheels that it must be" in ended.err
    assert "tip: delete it: wheels already in an output folder then count as somebody else's" in ended.err


@pytest.mark.contract_slow
def test_after_a_failure(world: World) -> None:
    """What runs ends, nothing begins; --keep-going: only what needs the failed step does not begin."""
    fails = "while not Path({!r}).exists(): time.sleep(0.02)\nraise SystemExit('error: broken')"
    world.disturb("triton", fails.format(str(world.place / "fail")))
    runs = str(world.work / "runs")
    over = f'any("step-ended" in line and "{TRITON}" in line for line in lines())'
    lines = f"lambda: ''.join(p.read_text() for p in Path({runs!r}).glob('*/events.jsonl')).splitlines()"
    touch = f"Path({str(world.place / 'fail')!r}).touch()"
    world.disturb("pytorch_audio", f"lines = {lines}\n{touch}\nwhile not {over}: time.sleep(0.02)")
    ended = world.build(*BESIDE)
    assert ended.code == 12
    assert "error: broken" in ended.err
    assert states(world) == {TRITON: "failed", AUDIO: "done"}
    assert [line.split()[-1] for line in ended.out.splitlines()[1:]] == ["verified", "failed"]

    shutil.rmtree(world.output)
    shutil.rmtree(world.work / "built")
    world.disturb("pytorch_audio", "raise SystemExit(3)")
    world.disturb("triton")
    ended = world.build("--no-build-pytorch")  # one at a time: torchaudio is first
    assert (ended.code, states(world)) == (12, {AUDIO: "failed"})
    assert [line.split()[-1] for line in ended.out.splitlines()[1:]] == ["failed", "built"]  # not built
    ended = world.build("--no-build-pytorch", "--keep-going")
    assert (ended.code, states(world)) == (12, {AUDIO: "failed", TRITON: "done"})
    assert ended.err.count("error: building pytorch_audio failed") == 1

    log = (
        "p = Path('build', '.ninja_log'); p.parent.mkdir(exist_ok=True); p.write_text('# ninja log v7\\n')\n"
    )
    for writes_log in (True, False):  # the log that an earlier ninja left says nothing of this build
        world.disturb("pytorch", (log if writes_log else "") + "raise SystemExit(3)")
        ended = world.build("--keep-going")
        (record,) = sorted(world.work.glob("runs/*/events.jsonl"))[-1:]
        assert ('"event":"ninja"' in record.read_text()) == writes_log
    (world.place / "fail").unlink()
    assert (ended.code, states(world)) == (12, {TRITON: "skipped", TORCH: "failed"})
    rows = [line for line in ended.out.splitlines() if "audio" in line]
    assert len(rows) == 1 and "not built" in rows[0]


@pytest.mark.contract_slow
def test_a_wheel_that_cannot_be_repaired_ends_the_run_and_is_not_built_again(world: World) -> None:
    """It asks for an executable stack. What was built stays."""
    library = world.sources / "pytorch" / "libtorch_hip.so"
    content = library.read_bytes()
    stack = (0x6474E551).to_bytes(4, "little")
    library.write_bytes(content.replace(stack + b"\6", stack + b"\7", 1))
    try:
        ended = world.build(*TWO)
        assert ended.code == 13 and "executable stack" in ended.err, ended.err
        assert "--plat none keeps wheels as they were built" in ended.err
        assert [name.split("-")[0] for name in world.wheels()] == ["triton"]
        world.calls()
        assert world.build(*TWO, "--plat", "none").code == 14, "its last check finds the stack"
        assert world.calls() == []
    finally:
        library.write_bytes(content)


def states(world: World) -> dict[str, str]:
    """Return the states of the builds of the newest run."""
    return {name: step.state for name, step in world.runs()[-1].steps.items() if name.startswith("build-")}


@pytest.mark.contract_slow
def test_runs_in_each_others_way(world: World) -> None:
    """The second names the first; a step that somebody does is not done by anybody else, others are."""
    go = world.place / "go"
    world.disturb("pytorch_audio", f"while not Path({str(go)!r}).exists(): time.sleep(0.02)")
    first = world.start(*world.words("--no-build-pytorch"))
    world.wait_for("pytorch_audio begun")
    second = world.build("--no-build-pytorch")
    assert second.code == 2
    assert f"error: {world.work} is in use by process {first.pid} (build)" in second.err
    assert "tip: wait for it to end, then run this again, or give this run another --work-dir" in second.err
    run = world.runs()[-1]
    plan = run.folder / "plan.json"
    same = world.run("run-step", AUDIO, "--plan", str(plan))
    assert same.code == 2
    pid = run.steps[AUDIO].begun["pid"]
    assert f"steps/.locks/{AUDIO} is in use by process {pid} (step {AUDIO})" in same.err
    other = world.run("run-step", TRITON, "--plan", str(plan))
    assert other.code == 0, other.err

    elsewhere = world.folder / "elsewhere"  # another work directory, for which ROCm is installed
    elsewhere.mkdir()
    for name in ("environments", "rocm"):
        (elsewhere / name).symlink_to(world.work / name)
    where = ["--work-dir", str(elsewhere), "--output-dir", str(elsewhere / "wheels"), "--keep-going"]
    third = world.build("--no-build-pytorch", *where)
    assert third.code == 2, third.err
    tree = world.sources / "pytorch_audio" / ".git" / "rocm-wheels"
    holder = run.steps[AUDIO].begun["pid"]
    assert f"error: {tree} is in use by process {holder} ({AUDIO})" in third.err
    assert "or build from another checkout" in third.err
    assert [path.name.split("-")[0] for path in (elsewhere / "wheels").glob("*.whl")] == ["triton"]
    shutil.rmtree(elsewhere)
    go.touch()
    ended = finish(first)
    go.unlink()
    assert ended.code == 0, ended.err
    assert world.calls() == [
        *("pytorch_audio begun", "triton begun", "triton done"),  # by run-step
        *("triton begun", "triton done"),  # in the other work directory
        "pytorch_audio done",
    ]
    assert [run.state for run in world.runs()] == ["done", "failed", "done"]


def planned(world: World, folder: Path, *more: str) -> Path:
    path = folder / "plan.json"
    said = world.run(*world.words(*(more or TWO), command="plan"), "-o", str(path))
    assert said.code == 0, said.err
    return path


def alone(world: World, step: str, plan: Path, **env: str) -> Ended:
    return world.run("run-step", step, "--plan", str(plan), **env)


@pytest.mark.contract_slow
def test_each_step_alone_and_what_keeps_it_from_running(world: World, tmp_path: Path) -> None:
    plan = planned(world, tmp_path)
    said = alone(world, TORCH, plan)
    assert said.code == 2
    assert f"error: {TORCH} needs {TOOLS}, which has not run yet" in said.err
    assert f"tip: run it first: rocm-wheels run-step {TOOLS} --plan {plan}" in said.err
    assert alone(world, TOOLS, plan).code == 0
    said = alone(world, TORCH, plan)
    assert f"error: {TORCH} needs {TRITON}, which has not run yet" in said.err

    source = world.sources / "triton" / "source.txt"
    source.write_text("two")
    said = alone(world, TRITON, plan)
    source.write_text("one")
    assert said.code == 2
    assert f"error: inputs of {TRITON} changed since it was planned:\n  sources (" in said.err
    assert "tip: make the plan again, where the step is to run" in said.err
    assert world.calls() == []

    for step in (TRITON, TORCH):
        said = alone(world, step, plan)
        assert (said.code, f"{step}: done (" in said.err) == (0, True), said.err
    said = alone(world, TORCH, plan)
    assert (said.code, said.err.count(f"{TORCH}: up to date")) == (0, 1), said.err
    built_wheel(world, "triton").unlink()
    said = alone(world, TORCH, plan)
    assert f"error: {TORCH} needs {TRITON}, but {world.work}/built/{TRITON}/triton-" in said.err

    world.disturb("triton", "raise SystemExit(3)")
    said = alone(world, TRITON, plan)
    assert (said.code, world.runs()[-1].state) == (12, "failed")
    world.calls()


@pytest.mark.contract_slow
def test_a_plan_holds_only_under_its_lock(world: World, tmp_path: Path) -> None:
    lock = tmp_path / "sources.lock.json"
    text = json.dumps(lock_of(world))
    lock.write_text(text)
    plan = planned(world, tmp_path)
    file = json.loads(plan.read_text())
    digest = digest_lock(read_lock(lock))
    plan.write_text(json.dumps({**file, "lock": [str(lock), digest]}))
    assert alone(world, TOOLS, plan).code == 0
    lock.write_text(text.replace('"master"', '"main"'))
    said = alone(world, TOOLS, plan)
    assert said.code == 10, said.err
    assert f"error: {lock} is not the lock that the plan was made under" in said.err
    assert "tip: make the plan again, or put the lock back" in said.err
    lock.unlink()
    assert alone(world, TOOLS, plan).code == 2


def lock_of(world: World) -> dict[str, object]:
    projects = {}
    for name in ("triton", "pytorch"):
        words = [*GIT, "rev-parse", "HEAD", "HEAD^{tree}"]
        said = subprocess.run(words, cwd=world.sources / name, check=True, capture_output=True, text=True)
        commit, tree = said.stdout.split()
        origin = f"https://github.com/{name}/{name}"
        projects[name] = {"origin": origin, "ref": "master", "why": "options", "commit": commit, "tree": tree}
    return {"lock_version": "1", "platform": "linux", "projects": projects, "rocm": "7.1.0"}


SECRET = "geheim-4711"


class _Index(BaseHTTPRequestHandler):
    """An index that asks for a password, takes its time, and has nothing."""

    seen: ClassVar[list[str]] = []
    go = threading.Event()

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        if given is None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="wheels"')
        else:
            self.seen.append(given)
            self.go.wait(20)
            self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def index() -> Iterator[str]:
    _Index.seen.clear()
    _Index.go.clear()
    with serve_requests(_Index) as url:
        yield f"{url.removeprefix('http://')}/simple"
        _Index.go.set()


@pytest.mark.contract_slow
def test_the_password_of_an_index_is_seen_by_nobody_but_the_index(
    world: World, index: str, tmp_path: Path
) -> None:
    """Neither in the plan, the record, a log or what is printed, nor in the arguments of any process."""
    url = f"http://user:{SECRET}@{index}"
    work = tmp_path / "work"
    words = ["--rocm-index", url, "--work-dir", str(work)]
    words += ["--install-rocm", "--source-dir", str(world.sources), "triton", "pytorch"]
    words += ["--output-dir", str(tmp_path / "out"), "--gfx", "gfx942"]
    plan = tmp_path / "plan.json"
    assert world.run("plan", *words, "-o", str(plan)).code == 0
    build = world.start("build", *words)
    wait_until(lambda: _Index.seen, "a question to the index")
    arguments = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in world.processes() if pid != build.pid
    }
    assert any(b"uv" in line for line in arguments.values())
    assert [line for line in arguments.values() if SECRET.encode() in line] == []
    _Index.go.set()
    ended = finish(build)
    assert ended.code == 11, ended.err
    step = f"install-rocm-{TAG}"
    said = alone(world, step, plan)
    assert said.code == 2
    assert f"error: the plan has --rocm-index http://***@{index}: its password is not in the plan" in said.err
    assert "tip: set ROCM_WHEELS_INDEX_URL" in said.err
    _Index.seen.clear()
    said = alone(world, step, plan, ROCM_WHEELS_INDEX_URL=url)
    assert said.code == 11, said.err
    assert _Index.seen
    assert SECRET not in ended.out + ended.err + said.err
    written = [path for path in [plan, *work.rglob("*")] if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
