"""Plans and sets of wheels after the demo: one set a target, targets left out, variants, steps alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from finished_demo import Demo, changed_since, snapshot, targets_in

from rocm_wheels.variants.document import merge_documents, parse_wheel_document
from rocm_wheels.wheels import dist_info, rewrite, wheel_code

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
VARIANT = ("--packaging", "variant")


def test_a_run_leaves_variants_beside_its_wheels(demo: Demo) -> None:
    ended = demo.build(*VARIANT, "--json")
    assert ended.code == 0, ended.err
    rows = {row["project"]: row for row in json.loads(ended.out)}
    variants = sorted((demo.folder / "wheels" / "variants").glob("*.whl"))
    assert len(variants) == len(rows) == 3
    for wheel in variants:
        name = dist_info.parse_wheel_name(wheel.name)
        assert "rocm" not in (name.version.local or "")
        document = parse_wheel_document(
            rewrite.read_dist_info_files(wheel)["variant.json"], name=wheel.name, label=name.label or ""
        )
        (properties,) = merge_documents([(wheel.name, document)]).variants.values()
        assert properties["amd"] == {"gfx_arch": ("gfx1100", "gfx942")}, "also where no device code is"
        assert any(f"variant {name.label}" in row["note"] for row in rows.values())
    (triton,) = (wheel for wheel in variants if wheel.name.startswith("triton-"))
    (torch,) = (wheel for wheel in variants if wheel.name.startswith("torch-"))
    pin = f"Requires-Dist: triton=={dist_info.parse_wheel_name(triton.name).version}"
    metadata = rewrite.read_dist_info_files(torch)["METADATA"].decode()
    assert pin in metadata
    assert "Requires-Dist: rocm[libraries]==7.1.0+miniature\n" in metadata, "of several GPUs nobody has all"
    before = {wheel: wheel.stat().st_mtime_ns for wheel in variants}
    again = demo.build(*VARIANT)
    assert again.code == 0, again.err
    assert {wheel: wheel.stat().st_mtime_ns for wheel in variants} == before


def test_a_target_that_no_variant_can_state_is_refused_before_the_build(demo: Demo) -> None:
    ended = demo.build(*VARIANT, "--gfx", "gfx942:xnack+", "--clean")
    assert ended.code == 2
    assert "holds gfx942:xnack+ and no plain code for it" in ended.err


def work(demo: Demo) -> Path:
    return demo.folder / "sources" / ".rocm-wheels"


def test_a_plan_changes_nothing_and_each_of_its_steps_runs_alone(demo: Demo, tmp_path: Path) -> None:
    """Plan for other targets; then the very lines that a run would start, in the order of the plan.

    With torch's test programs: its own default is to build and install them, ours is not. Their kernels are
    for the targets of the build.
    """
    assert demo.build().code == 0
    before = snapshot(demo.folder)
    tests = [word for name in ("BUILD_TEST", "INSTALL_TEST") for word in ("--set-env", f"pytorch:{name}=1")]
    words = ("plan", *demo.build_words(*tests, targets="gfx942", output="alone")[1:])
    out = demo.ours(*words, "--json", "-o", tmp_path / "plan.json", code=0).out
    assert changed_since(before, demo.folder) == set()
    assert json.loads(out) == json.loads((tmp_path / "plan.json").read_text())
    dry = demo.build(*tests, "--dry-run", "--json", targets="gfx942", output="alone")
    assert json.loads(dry.out) == json.loads(out)
    steps = {step["id"]: step for step in json.loads(out)["steps"]}
    tag = next(iter(steps)).rsplit("-", 1)[1]
    torch = steps[f"build-pytorch-{tag}"]
    assert torch["why"] == "inputs changed: BUILD_TEST (0 → 1), INSTALL_TEST, PYTORCH_ROCM_ARCH"
    assert torch["inputs"]["PYTORCH_ROCM_ARCH"] == "gfx942"
    assert torch["estimate"]["source"].startswith("run ")
    late = steps[f"build-pytorch_audio-{tag}"]
    assert late["waits_for"] == f"build-pytorch-{tag}"

    err = demo.ours("run-step", late["id"], "--plan", tmp_path / "plan.json", code=2).err
    wrong = f"{late['id']} needs probe-targets, whose inputs changed since: targets (gfx942 → gfx942,gfx1100)"
    assert wrong in err and "tip: run it first: rocm-wheels run-step probe-targets --plan" in err
    for name in steps:
        demo.ours("run-step", name, "--plan", tmp_path / "plan.json", code=0)
    assert "nothing to do" in demo.build(*tests, targets="gfx942", output="alone").err
    made = read_targets(demo.folder / "alone")
    assert made["torch/test/hip_saxpy_test"] == {"gfx942"} == set().union(*made.values())
    assert "torch/test/hip_saxpy_test" not in read_targets(demo.folder / "wheels")


def read_targets(folder: Path) -> dict[str, set[str]]:
    """Return the files of a folder's torch that hold device code, and for what."""
    code = wheel_code.read_device_code(next(folder.glob("torch-*.whl"))).code
    return {name: {str(held.target) for held in objects} for name, objects in code.items()}


