"""Plans: what waits for what, what runs and why, and the file that another machine goes by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from pydantic import ValidationError
from runs import NAMES, finish, make_facts, settled

from rocm_wheels.core import errors
from rocm_wheels.models import project, release_lines
from rocm_wheels.pipeline import outputs, planner
from rocm_wheels.pipeline.facts import DoneStep, Facts
from rocm_wheels.pipeline.plan import (
    PlanFile,
    format_plan,
    make_plan_json,
    read_plan,
    restore_addresses,
    write_plan,
)
from rocm_wheels.pipeline.request import WheelsRequest, select_projects, split_request
from rocm_wheels.pipeline.step import Plan, Step, make_steps

CHECKED = ["install-tools-cp312", "probe-targets", "build-triton-cp312"]
BUILDS = [f"build-{name}-cp312" for name in ("triton", "pytorch", "apex", "pytorch_audio", "pytorch_vision")]

REPAIRS = [name.replace("build-", "repair-") for name in BUILDS]


def before(steps: dict[str, Step], name: str) -> set[str]:
    """All steps that must have ended before one begins."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = {*steps[waiting.pop()].after} - found
        found |= new
        waiting += new
    return found


def beside(steps: dict[str, Step], one: str, other: str) -> bool:
    return one not in before(steps, other) and other not in before(steps, one)


def verdicts(steps: dict[str, Step]) -> dict[str, str]:
    return {step.id: step.verdict for step in steps.values()}


def test_projects_that_need_only_torch_run_beside_each_other(tmp_path: Path) -> None:
    steps = make_steps(make_facts(tmp_path))
    assert [step for step in steps if step.startswith("build-")] == BUILDS
    assert all(beside(steps, one, other) for one, other in combinations(BUILDS[2:], 2))
    assert {"install-tools-cp312", "probe-targets"} <= before(steps, BUILDS[0])
    assert BUILDS[0] in before(steps, BUILDS[1])


def test_what_is_only_named_is_built_where_somebody_names_it(tmp_path: Path) -> None:
    """A folder of that name may lie beside torch's for years."""
    request = make_facts(tmp_path).request
    tree = tmp_path / "sources/lightgbm"
    tree.mkdir()
    asked = replace(request, sources={**request.sources, "lightgbm": tree}, chosen={})

    def select(request: WheelsRequest, *in_lock: str) -> list[str]:
        return [project.name for project in select_projects(request, in_lock)]

    assert "pytorch" in select(asked) and "lightgbm" not in select(asked)
    assert "lightgbm" in select(asked, "lightgbm")
    assert "lightgbm" in select(replace(asked, given=frozenset({"lightgbm"})))
    assert select(replace(asked, chosen={name: name == "lightgbm" for name in asked.sources})) == ["lightgbm"]


def test_a_request_is_split_into_a_set_for_all_pythons_before_the_next(tmp_path: Path) -> None:
    pythons = (tmp_path / "cp310", tmp_path / "cp312")
    request = make_facts(tmp_path, targets="gfx942,gfx110X-all", per_target=True, pythons=pythons).request
    cells = split_request(request)
    assert [(cell.target_set, cell.sdk.python) for cell in cells] == [
        (name, python) for name in ("gfx942", "gfx110X-all") for python in pythons
    ]
    assert cells[0].chosen_targets == ("gfx942",) and len(cells[2].chosen_targets or ()) > 1
    assert cells[0].wheels_folder == request.output / "gfx942"
    assert [split_request(cell) for cell in cells] == [(cell,) for cell in cells]


def test_what_is_the_same_for_all_sets_is_one_step(tmp_path: Path) -> None:
    """Its stamp says to the next set that it is there; what people install is packaged for each."""
    asked = make_facts(tmp_path, targets="gfx942,gfx1100", per_target=True).request
    first, second = (make_facts(tmp_path, targets=cell.targets, target_set=cell.target_set)
                     for cell in split_request(asked))  # fmt: skip
    shared = make_steps(first).keys() & make_steps(second).keys()
    assert shared == {"install-rocm-cp312", "install-tools-cp312", "build-triton-cp312"}
    done = finish(first).done
    steps = settled(replace(second, done=done))
    assert {name for name, step in steps.items() if step.verdict == "skip"} == shared
    assert steps["repair-triton-cp312-gfx1100"].verdict == "run"
    both = finish(replace(second, done=done)).done
    for facts in (first, second):
        assert set(verdicts(settled(replace(facts, done=both))).values()) == {"skip"}


