"""The matrix of CI: every cell is built or has a reason, and one entry adds a family, a Python, a runner."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocm_wheels.ci import matrix, matrix_report
from rocm_wheels.cli import boundary, main
from rocm_wheels.cli.matrix import matrix_command as command
from rocm_wheels.core import errors, records
from rocm_wheels.models import ci, gfx, package_indexes, project_names, release_lines, torch_tests

TABLE = ci.load_ci_table()
# a Tuesday; what takes turns is tested by its days
select = partial(matrix.MatrixSelection, day=date(2026, 11, 24))
TEXT = (project_names.get_data_folder() / "ci.yaml").read_text(encoding="utf-8")


def list_built(*trigger: Any, table: ci.CiTable = TABLE, **chosen: Any) -> Sequence[matrix.BuiltCell]:
    return matrix.plan_matrix(table, select(*trigger, **chosen)).built


def of_line(line: str, platform: str, cells: Sequence[matrix.BuiltCell]) -> list[matrix.BuiltCell]:
    return [one for one in cells if matrix.line_key(one) == (line, platform)]


def with_text(old: str, new: str) -> ci.CiTable:
    assert old in TEXT
    return records.parse_record(TEXT.replace(old, new, 1), ci.CiTable, name="ci.yaml")


def ask(*words: str, **env: str) -> str:
    """Return what the command prints, which ends well."""
    ended = CliRunner().invoke(command, words, env=env)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.parametrize("trigger", TABLE.triggers)
def test_every_cell_is_built_or_left_out_with_a_reason(trigger: str) -> None:
    planned = matrix.plan_matrix(TABLE, select(trigger))
    cells = [one.cell for one in (*planned.built, *planned.excluded)]
    assert len(cells) == len(set(cells)) and planned.built
    assert all(one.reason for one in planned.excluded)
    for one in planned.built:
        assert list(matrix.list_exclusions(TABLE, select(trigger), one.cell)) == []
        assert bool(one.tests) == bool(one.tester) != bool(one.untested)
        assert one.targets == gfx.get_gfx_families()[one.cell.family]


def test_triggers_grow_and_families_hold_each_target_once() -> None:
    """What a pull request builds of the newest line is built at night, too."""
    night = {one.cell for one in list_built("nightly")}
    for trigger in ("presubmit", "postsubmit", "release"):
        assert {one.cell for one in list_built(trigger)} <= night
    families = gfx.get_gfx_families()
    built = Counter(target for name in TABLE.all_families for target in families[name])
    assert built == Counter([*gfx.get_gfx_targets()])


def test_a_target_without_an_entry_is_a_family_of_its_own() -> None:
    table = with_text("  gfx1152: {fact: *families, since: nightly, linux: {}, windows: {}}\n", "")
    alone = list_built("nightly", families=("gfx1152",), lines=("2.13",), table=table)
    assert {one.untested for one in alone} == {"no runner has such a GPU"}
    left = matrix.plan_matrix(table, select("presubmit")).excluded
    reason = next(one.reason for one in left if one.cell.family == "gfx1152")
    assert reason == "the family is built since nightly, not in presubmit"


@pytest.mark.parametrize(
    ("cell", "trigger", "said"),
    [
        ("gfx94X-dcgpu/3.12/2.13/windows", "nightly", "the family is not built on windows"),
        ("gfx900/3.12/2.14/linux", "presubmit", "since nightly, not in presubmit"),
        ("gfx90c/3.12/2.13/linux", "nightly", "not built for it yet"),
        ("gfx94X-dcgpu/3.10/nightly/linux", "nightly", "not released for Python 3.10"),
        ("gfx94X-dcgpu/3.15t/2.13/linux", "nightly", "(without a GIL 3.14t)"),
        ("gfx94X-dcgpu/3.15/nightly/linux", "nightly", "Requires-Python <3.15"),
        ("gfx94X-dcgpu/3.12/2.15/linux", "nightly", "AMD has released no ROCm with torch 2.15"),
        ("gfx94X-dcgpu/3.12/2.6/windows", "nightly", "torch 2.6 is not made for windows"),
    ],
)
def test_a_cell_that_is_left_out_says_why(cell: str, trigger: str, said: str) -> None:
    assert said in ask("--explain", cell, "--trigger", trigger)


def test_machines_share_the_work_as_the_table_says() -> None:
    shares = [
        ci.CiRunner(label=label, machines=ci.MachineCount(count=count, source="x", kind="documented"))
        for label, count in (("a", 28), ("b", 5))
    ]
    assert Counter(ci.share_jobs(shares, 330)) == {"a": 280, "b": 50}
    assert "b" in ci.share_jobs(shares, 7)  # also of few jobs some
    assert ci.share_jobs([], 3) == []
    nightly = list_built(families=("gfx94X-dcgpu",))
    assert len({one.tester for one in nightly}) == 2
    # also where each line is planned by itself, as workflows do
    alone = [
        one
        for line in dict.fromkeys(one.cell.line for one in nightly)
        for one in list_built(families=("gfx94X-dcgpu",), lines=(line,), rocm="10.2")
    ]
    assert {one.cell: one.tester for one in alone} == {one.cell: one.tester for one in nightly}
    assert {one.rocm for one in alone} == {"10.2"}


def test_machines_for_a_purpose_test_alone() -> None:
    """A family without any is not tested on others in their place."""
    usual = {one.tester for one in list_built()}
    for pool, families in (("oem", {"gfx1151"}), ("sandbox", {"gfx94X-dcgpu", "gfx950-dcgpu"})):
        cells = list_built(pool=pool)
        assert {one.cell.family for one in cells if one.tests} == families
        assert not {one.tester for one in cells if one.tests} & usual
        assert {one.untested for one in cells if not one.tests} == {f"no runner of the pool {pool}"}
    assert "linux-strix-halo-gpu-rocm-oem" in ask(
        *("--family", "gfx1151", "--line", "2.13", "--platform", "linux", "--rows", "tested"),
        ROCM_WHEELS_RUNNERS="oem",
    )


def test_one_build_of_each_line_and_platform_warms_the_cache_for_the_others() -> None:
    """The cheapest, by what is stated."""
    cells = list_built()
    first = matrix.choose_cheapest(matrix.combine_builds(cells), TABLE)
    assert len(first) == len({matrix.line_key(one) for one in cells})
    for build in first:
        mine = [one for one in cells if matrix.line_key(one) == matrix.line_key(build)]
        assert len(build.targets) == min(len(one.targets) for one in mine)


@pytest.mark.contract
def test_rows_are_what_a_workflow_needs() -> None:
    cells = of_line("2.13", "linux", list_built())
    rows = matrix_report.make_rows(cells, TABLE, "cells")
    assert len({row["name"] for row in rows}) == len(rows) == len(cells)
    assert [row["first"] for row in rows].count(True) == 1
    (line,) = matrix_report.make_rows(cells, TABLE, "lines")
    pythons = matrix_report.make_rows(cells, TABLE, "pythons")
    assert line["pythons"].split() == [row["python"] for row in pythons] and line["cells"] == len(cells)
    # triton has no device code and torchaudio that of all: they are built once a Python
    assert {row["projects"] for row in pythons} == {"triton"}
    assert {row["projects"] for row in rows} == {"pytorch apex pytorch_vision"}
    alike = ("name", "python", "targets", "rocm")
    audio = matrix_report.make_rows(cells, TABLE, "companions")
    assert [[row[key] for key in alike] for row in audio] == [[row[key] for key in alike] for row in pythons]
    assert {row["projects"] for row in audio} == {"pytorch_audio"}
    devices = ",".join(f"device-{target}" for target in line["targets"].split(","))
    assert ({row["extras"] for row in pythons}, {row["extras"] for row in audio}) == ({""}, {devices})
    assert {row["targets"] for row in audio} == {line["targets"]}
    # each is built against the torch of a cell of its Python: the first one, if it is; another is in reserve
    named = {row["name"]: row for row in rows}
    for row in audio:
        torch, reserve = named[row["torch"]], named[row["reserve"]]
        assert torch["python"] == reserve["python"] == row["python"] and torch != reserve
    assert [row["name"] for row in rows if row["first"]] == [
        row["torch"] for row in audio if named[row["torch"]]["first"]
    ]
    (alone,) = matrix_report.make_rows(cells[:1], TABLE, "companions")
    (first,) = matrix_report.make_rows(cells[:1], TABLE, "cells")
    assert (alone["torch"], alone["reserve"]) == (first["name"], "")
    assert set(line["targets"].split(",")) == {target for one in cells for target in one.targets}


def multi_arch(*lines: str, trigger: str = "nightly") -> list[matrix.BuiltCell]:
    return list(list_built(trigger, lines=lines, layout="multi-arch"))


@pytest.mark.contract
def test_the_layout_is_that_of_the_trigger_unless_somebody_says_another() -> None:
    table = with_text("    about: every night\n", "    about: every night\n    layout: multi-arch\n")
    for chosen, staged in ((None, {"multi-arch"}), ("per-family", None)):
        planned = matrix.plan_matrix(table, select(lines=("2.13",), layout=chosen))
        assert planned.selection.layout == (chosen or "multi-arch")
        families = {one.cell.family for one in planned.built}
        assert {one.staged_as for one in planned.built} == (staged or families)
    words = ["--line", "2.13", "--platform", "linux"]
    said = ask(*words, ROCM_WHEELS_LAYOUT="multi-arch", COLUMNS="200")
    assert "\nlinux     2.13   multi-arch " in said and " in 5 builds\n" in said
    assert "smoke and torch's own (" in said and re.search(r"\n {19}gfx94X-dcgpu .*smoke", said)
    told = json.loads(ask(*words, "--layout", "multi-arch", "--json"))
    assert told["layout"] == "multi-arch" and len(told["builds"]) == 5
    assert {one["build"] for one in told["cells"]} == {one["build"] for one in told["builds"]}
    words = ["--explain", "gfx1151/3.12/2.13/linux", "--layout", "multi-arch"]
    assert "as part of multi-arch/3.12/2.13/linux" in ask(*words)
    told = json.loads(ask(*words, "--json"))
    assert told["built"] and told["build"] == "multi-arch/3.12/2.13/linux"
    left = ["--explain", "gfx90c/3.12/2.13/linux", "--json"]
    assert json.loads(ask(*left))["build"] is None


def test_a_set_of_which_one_python_is_for_fewer_targets_is_warned_of() -> None:
    """Its gate holds it: nothing in the set says that a target is meant to be lacking."""
    old = '  - {families: [gfx90c], lines: ["2.13", "2.14"], platforms: [linux]'
    table = with_text(old, f'{old}, pythons: ["3.12"]')
    chosen = select(lines=("2.12", "2.13"), platforms=("linux",), layout="multi-arch")
    (said,) = matrix.list_warnings(matrix.plan_matrix(table, chosen).built, table)
    assert "multi-arch of torch 2.13 on linux: Python 3.12 without gfx90c" in said
    for calm, other in ((table, {"layout": "per-family"}), (TABLE, {"lines": ()})):
        assert matrix.list_warnings(matrix.plan_matrix(calm, replace(chosen, **other)).built, calm) == []


@pytest.mark.contract
def test_outputs_of_a_step(tmp_path: Path) -> None:
    place = tmp_path / "output"
    place.write_text("before=1\n")
    words = ["--trigger", "presubmit", "--rows", "cells"]
    done = CliRunner().invoke(command, words, env={"GITHUB_OUTPUT": str(place)})
    assert done.exit_code == 0, done.output
    before, cells, count = place.read_text().splitlines()
    built = list_built("presubmit")
    assert (before, count) == ("before=1", f"cells_count={len(built)}")
    assert json.loads(cells.removeprefix("cells=")) == json.loads(done.stdout)
    several = [*words[:2], "--rows", "lines", "--rows", "first"]
    both = CliRunner().invoke(command, several, env={"GITHUB_OUTPUT": str(place)})
    *_, lines, line_count, first, first_count = place.read_text().splitlines()
    assert [f"lines={both.stdout.splitlines()[0]}", f"first={both.stdout.splitlines()[1]}"] == [lines, first]
    lines_built = len({(one.cell.line, one.cell.platform) for one in built})
    assert (line_count, first_count) == (f"lines_count={lines_built}", f"first_count={lines_built}")
    place.write_text("\n".join(place.read_text().splitlines()[:3]) + "\n")
    elsewhere = CliRunner().invoke(command, words, env={"GITHUB_OUTPUT": None})
    assert (elsewhere.exit_code, elsewhere.stdout) == (0, done.stdout)
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match="No space") as full:
            matrix_report.set_outputs({"GITHUB_OUTPUT": "/dev/full"}, {"a": "b"})
        assert full.value.filename == "/dev/full"
    for unwritable in (tmp_path / "no" / "output", tmp_path):
        env = {"GITHUB_OUTPUT": str(unwritable)}
        nowhere = CliRunner().invoke(command, words, env=env)
        assert isinstance(nowhere.exception, errors.UsageError)
        assert "which cannot be written" in str(nowhere.exception)
    matrix_report.set_outputs({"GITHUB_OUTPUT": str(place)}, {"several": "a\nend=2\nb"})
    assert place.read_text().splitlines()[3].startswith("several<<end-")


def change(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """Have these files changed since any commit."""
    monkeypatch.setattr(matrix_report, "list_changed_since", lambda *_: list(paths))


def test_a_patch_for_a_line_that_the_trigger_does_not_build_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--trigger", "presubmit", "--cheapest", "--rows", "lines", "--since", "HEAD"]
    for lines in (["2.13"], ["2.12", "2.13"]):
        change(monkeypatch, *(f"patches/triton/{line}/base/0001-x.patch" for line in lines))
        rows = json.loads(ask(*words))["include"]
        assert {row["line"] for row in rows} == set(lines) and {row["cells"] for row in rows} == {1}
    change(monkeypatch, "patches/triton/2.13/x")
    assert json.loads(ask(*words, "--line", "2.14")) == {"include": []}


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--trigger", "nightli"], {}, "did you mean nightly?"),
        (["--trigger", "nightli", "--since", "HEAD"], {}, "did you mean nightly?"),
        (["--trigger", "nightli", "--explain", "gfx1151/3.12/2.13/linux"], {}, "did you mean nightly?"),
        (["--family", "gfx942"], {}, "gfx942 is built with gfx94X-dcgpu"),
        (["--family", "dcgpu-all"], {}, "dcgpu-all is built with gfx94X-dcgpu"),
        (["--family", "RX 7900 XTX, gfx1151"], {}, "RX 7900 XTX is built with gfx110X-all"),
        (["--family", "gfx90a:xnack-"], {}, "gfx90a:xnack- is built with gfx90a"),
        (["--family", "gfx13"], {}, "there is no family 'gfx13'"),
        (["--family", "multi-arch"], {}, "all of a run together: --layout multi-arch"),
        (["--family", ","], {}, "an empty list"),
        (["--python", "3.8"], {}, "there is no Python that torch is built for '3.8'"),
        (["--line", "2.41"], {}, "did you mean 2.1"),
        (["--rocm", "newest"], {}, "--rocm: 'newest' is not a version"),
        (["--explain", "gfx942"], {}, "is no cell"),
        (["--explain", "gfx942x/3.12/2.13/linux"], {}, "did you mean"),
        (["--explain", "gfx900/3.12/2.13/macos"], {}, "is no cell"),
        (["--explain", "multi-arch/3.12/2.13/linux"], {}, "multi-arch is no family, but all of a run"),
        (["--explain", "a/b/c/linux", "--rows", "lines"], {}, "--rows and --explain exclude each other"),
        (["--explain", "a/b/c/linux", "--cheapest"], {}, "--explain and --cheapest exclude each other"),
        (["--rows", "lines", "--json"], {}, "--rows and --json exclude each other"),
        ([], {"ROCM_WHEELS_DATE": "10000-01-01"}, "is no day"),
        ([], {"ROCM_WHEELS_SUITES": "ful"}, "there is no suite 'ful'"),
        ([], {"ROCM_WHEELS_RUNNERS": "eom"}, "there is no pool of machines 'eom'"),
    ],
)
def test_wrong_input(
    words: list[str],
    env: dict[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert boundary.run_command(main.cli, ["matrix", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_test_that_a_cell_cannot_have_is_left_out_with_its_reason() -> None:
    cell = matrix.parse_cell(TABLE, "gfx1151/3.14/nightly/windows")
    others = {"3.11", "3.12", "3.13"}
    for turn in range(3):  # the other Pythons take turns without it
        night = select(
            families=("gfx1151",), lines=("nightly",), platforms=("windows",), day=date(2026, 11, 26 + turn)
        )
        built = {one.cell: one for one in matrix.plan_matrix(TABLE, night).built}
        assert built[cell].tests == ("smoke",)
        assert "scikit-image" in dict(built[cell].absent_suites)["default"]
        others -= {one.cell.python for one in built.values() if "tests" in one.tests}
    assert not others
    said = ask("--explain", str(cell))
    assert "without torch's own tests: " in said and "ROCm/TheRock#7185" in said
    none = with_text("tests: [tests], reason", "tests: [smoke, tests], reason")
    one = next(one for one in list_built(table=none) if one.cell == cell)
    assert (one.tests, one.tester) == ((), "") and "scikit-image" in one.untested


def list_suite_cells(day: date, suite: str, **chosen: Any) -> set[tuple[str, str, str]]:
    """Return family, Python and line of the Linux cells of a night that have a suite."""
    built = list_built(platforms=("linux",), day=day, **chosen)
    return {
        (one.cell.family, one.cell.python, one.cell.line)
        for one in built
        if suite in {planned.name for planned in one.suites}
    }


def test_suites_take_turns_by_the_day() -> None:
    monday = date(2026, 11, 23)
    week = [monday + timedelta(number) for number in range(7)]
    default = [list_suite_cells(day, "default") for day in week[:5]]
    pythons: dict[tuple[str, str], set[str]] = {}
    for night in default:
        places = [(family, line) for family, _, line in night]
        assert len(places) == len(set(places))  # one Python of each family and line
        for family, python, line in night:
            pythons.setdefault((family, line), set()).add(python)
    assert pythons["gfx1151", "2.13"] == {*TABLE.triggers["nightly"].pythons}
    full = [{family for family, _, _ in list_suite_cells(day, "full")} for day in week]
    every = {"gfx94X-dcgpu", "gfx950-dcgpu"}
    assert [len(families) for families in full] == [1, 1, 1, 1, 1, 2, 1]
    assert full[0] | full[1] == full[5] == every
    # who plans a family, a line or a Python by itself, as workflows do, has what the whole night has
    alone = list_suite_cells(monday, "full", families=("gfx94X-dcgpu",), lines=("nightly",))
    for python in TABLE.triggers["nightly"].pythons:
        one_row = list_suite_cells(monday, "default", families=("gfx1151",), pythons=(python,))
        assert one_row == {cell for cell in default[0] if cell[:2] == ("gfx1151", python)}
    assert alone == {
        cell for cell in list_suite_cells(monday, "full") if cell[::2] == ("gfx94X-dcgpu", "nightly")
    }
    release = select("release", families=("gfx94X-dcgpu",), pythons=("3.12",), day=monday)
    assert {
        tuple(suite.name for suite in one.suites) for one in matrix.plan_matrix(TABLE, release).built
    } == {("default", "full", "distributed", "inductor")}
    named = list_suite_cells(monday, "inductor", families=("gfx1151",), lines=("2.13",), suites=("inductor",))
    assert named == set()  # it has not the machines, and says so
    assert len(list_suite_cells(monday, "default", lines=("2.13",), suites=("default",))) > len(
        list_suite_cells(monday, "default", lines=("2.13",))
    )


def test_rows_of_suites_are_shards_on_the_machines_that_have_the_gpus() -> None:
    saturday = select(families=("gfx94X-dcgpu",), lines=("2.14",), day=date(2026, 11, 28))
    cells = matrix.plan_matrix(TABLE, saturday).built
    tested = {row["name"] for row in matrix_report.make_rows(cells, TABLE, "tested")}
    rows = matrix_report.make_rows(cells, TABLE, "torch_tested")
    assert len({row["name"] for row in rows}) == len(rows) and {row["tested"] for row in rows} <= tested
    on = TABLE.families["gfx94X-dcgpu"].linux
    assert on is not None
    several, single = ({runner.label for runner in runners} for runners in (on.several_gpus, on.runners))
    for suite in TABLE.suites:
        mine = [row for row in rows if row["suite"] == suite]
        assert [row["shard"] for row in mine] == list(range(1, TABLE.count_shards(suite) + 1))
        needs_several = suite == "distributed"
        assert {row["tester"] for row in mine} <= (several if needs_several else single)
        hours = TABLE.suites[suite].hours / len(mine)
        assert hours <= TABLE.shard_hours and mine[0]["torch_step_minutes"] >= hours * 60
        assert mine[0]["torch_test_minutes"] > mine[0]["torch_step_minutes"]
    push = list_built("presubmit", families=("gfx94X-dcgpu",))
    assert matrix_report.make_rows(push, TABLE, "torch_tested") == []


def test_every_machine_with_gpus_and_its_container_are_in_the_rows() -> None:
    """Each label of the table, and the options of its containers, in the row of a job on it."""
    needs = TABLE.platforms["linux"].test_container
    assert needs is not None and needs.kind == "documented"
    options = " ".join(needs.options)
    assert "--env-file=/etc/podinfo/gha-gpu-isolation-settings" in options and "SYS_PTRACE" in options
    cells = list_built(day=date(2026, 11, 28))
    rows = [*matrix_report.make_rows(cells, TABLE, "tested")]
    rows += matrix_report.make_rows(cells, TABLE, "torch_tested")
    labels = {
        runner.label
        for family in TABLE.families.values()
        for on in (family.linux, family.windows)
        if on is not None
        for runner in (*on.runners, *on.several_gpus)
    }
    few_gpus = {"linux-gfx950-8gpu-ccs-ossci-rocm"}  # fewer machines than its suite needs
    assert {row["tester"] for row in rows} == labels - few_gpus
    assert {row["container_options"] for row in rows if row["platform"] == "linux"} == {options}
    assert {row["container_options"] for row in rows if row["platform"] == "windows"} == {""}
    own = with_text(
        "{label: linux-gfx110X-gpu-rocm}",
        "{label: linux-gfx110X-gpu-rocm, container_options: [--device=/dev/kfd]}",
    )
    mine = list_built(families=("gfx110X-all",), platforms=("linux",), table=own)
    made = [row for kind in ("tested", "torch_tested") for row in matrix_report.make_rows(mine, own, kind)]
    assert {row["container_options"] for row in made} == {"--device=/dev/kfd"}


def test_what_a_line_has_no_place_for_is_shown() -> None:
    lacking, whole = (ask("--explain", f"gfx1151/3.12/2.14/{platform}") for platform in ("windows", "linux"))
    assert "windows: torch 2.14 without triton" in lacking and "no place" not in lacking
    assert "no place" not in whole and "without" not in whole
    words = ["--line", "2.15", "--rocm", "10.2", "--platform", "linux", "--json"]
    assert ["triton, apex" in one for one in json.loads(ask(*words))["warnings"]] == [True]


def test_names_of_the_table_lead_somewhere_and_it_can_be_done() -> None:
    families, suites = gfx.get_gfx_families(), torch_tests.load_torch_tests().suites
    lines = {line.name: line for line in release_lines.get_release_lines()}
    pythons = {name for line in lines.values() for name in line.pythons.values}
    pythons |= {name for line in lines.values() for name in line.free_threaded.values}
    cadences = [cadence for trigger in TABLE.triggers.values() for cadence in trigger.suites.values()]
    exceptions = (*TABLE.excluded, *TABLE.untested)
    places = [place for family in TABLE.families.values() for place in family.platforms.values()]
    assert TABLE.families.keys() <= families.keys()
    since = {family.since for family in TABLE.families.values()}
    assert since | {place.tests_since for place in places} - {None} <= TABLE.triggers.keys()
    rules = [row.lines for row in (*TABLE.triggers.values(), *cadences) if row.lines is not None]
    assert {name for rule in rules for name in rule.also} <= lines.keys()
    assert {name for row in exceptions for name in row.lines} <= lines.keys()
    built = [row.pythons for row in (*TABLE.triggers.values(), *cadences, *exceptions)]
    assert {name for names in built for name in names} <= pythons
    assert all(len({*names}) == len(names) for names in built)
    assert {name for row in exceptions for name in row.families} <= TABLE.all_families.keys()
    assert {name for trigger in TABLE.triggers.values() for name in trigger.suites} <= TABLE.suites.keys()
    assert TABLE.suites.keys() <= suites.keys() and {"sanity", "smoke"} == TABLE.tests.keys()
    assert TABLE.rocm_index in [row.name for row in package_indexes.list_indexes()]
    for name, family in TABLE.families.items():
        assert {target for place in family.platforms.values() for target in place.targets} <= {
            *families[name]
        }
    for place in places:
        assert place.runners or not (place.targets or place.tests_since or place.several_gpus)
        assert place.runners or not place.pools
    for cadence in cadences:
        assert cadence.every_family_on is None or cadence.families_a_day is not None
    most = TABLE.limits.matrix_jobs.value
    assert all(TABLE.count_shards(name) <= most for name in TABLE.suites)
    assert TABLE.touches[-1].paths == ("**",), "the last is about every other file"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("count: 28", "count: 0", "count: Input should be greater than 0"),
        ("default: {hours: 2,", "default: {hours: inf,", "hours: Input should be a finite number"),
        ("every_family_on: saturday", "every_family_on: caturday", "every_family_on: "),
        ("label: linux-gfx110X-gpu-rocm", 'label: "a b"', "label: it must be letters, digits, _ . and -"),
    ],
)
def test_a_wrong_table_says_where(old: str, new: str, said: str) -> None:
    with pytest.raises(errors.DataError, match=r"ci\.yaml:\d+:\d+") as error:
        with_text(old, new)
    assert said in str(error.value)


@pytest.mark.contract
def test_rows_that_are_not_there_are_counted_and_said(tmp_path: Path) -> None:
    """Why is in the log of a workflow that needs some: GitHub fails a job whose matrix is empty."""
    words = ["--trigger", "release", "--line", "2.13", "--platform", "linux", "--rows", "tested"]
    for family, some in (("gfx94X-dcgpu", True), ("gfx900", False)):
        (tmp_path / family).touch()
        env = {"GITHUB_OUTPUT": str(tmp_path / family)}
        done = CliRunner().invoke(command, [*words, "--family", family], env=env)
        assert done.exit_code == 0
        assert ("tested_count=0" in (tmp_path / family).read_text()) != some
        assert ("nothing is tested: no runner has such a GPU" in done.stderr) != some


def test_all_families_of_a_python_are_one_build_and_are_tested_each_by_itself() -> None:
    each = of_line("2.13", "linux", list_built())
    cells = of_line("2.13", "linux", multi_arch("2.13"))
    assert [one.cell for one in cells] == [one.cell for one in each]  # nothing is left out for other reasons
    pythons = {one.cell.python for one in cells}
    rows = {kind: matrix_report.make_rows(cells, TABLE, kind) for kind in project_names.ROW_KINDS}
    assert len(rows["cells"]) == len(pythons) == len(matrix.group_cells(cells, matrix.python_key))
    assert {row["targets"] for row in rows["cells"]} == {rows["lines"][0]["targets"]}
    assert (len(rows["first"]), len(rows["others"])) == (1, len(pythons) - 1)
    assert {row["built"] for row in rows["tested"]} == {row["name"] for row in rows["cells"]}
    assert (rows["sets"][0]["family"], rows["sets"][0]["layout"]) == ("multi-arch", "multi-arch")
    # tested where, and on what, as by families; what every family shares is built against the one torch
    own = ("name", "family", "targets", "python", "tester")
    for kind in ("tested", "torch_tested"):
        alone = matrix_report.make_rows(each, TABLE, kind)
        assert [[row[key] for key in own] for row in rows[kind]] == [
            [row[key] for key in own] for row in alone
        ]
    for row in rows["companions"]:
        assert row["torch"].startswith(f"multi-arch-cp{row['python'].replace('.', '')}-")
        assert row["reserve"] == ""


def test_rows_share_cells_out() -> None:
    cells = of_line("2.13", "linux", list_built())
    rows = {kind: matrix_report.make_rows(cells, TABLE, kind) for kind in project_names.ROW_KINDS}
    assert len(rows["first"]) == 1 and len(rows["first"]) + len(rows["others"]) == len(cells)
    assert sum(row["cells"] for row in rows["sets"]) == len(cells)
    tested = {row["name"] for row in rows["cells"] if row["tester"]}
    assert {row["name"] for row in rows["tested"]} == tested
    # what an artifact is made of: each wheel in one
    made = ["wheels/apex-*.whl*", "wheels/torch-*.whl*", "wheels/torchvision-*.whl*"]
    assert all(sorted(row["wheels"].split()) == made for row in rows["cells"])
    assert {row["wheels"] for row in rows["companions"]} == {"wheels/torchaudio-*.whl*"}
    assert {row["shared"] for row in rows["cells"]} == {row["name"] for row in rows["pythons"]}
    # AMD's lines have no triton for Windows: no job builds it, none waits for it, none installs it
    windows = of_line("2.14", "windows", list_built())
    assert matrix_report.make_rows(windows, TABLE, "pythons") == []
    others = matrix_report.make_rows(windows, TABLE, "cells")
    assert {row["packages"] for row in others} == {"torch torchvision torchaudio"}
    assert not any(row["given"] for row in others)


def test_a_set_is_staged_where_there_is_room_for_it() -> None:
    """Of GitHub's machines the documented 14 GB of disk; the rest of them is what happens to be there."""
    cells = list_built(lines=("2.13",), platforms=("linux",))
    two = with_text("staging: [{label: aws-linux-scale-rocm-prod}]", "staging: [{label: a}, {label: b}]")
    rows = matrix_report.make_rows(cells, two, "sets")
    assert {row["stager"] for row in rows} == {"ubuntu-24.04", "a", "b"}
    assert all((row["stager"] == "ubuntu-24.04") == (row["gib"] < 7.3) for row in rows)
    together = select(lines=("2.13",), platforms=("linux",), layout="multi-arch")
    (alone,) = matrix_report.make_rows(matrix.plan_matrix(TABLE, together).built, TABLE, "sets")
    assert max(row["gib"] for row in rows) < alone["gib"] < sum(row["gib"] for row in rows)