def test_why_a_step_would_run(demo: Demo) -> None:
    assert demo.build(output="asked").code == 0  # a run of its own: the demo's goes by a lock
    where = ("--work-dir", work(demo))
    name = next(path.stem for path in (work(demo) / "steps").glob("build-pytorch-*.json"))
    assert demo.ours("runs", "why", name, *where).out == f"{name}: up to date\n"
    file = demo.torch / "torch" / "__init__.py"
    text = file.read_text()
    file.write_text(text + "\n# edited\n")
    try:
        out = demo.ours("runs", "why", name, *where, code=0).out
    finally:
        file.write_text(text)
    assert out.startswith(f"{name}: inputs changed: ") and ", sources" in out
    wrong = demo.ours("runs", "why", "build-torch", *where, code=2)
    assert "the plan has no step build-torch; did you mean" in wrong.err
    wrong = demo.ours("runs", "why", name, "--work-dir", demo.folder / "none", code=2)
    assert "no build has run in" in wrong.err


@pytest.mark.exhaustive  # test_build_cells.py has whole sets of tiny projects
def test_a_set_of_wheels_for_each_target(demo: Demo) -> None:
    """Real code and real variants of torch; test_build_cells has whole sets, and what is up to date."""
    only = ("--per-target", "--no-build-triton", "--no-build-pytorch-audio", *VARIANT)
    ended = demo.build(*only, "--json", output="sets")
    assert ended.code == 0, ended.err
    targets = ("gfx942", "gfx1100")
    rows = json.loads(ended.out)
    assert [(row["project"], row["target_set"]) for row in rows] == [("pytorch", one) for one in targets]
    for target in targets:
        folder = demo.folder / "sets" / target
        (wheel,) = folder.glob("*.whl")
        assert targets_in(wheel) == {target}
        (torch,) = (folder / "variants").glob("*.whl")
        assert dist_info.parse_wheel_name(torch.name).label == f"rocm7.1_{target}"
        metadata = rewrite.read_dist_info_files(torch)["METADATA"].decode()
        assert f"Requires-Dist: rocm[device-{target},libraries]==7.1.0+miniature\n" in metadata


def test_a_target_that_does_not_compile_is_found_before_anything_long(demo: Demo) -> None:
    """hipcc fails for gfx1100: an error that says of which target, and what the compiler said."""
    (hipcc,) = work(demo).glob("rocm/*/_rocm_sdk_devel/bin/hipcc")
    text = hipcc.read_text()
    broken = text.replace(
        "compiler=",
        'case "$*" in *gfx1100*) echo "clang++: error: gfx1100 is broken here" >&2; exit 1;; esac\ncompiler=',
        1,
    )

    def put(content: str) -> None:
        hipcc.unlink()  # a link to the installer's cache
        hipcc.write_text(content)
        os.chmod(hipcc, 0o755)
        for stamp in (work(demo) / "steps").glob("probe-targets.json"):
            stamp.unlink()

    put(broken)
    try:
        refused = demo.build(output="fewer")
        assert (refused.code, "does not compile for gfx1100" in refused.err) == (12, True), refused.err
        assert "gfx1100: gfx1100 is broken here" in refused.err
        assert "tip: name other targets with --gfx" in refused.err
        assert not list((demo.folder / "fewer").glob("*.whl"))
    finally:
        put(text)
    record = max((work(demo) / "runs").iterdir()) / "events.jsonl"
    events = [json.loads(line) for line in record.read_text().splitlines()]
    (probe,) = [event for event in events if event["event"] == "probe"]
    assert list(probe["targets"]) == ["gfx942", "gfx1100"] and probe["targets"]["gfx942"] is None


def test_an_error_in_what_hipify_made_is_shown_in_its_source(demo: Demo) -> None:
    """And an edit of the source compiles that file alone."""
    kernel = demo.torch / "aten/src/ATen/native/cuda/Saxpy.cu"
    text = kernel.read_text()
    only = ("--no-build-triton", "--no-build-pytorch-audio")
    try:
        kernel.write_text(text.replace("a * x[i]", "a * nothing[i]"))
        ended = demo.build(*only, output="edits")
        kernel.write_text(text.replace("a * x[i]", "a * x[i] * 1"))
        assert demo.build(*only, output="edits").code == 0
        before = snapshot(demo.torch)
    finally:
        kernel.write_text(text)
    assert demo.build(*only, output="edits").code == 0
    changed = {path.name for path in changed_since(before, demo.torch)}
    assert {name for name in changed if name.endswith((".cu", ".hip", ".o"))} == {
        *("Saxpy.cu", "Saxpy.hip", "Saxpy.hip.o")
    }
    line = 1 + text[: text.index("a * x[i]")].count("\n")
    assert ended.code == 12, ended.err
    assert f"in the source: {kernel}:{line}\n" in ended.err
    assert re.search(rf"hip/Saxpy.hip:\d+ is {re.escape(str(kernel))}:{line}\n", demo.last_log("pytorch", 2))