def test_torch_is_configured_before_anything_is_built(tmp_path: Path) -> None:
    facts = replace(make_facts(tmp_path), configured_first=("pytorch",))
    steps = make_steps(facts)
    configure = steps["configure-pytorch-cp312"]
    assert {"install-tools-cp312", "probe-targets"} <= before(steps, configure.id)
    for step in steps.values():
        assert step.kind != "build" or configure.id in step.after
    done = finish(facts)  # those built against torch know its build from its configure step
    assert set(verdicts(settled(done)).values()) == {"skip"}
    assert settled(_edited(done))[configure.id].verdict == "skip"
    other = settled(_other_variable(done))[configure.id]
    assert other.verdict == "run" and other.why.startswith("inputs changed: CXXFLAGS")


def _edited(facts: Facts) -> Facts:
    tree = facts.trees["pytorch"]
    edited = replace(tree, identity=replace(tree.identity, tree="ed17ed00", dirty=True))
    return replace(facts, trees={**facts.trees, "pytorch": edited})


def test_what_is_not_known_yet_is_known_after_a_step(tmp_path: Path) -> None:
    facts = make_facts(tmp_path, rocm=False)
    steps = settled(facts)
    assert {step.verdict for step in steps.values()} == {"run"}
    torch = steps["build-pytorch-cp312"]
    assert (torch.waits_for, torch.fingerprint) == ("install-rocm-cp312", None)
    assert torch.inputs["commit"] == "pytorch-commit"
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312", "probe-targets"])
    steps = settled(facts)
    assert steps["build-triton-cp312"].fingerprint is not None
    assert steps["build-pytorch-cp312"].waits_for == "build-triton-cp312"
    assert steps["build-apex-cp312"].waits_for == "build-pytorch-cp312"


def test_a_finished_run_has_nothing_to_do_and_the_same_facts_give_the_same_plan(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path, packaging="variant"))
    steps = settled(facts)
    assert set(verdicts(steps).values()) == {"skip"}
    assert settled(facts) == steps


def _other_commit(facts: Facts) -> Facts:
    tree = facts.trees["pytorch"]
    identity = replace(tree.identity, commit="another", tree="another")
    return replace(facts, trees={**facts.trees, "pytorch": replace(tree, identity=identity)})


def _other_variable(facts: Facts) -> Facts:
    return replace(facts, env={**facts.env, "CXXFLAGS": "-O0"})


def _other_set_env(facts: Facts) -> Facts:
    return replace(facts, request=replace(facts.request, set_env={"apex": {"APEX_NEW": "1"}}))


def _other_targets(facts: Facts) -> Facts:
    return replace(facts, request=replace(facts.request, targets="gfx942"))


def _other_requirements(facts: Facts) -> Facts:
    tree = facts.trees["triton"]
    return replace(facts, trees={**facts.trees, "triton": replace(tree, files={"requirements.txt": "other"})})


def _tampered(facts: Facts) -> Facts:
    done = facts.done["build-pytorch_audio-cp312"]
    changed = DoneStep(done.stamp, "x.whl was changed after it was built")
    return replace(facts, done={**facts.done, done.stamp.step: changed})


def _other_rocm(facts: Facts) -> Facts:
    assert facts.python.ready is not None
    ready = replace(facts.python.ready, content="other-digest")
    return replace(facts, python=replace(facts.python, ready=ready))


def _elsewhere(facts: Facts) -> Facts:
    return replace(facts, request=replace(facts.request, output=facts.request.output / "other"))