def test_sets_are_packaged_as_the_trigger_or_somebody_says() -> None:
    table = with_text("    about: every night\n", "    about: every night\n    packaging: split\n")
    chosen = select(lines=("2.13",), layout="multi-arch")
    assert {cell.packaging for cell in matrix.plan_matrix(table, chosen).built} == {"split"}
    assert matrix.plan_matrix(table, replace(chosen, packaging="fat")).selection.packaging == "fat"
    with pytest.raises(errors.UsageError, match="the layout is multi-arch"):
        matrix.plan_matrix(TABLE, replace(chosen, packaging="per-family"))
    words = ["--line", "2.13", "--platform", "linux", "--packaging", "fat"]
    assert "cells, each built alone, packaged fat\n" in ask(*words)


def test_a_set_with_asan_is_for_linux_and_tested_in_the_sandbox() -> None:
    planned = matrix.plan_matrix(TABLE, select(lines=("2.13",), packaging="asan"))
    assert {one.cell.platform for one in planned.built} == {"linux"}
    assert {one.tester for one in planned.built if one.tests} == {
        "linux-gfx942-1gpu-asan-sandbox-rocm",
        "linux-gfx950-1gpu-asan-sandbox-rocm",
    }
    assert "wheels with AddressSanitizer are for Linux" in {one.reason for one in planned.excluded}
    (row, *_) = matrix_report.make_rows(planned.built[:1], TABLE, "cells")
    assert row["packaging"] == "asan", "what the workflow builds with"


