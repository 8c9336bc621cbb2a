"""``set evidence`` and ``set gate``: results of each kind become evidence, and a gate judges by it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from commands import take_down, transcript
from documents import CASE, WHOLE, a_set, junit, put_set, wheel

from rocm_wheels.cli import boundary, evidence, main
from rocm_wheels.cli import evidence as gate
from rocm_wheels.core.files import hash_file
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.release import wheel_set
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.testing import pytest_words

pytestmark = pytest.mark.contract

_ = transcript  # a fixture for every test here
MESSAGES = "evidence"
POLICY = """
channels:
  nightly:
    signed: false
    rules:
      audit: {fresh: 14d}
      complete: {}
      resolver: {fresh: 14d}
      smoke: {fresh: 14d, targets: one, pythons: one}
      tests: {fresh: 14d, targets: one, pythons: one, projects: [torch]}
"""


@dataclass(frozen=True)
class World:
    """A store with a set whose wheels lie in a folder, and what the last command printed."""

    root: Path
    document: wheel_set.SetDocument
    capsys: pytest.CaptureFixture[str]

    @property
    def wheels(self) -> list[Path]:
        return sorted((self.root / "wheels").glob("*.whl"))

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        code = boundary.run_command(main.cli, [str(word) for word in words])
        printed = self.capsys.readouterr()
        if "--json" not in words:
            take_down(words, code, printed.out + printed.err)
        return code, printed.out, printed.err

    def add(self, *words: str | Path) -> tuple[int, str, str]:
        return self.run("set", "evidence", "add", self.root / "store", "--set", self.document.id, *words)

    def gate(self, *words: str | Path) -> tuple[int, str, str]:
        policy = self.root / "policy.yaml"
        policy.write_text(POLICY)
        chosen = ("--set", self.document.id, "--channel", "nightly", "--policy", policy)
        return self.run("set", "gate", self.root / "store", *chosen, *words)

    def write(self, name: str, value: object) -> Path:
        path = self.root / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def found(self, kind: str, *tests: dict[str, Any], **changes: Any) -> Path:
        """Write results of an audit or a question to installers, as `set check` does."""
        found = Results(
            kind=kind,
            tool="rocm-wheels 1.2 set check",
            when=datetime(2026, 11, 21, 11, tzinfo=timezone.utc),
            host="runner-2",
            wheels={path.name: hash_file(path) for path in self.wheels},
            tests=tuple(TestResult(**test) for test in tests),
        )
        return self.write(f"{kind}.json", {**found.model_dump(mode="json", by_alias=True), **changes})

    def audited(self, bad: dict[str, str] | None = None, **changes: Any) -> Path:
        tests: list[dict[str, Any]] = []
        for name in (path.name for path in self.wheels):
            tests.append({"name": f"{name}: import", "outcome": "skipped", "wheels": (name,)})
            for check in ("record", "rpath"):
                fault = (bad or {}).get(name, "") if check == "rpath" else ""
                outcome = "failed" if fault else "passed"
                test = {"name": f"{name}: {check}", "outcome": outcome, "detail": fault, "wheels": (name,)}
                tests.append(test)
        return self.found("audit", *tests, **changes)

    def resolved(self) -> Path:
        return self.found("resolver", {"name": "torch, Python 3.12, uv", "outcome": "passed"})

    def smoke(self, *outcomes: Any, gfx: str | None = "gfx1030", **changes: Any) -> Path:
        tests = tuple(
            TestResult(name=f"t.py::test_{i}[gpu]", outcome=one, seconds=1) for i, one in enumerate(outcomes)
        )
        found = Results(
            kind="smoke",
            tool="rocm-wheels 1 tests",
            when=datetime(2026, 11, 21, 10, tzinfo=timezone.utc),
            host="runner-3",
            subject="torch 2.9.1+rocm7.1.0",
            gfx=gfx,
            wheels={path.name: hash_file(path) for path in self.wheels},
            tests=tests,
        )
        return self.write("results.json", {**found.model_dump(mode="json", by_alias=True), **changes})


@pytest.fixture
def world(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> World:
    folder = tmp_path / "wheels"
    folder.mkdir()
    files: list[wheel_set.SetFile] = []
    for planned in (wheel(p, v) for p in ("torch", "torchvision") for v in ("311", "312")):
        (folder / planned.name).write_bytes(planned.name.encode())
        files.append(planned.model_copy(update={"sha256": hash_file(folder / planned.name)}))
    document = a_set(*files)
    put_set(FolderStore(tmp_path / "store"), document)
    for module in (gate, evidence):
        monkeypatch.setattr(module, "current_time", clock)
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    return World(tmp_path, document, capsys)


def clock() -> Any:
    from documents import NOW

    return NOW


def with_age(path: Path) -> Path:
    """Files are of this morning."""
    seconds = clock().timestamp() - 3600
    os.utime(path, (seconds, seconds))
    return path


def test_a_set_is_held_until_all_its_evidence_is_there(world: World):
    assert world.gate()[0] == 15
    assert world.add("--from", world.audited())[0] == 0
    world.gate()
    assert world.add("--from", world.resolved())[0] == 0
    code, out, _err = world.gate("--explain")
    assert code == 15
    assert world.add("--from", world.smoke("passed", "passed", "skipped"))[0] == 0
    junit_xml = world.write("report.xml", WHOLE)
    torch = (
        "--wheels",
        next(path for path in world.wheels if path.name.startswith("torch-2.9.1+rocm7.1.0-cp312")),
    )
    assert world.add("--from", junit_xml, *torch, "--gfx", "gfx1030")[0] == 0
    code, out, _ = world.gate("--explain")
    assert code == 0, out
    assert "      20261121T100000Z-" in out
    said = json.loads(world.gate("--json")[1])
    assert (said["passed"], said["state"]) == (True, "reported, unsigned")
    assert said["next"].startswith(f"rocm-wheels set promote {world.root / 'store'} --set ")
    assert {rule["outcome"] for rule in said["rules"]} == {"pass"}


def test_what_is_wrong_with_a_set_as_a_whole_counts_for_each_wheel_of_it(world: World):
    tests = [{"name": "set: set-pins", "outcome": "failed", "detail": "requires torch==2.9.0"}]
    names = [path.name for path in world.wheels]
    tests += [{"name": f"{name}: record", "outcome": "passed", "wheels": (name,)} for name in names]
    code, out, err = world.add("--from", world.found("audit", *tests), "--json")
    assert code == 0, err
    made = json.loads(out)
    assert {one["outcome"] for one in made} == {"fail"} and len(made) == len(names)
    assert {tuple(one["failed"]) for one in made} == {("set: set-pins: requires torch==2.9.0",)}
    hashes = {hash_file(path) for path in world.wheels}
    assert {sha for one in made for sha in one["hashes"]} == hashes
    code, out, _ = world.gate("--json")
    [rule] = [rule for rule in json.loads(out)["rules"] if rule["title"] == "audit"]
    assert (code, rule["outcome"]) == (15, "fail")


def test_results_do_not_become_younger_with_their_file(world: World):
    """Copied, they are as old as they were."""
    when = "2026-11-20T09:00:00+00:00"
    (made,) = json.loads(world.add("--from", with_age(world.audited(when=when)), "--json")[1])
    assert (made["when"], made["tool"]) == ("2026-11-20T09:00:00Z", "rocm-wheels 1.2 set check")
    assert len(made["source"]) == 64


def test_a_failure_that_comes_later_holds_the_set_again(world: World):
    assert world.add("--from", world.smoke("passed"))[0] == 0
    assert world.add("--from", world.smoke("passed", "failed", when="2026-11-21T11:30:00Z"))[0] == 0
    assert world.gate()[0] == 15


def test_the_same_result_twice_is_one_and_failures_are_named(world: World):
    results = world.smoke("passed", "crashed", "timeout", gfx="gfx1030:sramecc-")
    first, again = world.add("--from", results), world.add("--from", results)
    assert (first[0], again[0]) == (0, 0)
    assert again[1].count("(was there already)") == 1
    printed = world.run("set", "show", world.root / "store", "--set", world.document.id)[1]
    ((_, name, *_),) = [line.split() for line in printed.splitlines() if line.startswith("evidence ")]
    shown = world.run("set", "show", world.root / "store", "--set", world.document.id, name)[1]
    assert all(path.name in shown for path in world.wheels)


def test_wheels_that_fail_are_told_from_those_that_pass(world: World):
    bad, *good = (path.name for path in world.wheels)
    results = world.audited({bad: "/opt/rocm in it", good[0]: "not in it"})
    code, out, _ = world.add("--from", results, "--json")
    made = sorted(json.loads(out), key=lambda one: (one["outcome"], one["failed"]))
    assert (code, [one["outcome"] for one in made]) == (0, ["fail", "fail", "pass"])
    assert made[0]["failed"] == [f"{bad}: rpath: /opt/rocm in it"]
    assert made[1]["failed"] == [f"{good[0]}: rpath: not in it"]
    assert len(made[2]["hashes"]) == 2


def test_reports_of_shards_that_are_not_all_there_are_no_pass(world: World):
    shards = world.root / "shards"
    shards.mkdir()
    (shards / "1.xml").write_text(WHOLE)
    wheels = ("--wheels", world.wheels[1], "--gfx", "gfx1030")
    code, out, _ = world.add("--from", shards, "--reports", "2", *wheels)
    assert (code, "1 of 2 reports" in out) == (0, True)
    for less in (
        ("--from", shards / "1.xml", *wheels),
        ("--from", shards / "1.xml", *wheels[:2], "--gfx", "gfx1031"),
    ):
        assert world.add(*less)[0] == 15
    (shards / "2.xml").write_text(junit(CASE, tests=1)[:-12])
    code, out, _ = world.add("--from", shards, "--reports", "2", *wheels)
    assert code == 0
    assert world.gate()[0] == 15


def test_junit_reports_are_of_the_suite_that_is_named(world: World):
    """What names none counts as the suite default, and what names another one does not."""
    flaky = '<testcase name="a"/><testcase name="b"><flakyFailure message="x"/></testcase>'
    report = world.write("full.xml", junit(flaky, tests=2, timestamp="2026-11-21T10:00:00+02:00"))
    given = ("--from", report, "--wheels", world.wheels[1], "--gfx", "gfx1030")
    code, out, err = world.add(*given, "--suite", "full", "--json")
    assert code == 0, err
    (entry,) = json.loads(out)
    assert code == 0 and entry["suite"]["name"] == "full"
    assert entry["counts"]["passed"] == 1 and entry["counts"]["flaky"] == 1
    titles = {item["title"]: item for item in json.loads(world.gate("--json")[1])["rules"]}
    assert "tests (default)" in titles and not any(title.startswith("tests (full)") for title in titles)
    assert world.add("--from", world.smoke("passed"), "--suite", "full")[0] == 2


def test_a_result_on_a_gpu_that_the_set_is_not_for_is_kept_and_named(world: World):
    assert world.add("--from", world.smoke("passed", gfx="gfx90a"))[0] == 0
    assert "no rule asks" not in world.add("--from", world.smoke("passed"))[2]


def test_a_result_that_died_before_it_saw_a_gpu_can_be_given_one(world: World):
    assert world.add("--from", world.smoke("crashed", gfx=None), "--gfx", "gfx1030")[0] == 0


def test_evidence_shows_the_machine_that_tests_ran_on(world: World):
    card = {"name": "AMD Instinct MI210", "gfx": "gfx90a", "firmware": {"mec": "0x000000b8"}}
    machine = {"kernel": "Linux 6.8.0", "driver": "6.12.12", "cpu_features": ["amx_int8"], "gpus": [card]}
    code, out, err = world.add("--from", world.smoke("passed", machine=machine), "--json")
    assert code == 0, err
    (made,) = json.loads(out)
    of = world.root / "store", "--set", world.document.id
    shown = world.run("set", "show", *of, made["id"])[1]
    for part in ("Linux 6.8.0", "amdgpu 6.12.12", "amx_int8", "AMD Instinct MI210", "mec 0x000000b8"):
        assert part in shown
    again = json.loads(world.run("set", "show", *of, "--json", made["id"])[1])["machine"]
    assert (again["driver"], again["gpus"][0]["firmware"]) == ("6.12.12", card["firmware"])
    wrong = {**machine, "driver": "6\n12"}
    assert world.add("--from", world.smoke("passed", machine=wrong))[0] == 2, "one line each"


def test_results_of_chosen_tests_say_so(world: World):
    """As they say it themselves; what pytest was told may choose, but for what changes how they are shown."""
    for told, chosen in (
        (["-v", "-ra", "--tb=short", "-x", "--durations=5", "-p", "no:xdist"], []),
        (["-p", "plugin"], ["plugin"]),
        (["-k", "two words", "-v"], ["-k", "two words"]),
        (["test_versions.py"], ["test_versions.py"]),
        (["--smoke-device=cpu"], ["--smoke-device=cpu"]),
    ):
        assert pytest_words.find_selecting_words(told) == chosen
    for says in ("", "-k 'two words'; 3 tests left out"):
        results = world.smoke("passed", "passed", selected=says)
        (made,) = json.loads(world.add("--from", results, "--json")[1])
        assert made.get("selected", "") == says
    world.gate()


def test_tests_that_were_not_come_to_are_no_pass(world: World):
    assert world.add("--from", world.smoke("passed", "missing"))[0] == 0
    assert (
        world.add("--from", world.smoke("passed", "failed", "missing"))[1].count(
            "fail (1 passed, 1 failed, 1 miss"
        )
        == 1
    )


def test_json_has_all_that_is_told_and_what_holds_it_is_told_first(world: World):
    assert world.add("--from", world.audited())[0] == 0
    assert world.add("--from", world.smoke(*["failed"] * 6))[0] == 0
    code, out, _ = world.gate("--json")
    said = json.loads(out)
    assert (code, said["schema"], said["passed"], said["policy"]) == (
        15,
        1,
        False,
        str(world.root / "policy.yaml"),
    )
    assert set(said) == {
        *("schema", "set", "family", "channel", "when", "passed", "state", "rules", "targets", "ignored"),
        *("notes", "next", "policy", "signed", "evidence"),
    }  # fmt: skip
    assert said["next"].startswith(f"rocm-wheels set check {world.root / 'store'} ")
    assert [(one["kind"], one["outcome"], one["signer"]) for one in said["evidence"]] == [
        ("smoke", "fail", ""),
        ("audit", "pass", ""),
    ]
    of = (world.root / "store", "--set", world.document.id)
    assert json.loads(world.run("set", "show", *of, "--json")[1])["evidence"] == said["evidence"]
    first = said["evidence"][0]
    assert json.loads(world.run("set", "show", *of, "--json", first["id"])[1]) == first
    lines = world.gate("--explain")[1].splitlines()
    words = [line.split()[0] for line in lines[1:] if line[2] != " "]
    assert words == ["FAIL"] * 4 + ["pass"] * 4 + ["users"] * 2 + ["next:"]
    failed = [line for line in lines if "failed: t.py" in line]
    assert len(failed) == 4


Write = Callable[[World], list[Any]]


def _other_bytes(world: World) -> list[Any]:
    results = world.audited()
    world.wheels[0].write_bytes(b"another build")
    return ["--from", world.audited() if results else ""]


WRONG: dict[str, tuple[Write, int]] = {
    "no results": (lambda w: ["--from", w.root / "none.json"], 2),
    "an empty file": (lambda w: ["--from", w.write("a.json", "")], 2),
    "truncated": (lambda w: ["--from", w.write("a.json", w.audited().read_text()[:-9])], 2),
    "something else": (lambda w: ["--from", w.write("a.json", {"a": 1})], 2),
    "a list of something else": (lambda w: ["--from", w.write("a.json", [{"a": 1}])], 2),
    "no reports": (lambda w: ["--from", w.write("a.json", {"tool": "audit", "wheels": []})], 2),
    "another build": (_other_bytes, 15),
    "another set": (
        lambda w: ["--from", w.smoke("passed", wheels={"torch-1-py3-none-any.whl": "0" * 64})],
        15,
    ),
    "of no bytes": (lambda w: ["--from", w.smoke("passed", wheels={"torch-1-py3-none-any.whl": None})], 2),
    "smoke without wheels": (lambda w: ["--from", w.smoke("passed", wheels={})], 2),
    "smoke of a later form": (lambda w: ["--from", w.smoke("passed", schema=2)], 2),
    "smoke on another GPU": (lambda w: ["--from", w.smoke("passed"), "--gfx", "gfx942"], 2),
    "smoke without a GPU as if with one": (
        lambda w: ["--from", w.smoke("passed", gfx=None), "--gfx", "gfx1030"],
        2,
    ),
    "smoke as if it were torch's own tests": (
        lambda w: [
            *("--from", w.write("a.xml", junit(CASE, name="smoke @gfx1030"))),
            *("--wheels", w.wheels[0], "--gfx", "gfx1030"),
        ],
        2,
    ),
    "of a form of before": (
        lambda w: ["--from", w.write("old.json", {"schema": 1, "tool": "x smoke tests", "tests": []})],
        2,
    ),
    "of the year 0": (lambda w: ["--from", w.smoke("passed", when="0001-01-01T00:00:00+14:00")], 2),
    "nested without end": (lambda w: ["--from", w.write("a.json", "[" * 200_000)], 2),
    "from the future": (lambda w: ["--from", w.smoke("passed", when="2027-01-01T00:00:00Z")], 2),
    "found in the last second there is": (
        lambda w: ["--from", w.smoke("passed", when="9999-12-31T23:59:59Z")],
        2,
    ),
    "no such target": (lambda w: ["--from", w.audited(), "--gfx", "gfx1033x"], 2),
    "JUnit without a GPU": (lambda w: ["--from", w.write("a.xml", WHOLE), "--wheels", w.wheels[0]], 2),
    "no wheels in a folder": (
        lambda w: ["--from", w.write("a.xml", WHOLE), "--wheels", w.root, "--gfx", "gfx1030"],
        2,
    ),
    "JUnit without wheels": (lambda w: ["--from", w.write("a.xml", WHOLE), "--gfx", "gfx1030"], 2),
    "JUnit of two Pythons": (
        lambda w: ["--from", w.write("a.xml", WHOLE), "--wheels", w.root / "wheels", "--gfx", "gfx1030"],
        2,
    ),
    "a folder of JUnit": (
        lambda w: ["--from", w.root / "wheels", "--wheels", w.wheels[0], "--gfx", "gfx1030"],
        2,
    ),
    "counted reports that are none": (lambda w: ["--from", w.audited(), "--reports", "3"], 2),
    "no such key": (lambda w: ["--from", w.audited(), "--sign-with", w.root / "key"], 2),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_and_nothing_is_written(world: World, case: str):
    write, expected = WRONG[case]
    words = write(world)
    for path in world.root.glob("*.json"):
        if case != "from the future":
            with_age(path)
    assert world.add(*words)[0] == expected
    assert not list((world.root / "store").rglob("evidence/*/*"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("set", "gate", "STORE", "--set", "2.9.2", "--channel", "nightly"), 15),
        (("set", "gate", "STORE", "--set", "2.9.1", "--channel", "nightli"), 2),
        (("set", "gate", "STORE", "--set", "2.9.1", "--channel", "nightly", "--policy", "p"), 2),
        (("set", "show", "STORE", "--set", "2.9.1", "2026"), 2),
        (("set", "gate", "STORE", "--set", "2.9.1"), 2),
    ],
)
def test_wrong_questions(world: World, words: tuple[str, ...], expected: int):
    store = str(world.root / "store")
    assert world.run(*(store if word == "STORE" else word for word in words))[0] == expected