# what changes → the steps that run for it, what one of them says, the steps that still do not run
CHANGES: list[tuple[Callable[[Facts], Facts], list[str], str, list[str]]] = [
    (_other_commit, ["build-pytorch-cp312"], "inputs changed: commit (pytorch-commit → another)",
     ["build-triton-cp312"]),
    (_other_variable, ["build-triton-cp312"], "inputs changed: CXXFLAGS",
     ["install-tools-cp312", "probe-targets"]),
    (_other_set_env, ["build-apex-cp312"], "inputs changed: APEX_NEW (not set → 1)", BUILDS[:2]),
    (_other_targets, ["probe-targets", "build-pytorch-cp312"],
     "inputs changed: PYTORCH_ROCM_ARCH (gfx942;gfx1100 → gfx942)",
     ["build-triton-cp312", "install-tools-cp312"]),
    (_other_requirements, ["install-tools-cp312"], "inputs changed: requirements.txt of triton",
     ["probe-targets"]),
    (_tampered, ["build-pytorch_audio-cp312"], "x.whl was changed after it was built",
     [*BUILDS[:3], BUILDS[4]]),
    (_other_rocm, ["install-tools-cp312", "probe-targets"], "inputs changed: ROCm packages", []),
    (_elsewhere, REPAIRS, "the wheel is missing in ", ["install-tools-cp312", *BUILDS]),
]  # fmt: skip


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: row[0].__name__)
def test_a_changed_input_is_named_and_reaches_what_depends_on_it(
    tmp_path: Path, row: tuple[Callable[[Facts], Facts], list[str], str, list[str]]
) -> None:
    change, runs, said, done = row
    steps = settled(change(finish(make_facts(tmp_path))))
    assert {steps[name].verdict for name in runs} == {"run"}
    assert said in steps[runs[-1]].why
    assert [name for name in done if steps[name].verdict != "skip"] == []
    built = {name for name in runs if name.startswith("build-")}
    assert "skip" not in {step.verdict for step in steps.values() if built & set(step.after)}


def test_packages_installed_for_more_projects_serve_fewer(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path))
    fewer = replace(
        facts,
        projects=tuple(one for one in facts.projects if one.name != "apex"),
        trees={name: tree for name, tree in facts.trees.items() if name != "apex"},
    )
    assert set(verdicts(settled(fewer)).values()) == {"skip"}
    alone = finish(replace(fewer, done={}))
    assert settled(replace(facts, done=alone.done))["install-tools-cp312"].verdict == "run"
    tools = settled(fewer)["install-tools-cp312"]
    stamp = planner.make_comparable_stamp(tools, facts.done[tools.id].stamp)
    assert outputs.describe_changes(stamp, tools.inputs) == ()


@pytest.mark.parametrize(
    ("version", "expected"), [("2.8.0", "OFF"), ("2.9.1", None), ("2.10.0a0", "OFF"), ("2.13.0", None)]
)
def test_a_recipe_has_variables_for_one_series_of_torch(
    tmp_path: Path, version: str, expected: str | None
) -> None:
    facts = make_facts(tmp_path)
    trees = {**facts.trees, "pytorch": replace(facts.trees["pytorch"], version=version)}
    ready = finish(replace(facts, trees=trees), only=CHECKED)
    step = settled(ready)["build-pytorch-cp312"]
    assert step.environment.get("USE_FBGEMM_GENAI") == expected
    assert step.environment["USE_CCACHE"] == "OFF"


def test_the_series_of_recipes_are_those_of_lines() -> None:
    lines = {line.name for line in release_lines.get_release_lines()}
    for name in NAMES:
        assert set(project.load_project(name).line_environment) <= lines
    apex = project.load_project("apex").model_dump()
    with pytest.raises(ValidationError, match="must be a series of torch"):
        project.Project(**{**apex, "line_environment": {"release/2.10": {"A": "1"}}})


def test_targets_that_rocm_lacks_and_sets_without_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"gfx1201 is not among the targets of the installed ROCm 7"):
        settled(make_facts(tmp_path, targets="gfx1201"))
    anyway = finish(make_facts(tmp_path, targets="gfx942,gfx1201", unlisted_targets=True), only=CHECKED)
    step = settled(anyway)["build-pytorch-cp312"]
    assert (step.verdict, step.inputs["PYTORCH_ROCM_ARCH"]) == ("run", "gfx942;gfx1201")
    with pytest.raises(errors.UsageError, match="none is given"):
        split_request(make_facts(tmp_path, targets=None, per_target=True).request)  # type: ignore[arg-type]
    with pytest.raises(errors.UsageError, match="names gfx942 twice"):
        split_request(make_facts(tmp_path, targets="gfx942,gfx942", per_target=True).request)


# -- the file ------------------------------------------------------------------------------------------