def test_limits_of_github_are_kept(tmp_path: Path) -> None:
    """256 jobs of a matrix, 1 MB of outputs in UTF-16, 6 hours of its own machines."""
    result = CliRunner().invoke(command, ["--rows", "cells"])
    assert isinstance(result.exception, errors.UsageError) and "at most 256 jobs" in str(result.exception)
    cells = list_built("release", suites=tuple(TABLE.suites))
    jobs: tuple[tuple[project_names.RowKind, ...], ...] = (
        ("sets",),
        ("lines", "pythons", "first", "others", "companions", "tested"),
    )
    for group in matrix.group_cells(cells, matrix.line_key).values():
        for kinds in jobs:
            rows = [matrix_report.make_rows(group, TABLE, kind) for kind in kinds]
            assert 2 * sum(len(matrix_report.format_github_matrix(part)) for part in rows) < 10**6
    inner = {"include": [{"name": str(number)} for number in range(257)]}
    with pytest.raises(errors.UsageError, match="257 rows, and a matrix of GitHub has at most 256 jobs"):
        matrix_report.format_github_matrix([{"name": "a", "rows": inner}])
    env = {"GITHUB_OUTPUT": str(tmp_path / "output")}
    with pytest.raises(errors.UsageError, match="outputs of a job are 1000 kB at most"):
        matrix_report.set_outputs(env, {"a": "x" * 400_000, "b": "x" * 100_001})
    assert matrix.limit_minutes(TABLE, 9, hosted=True) == 360
    small = with_text("cores: 64", "cores: 4\n    hosted: true")
    few = list_built(families=("gfx103X-all",), lines=("2.13",), platforms=("linux",), table=small)
    assert any("a job ends after 6 h" in one for one in matrix.list_warnings(few, small))