def plan_file(facts: Facts) -> PlanFile:
    steps = settled(facts)
    trees = {name: tree.identity for name, tree in facts.trees.items()}
    return PlanFile.from_plan(facts.request, Plan(steps, ("gfx942", "gfx1100")), trees, None)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    file = plan_file(finish(make_facts(tmp_path, set_env={"apex": {"A": "b"}}), only=["install-tools-cp312"]))
    write_plan(tmp_path / "plan.json", file)
    back = read_plan(tmp_path / "plan.json")
    assert (back.request, back.identities) == (file.request, file.identities)
    for step in file.plan:
        assert back.plan.find_step(step.id) == step
    assert make_plan_json(back)["request"] == make_plan_json(file)["request"]


def test_a_plan_names_its_lock_wherever_it_is_read(tmp_path: Path) -> None:
    facts, lock = make_facts(tmp_path), tmp_path / "sources.lock.json"
    file = plan_file(replace(facts, request=replace(facts.request, lock=Path("sources.lock.json"))))
    assert make_plan_json(replace(file, lock=(lock, "digest")))["request"]["lock"] == str(lock)


@pytest.mark.parametrize("name", ["index_url", "find_links"])
def test_the_password_of_an_index_is_not_in_a_plan(tmp_path: Path, name: str) -> None:
    facts, url = make_facts(tmp_path), "https://me:secret@example.org/simple"
    given: dict[str, str | None] = {"index_url": None, "find_links": None, name: url}
    sdk = replace(facts.request.sdk, **given)  # type: ignore[arg-type]
    write_plan(tmp_path / "plan.json", plan_file(replace(facts, request=replace(facts.request, sdk=sdk))))
    assert "secret" not in (tmp_path / "plan.json").read_text()
    file = read_plan(tmp_path / "plan.json")
    with pytest.raises(errors.UsageError, match="its password is not in the plan"):
        restore_addresses(file, "install-rocm-cp312", {name: None})
    assert restore_addresses(file, "build-triton-cp312", {name: None}) == file
    assert restore_addresses(file, "install-rocm-cp312", given).request.sdk == sdk


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON"),
        ("[]", "is no plan of this version"),
        ('{"format": 99}', "is no plan of this version"),
        ('{"format": 3, "steps": []}', "is no plan of this version"),
        ('{"format": 4, "steps": []}', "is a damaged plan"),
        ('{"format": 4, "steps": [{}], "lock": null, "request": {}, "targets": [], "trees": {}}', "damaged"),
        ('{"format": 4, "steps": [], "lock": null, "request": {"sdk": 7}, "targets": [], "trees": {}}',
         r"is a damaged plan: .*request.sdk: .* \(found 7\); .*: Field required"),
        ("[" * 100_000, r"is no plan: it is not JSON \(nested too deep\)"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_plan(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(errors.DataError, match=said):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "../../x"}, r"\.\./\.\./x is no name of a step"),
        ({"kind": "other"}, r"kind: .*found 'other'"),
        ({"after": ["nobody"]}, "waits for nobody, which the plan has not"),
    ],
)
def test_a_plan_that_somebody_has_changed(tmp_path: Path, change: dict[str, object], said: str) -> None:
    plan = make_plan_json(plan_file(make_facts(tmp_path)))
    plan["steps"][-1].update(change)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(errors.DataError, match=f"is a damaged plan: .*{said}"):
        read_plan(tmp_path / "plan.json")


def test_an_unknown_step_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"no step build-torch-cp312; did you mean build-pytorch-cp"):
        plan_file(make_facts(tmp_path)).plan.find_step("build-torch-cp312")


def test_the_text_says_what_runs_why_and_what_it_takes(tmp_path: Path) -> None:
    text = format_plan(plan_file(make_facts(tmp_path)).plan, details=True)
    assert "runs  build-pytorch-cp312          no earlier result  (about " in text
    assert "input        everything else: known after install-tools-cp312" in text
    assert f"{3 + 2 * len(NAMES)} steps: {2 + 2 * len(NAMES)} to run, 1 done" in text
    assert "expected, one after another: " in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_dry_run_says_no_more_than_a_line_of_what_is_done(tmp_path: Path) -> None:
    plan = plan_file(make_facts(tmp_path)).plan
    done, *_ = [step for step in plan if step.verdict == "skip"]
    text = format_plan(plan, details=True, of_done=False)
    assert f"done  {done.id}\nruns  " in text
    assert f"fingerprint  {done.fingerprint}" in format_plan(plan, details=True)