def test_variables_stand_for_options_and_empty_ones_say_nothing() -> None:
    said = {"PLATFORM": "linux", "FAMILIES": "gfx1151", "LINES": "", "SUITES": "", "DATE": "9999-12-31"}
    env = {f"ROCM_WHEELS_{name}": value for name, value in said.items()}
    (row,) = json.loads(ask("--trigger", "presubmit", "--rows", "lines", **env))["include"]
    assert (row["platform"], row["families"], row["date"]) == ("linux", "gfx1151", "9999-12-31")


CHANGES = [
    ("repos/apex.yaml", lambda one: one.cell.platform == "linux"),
    ("repos/triton.yaml", lambda one: one.cell.platform == "linux"),
    ("patches/pytorch_vision/2.13/base/0001-x.patch", lambda one: one.cell.line == "2.13"),
    ("build_tools/rocm_wheels/compile/environment.py", lambda one: True),
    ("a file that nobody thought of", lambda one: True),
    ("smoke-tests/test_layers.py", lambda one: bool(one.tests)),
    ("README.md", lambda one: False),
    ("tests/unit/test_lines.py", lambda one: False),
]


@pytest.mark.parametrize(("path", "touched"), CHANGES, ids=[path for path, _ in CHANGES])
def test_a_change_touches_what_it_can_change(path: str, touched: Callable[[matrix.BuiltCell], bool]) -> None:
    cells = list_built()
    found = matrix_report.find_affected_cells(cells, matrix_report.classify_changes(TABLE, [path]))
    assert [one.cell for one in found] == [one.cell for one in cells if touched(one)]


def test_what_is_not_shown_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, "README.md")
    said = ask("--since", "HEAD")
    assert said.startswith("no cell is built\n") and "need not be built: the change has nothing to do" in said
    built = list_built("presubmit")
    kept = matrix.choose_cheapest(built, TABLE, tested=True)
    assert all(one.tests for one in kept) and len(kept) == len({matrix.line_key(one) for one in built})
    said = ask("--cheapest", "--trigger", "presubmit")
    assert f"{len(kept)} cells, each built alone" in said
    assert f"{len(built) - len(kept)} cells of the selection need not" in said
