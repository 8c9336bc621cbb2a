"""The demo, and what a release engineer does next: real git, hipify, device code, wheels, installers."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import miniature
import pytest
from docs_pages import list_blocks
from finished_demo import Demo, changed_since, dist_info_file, run_demo, snapshot, targets_in
from projects import wait_until
from sources import CLONE
from uv import find_uv_bin
from wheels import require_valid

from rocm_wheels.wheels import sbom
from rocm_wheels.wheels.statement import TOOL_URN

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]


def test_wheels_hold_real_code_for_exactly_the_targets(demo: Demo) -> None:
    wheels = demo.wheels()
    assert set(wheels) == {"apex", "torch", "torchaudio", "torchvision", "triton"}
    for name in ("triton", "apex"):  # compiled where they are used
        assert "rocm7.1.0.miniature-" in wheels[name].name
        assert targets_in(wheels.pop(name)) == set()
    for wheel in wheels.values():
        assert "+rocm7.1.0.miniature-" in wheel.name
        assert targets_in(wheel) == set(miniature.TARGETS)


@pytest.mark.parametrize("page", ["README.md", "docs/pages/tutorials/demo.md"])
def test_pages_show_what_a_demo_prints(demo: Demo, page: str) -> None:
    """Every line of a transcript behind quickstart's own was printed, in order; … is anything."""
    (block,) = (
        block
        for block in list_blocks(CLONE / page)
        if block.marks.get("run by") == "tests/integration/test_demo.py"
    )
    ((_, transcript),) = block.commands
    assert len(transcript) > 10
    lines = iter((demo.folder.parent / "screen.txt").read_text().splitlines())
    (begin,) = (number for number, line in enumerate(transcript) if line.startswith("[ 1/"))
    for line in transcript[begin:]:
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        pattern = pattern.replace("/demo\\-output", "")  # the name of the folder, where none is given
        assert any(re.fullmatch(pattern, " ".join(printed.split())) for printed in lines), line


def test_a_demo_ends_with_eleven_lines_that_name_what_is_there(demo: Demo) -> None:
    summary = (demo.folder.parent / "screen.txt").read_text().splitlines()[-11:]
    assert re.fullmatch(rf"done in .+; in {re.escape(str(demo.folder))} there are now:", summary[0])
    for line in summary[1:7]:
        assert (demo.folder / line.split()[0].rstrip(",")).exists()
    for line in summary[8:10]:
        paste(line, demo)
    assert (CLONE / summary[10].split(",")[0].strip()).is_file()


def test_the_index_holds_the_variants_of_one_release(demo: Demo) -> None:
    """Each page names what is there with its digest; targets and ROCm are read from the wheels."""
    index = demo.folder / "release" / "index"
    listed = {}
    for page in index.glob("*/index.json"):
        for entry in json.loads(page.read_text())["files"]:
            file = page.parent / entry["filename"]
            assert entry["hashes"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
            listed[entry["filename"]] = file
    wheels = {name: file for name, file in listed.items() if name.endswith(".whl") and "rocm_sdk" not in name}
    assert {name for name in wheels if name.startswith("rocm-")} == {
        f"rocm-{version}-py3-none-any.whl"
        for version in (miniature.ROCM_VERSION, miniature.EARLIER_ROCM_VERSION)
    }
    wheels = {name: file for name, file in wheels.items() if not name.startswith("rocm-")}
    assert {name.split("-")[0]: name.split("-")[1] for name in wheels} == {
        "torch": "2.13.0a0",
        "triton": demo.wheels()["triton"].name.split("-")[1].split(".rocm")[0],
    }
    assert sorted((name.split("-")[0], name[:-4].split("-")[5:]) for name in wheels) == [
        ("torch", []),
        ("torch", ["rocm7.0_gfx942"]),
        ("torch", ["rocm7.1_gfx942_gfx1100"]),
        ("triton", []),
        ("triton", ["null"]),
    ]
    for name, wheel in wheels.items():
        held = targets_in(wheel)
        metadata = dist_info_file(wheel, "METADATA")
        document = json.loads(dist_info_file(wheel, "variant.json") or "{}")
        if name.startswith("triton"):
            assert (held, "Requires-Dist" in metadata) == (set(), False)
            assert document.get("variants", {"null": {}}) == {"null": {}}
            continue
        earlier = "-rocm7.0_" in name
        assert held == ({"gfx942"} if earlier else set(miniature.TARGETS))
        rocm = miniature.EARLIER_ROCM_VERSION if earlier else miniature.ROCM_VERSION
        extras = (
            "device-gfx942,libraries" if earlier else "libraries"
        )  # of one target: its device package, too
        assert f"Requires-Dist: rocm[{extras}]=={rocm}\n" in metadata
        with zipfile.ZipFile(wheel) as torch:
            assert f'check_version="{rocm}"' in torch.read("torch/_rocm_init.py").decode()
        for stated in document.get("variants", {}).values():
            assert stated == {"amd": {"gfx_arch": sorted(held)}, "rocm": {"version": [rocm[:3]]}}
    labels = {label for name in wheels for label in name[:-4].split("-")[5:]}
    joined = [
        json.loads(file.read_text()) for name, file in listed.items() if name.endswith("-variants.json")
    ]
    assert {label for one in joined for label in one["variants"]} == labels


def test_the_wheel_for_every_machine_is_the_same_for_both_versions_of_rocm(demo: Demo) -> None:
    """Otherwise triton would be no null variant: what is in it must not come from ROCm."""
    held = []
    for place in (demo.folder / "wheels", demo.folder / "earlier-rocm" / "wheels"):
        with zipfile.ZipFile(next(place.glob("triton-*.whl"))) as wheel:
            held.append({n: wheel.read(n) for n in wheel.namelist() if ".dist-info/" not in n})
    assert held[0] == held[1]
    assert any(name.endswith(".so") for name in held[0])


@pytest.mark.parametrize(
    ("machine", "labels"),
    [
        ("gfx942", ["rocm7.1_gfx942_gfx1100", "rocm7.0_gfx942"]),
        ("gfx1100", ["rocm7.1_gfx942_gfx1100"]),
        ("gfx1201", []),
    ],
)
def test_machines_are_offered_what_they_run_the_newer_rocm_first(
    demo: Demo, machine: str, labels: list[str]
) -> None:
    """As variantlib, the reference, ranks them with AMD's provider; it adds a null that may not exist."""
    program = (
        "import json, sys; from variantlib.api import get_variants_by_priority as rank\n"
        "found = rank(variants_json=json.load(open(sys.argv[1])), venv_python_executable=sys.executable)\n"
        "print(*(one.label for one in found))"
    )
    (index,) = (demo.folder / "release/index/torch").glob("*-variants.json")
    ranked = demo.start(sys.executable, "-c", program, index, ROCM_BOOTSTRAP_FORCE_GFX_ARCH=machine)
    assert ranked.out.split() == [*labels, "null"]


@pytest.mark.parametrize(
    ("machine", "label"), [("gfx942", "rocm7.1"), ("gfx1100", "rocm7.1"), ("new:gfx1399", ""), ("none", "")]
)
def test_people_are_told_which_wheel_is_for_their_machine(demo: Demo, machine: str, label: str) -> None:
    assert any(line.endswith(f"--gfx {machine} --allow-cpu") for line in demo.log().splitlines())
    words = ("--index", demo.folder / "release/index", "--gfx", machine, "--allow-cpu", "--json")
    (choice,) = json.loads(demo.ours("choose", "torch", *words, code=0).out)["choices"]
    plain = next((demo.folder / "release" / "plain").glob("torch-*.whl")).name
    expected = f"-{label}_gfx942_gfx1100.whl" if label else plain
    assert choice["picked"]["name"].endswith(expected)
    reasons = {one["label"]: one["reason"] for one in choice["candidates"] if one["rank"] is None}
    assert ("rocm7.0_gfx942" in reasons) == (machine != "gfx942")


def test_the_variant_of_a_machine_is_installed_and_looked_at(demo: Demo) -> None:
    """It carries no label any more: pip knows none; what it was made of says which one it is."""
    (wheel,) = (demo.folder / "release" / "variants").glob("torch-*rocm7.1_*.whl")
    assert demo.has_installed("by-rocm-wheels", wheel)
    said = demo.log()
    assert re.search(r"ok +kernels of torch for gfx942: yes, code for gfx942 \(.*libtorch_hip\.so\)", said)
    assert "no problems found" in said


def test_pip_took_plain_wheels_and_uv_the_null_variant(demo: Demo) -> None:
    """pip knows no variants; uv knows them, and does not run AMD's provider, so no GPU's is for it."""
    plain = {name.name.split("-")[0]: name for name in (demo.folder / "release" / "plain").glob("*.whl")}
    variants = demo.folder / "release" / "variants"
    (null,) = variants.glob("triton-*-null.whl")
    expected = {"by-pip": plain, "by-uv": {**plain, "triton": null}}
    for installer, took in expected.items():
        (site,) = (demo.folder / "installed" / installer).glob("lib/python*/site-packages")
        for name, wheel in took.items():
            installed = site / f"{name}-{wheel.name.split('-')[1]}.dist-info"
            assert (installed / "variant.json").exists() == (wheel == null)
            assert demo.has_installed(installer, wheel)
    python = demo.folder / "installed/by-uv/bin/python"
    assert demo.start(python, "-I", "-c", "import torch; print(torch.version.hip)").out.startswith("7.1.0")


def test_a_torch_without_its_device_wheel_says_which_extra_brings_it(demo: Demo, tmp_path: Path) -> None:
    words = (demo.folder / "installed/split/bin/python", "-I", "-c", "import torch; torch.relu_cpu")
    assert demo.start(*words).err == ""
    (info,) = (demo.folder / "installed/split").glob("lib/python*/site-packages/amd_torch_device_*.dist-info")
    gone = info.rename(tmp_path / info.name)
    try:
        assert "pip install 'torch[device-gfx942]'" in demo.start(*words).err
    finally:
        gone.rename(info)


def test_a_set_is_released_by_a_named_exception(demo: Demo) -> None:
    """Blocked for want of a GPU, then excused; what people get are the bytes that were built and tested."""
    said = demo.log()
    releases = demo.folder / "releases"
    (staged,) = (releases / "store/multi-arch/sets").iterdir()
    verdict = f"{staged.name} of multi-arch {{}} go to nightly (untested)"
    blocked, _, excused = said.partition(verdict.format("cannot"))[2].partition(verdict.format("can"))
    assert "exit code 15, as expected: nobody signed" in said
    assert re.findall(r"^  FAIL +(.+?)  +", blocked, re.M) == [
        *("signers", "audit", "resolver", "smoke on gfx942")  # nobody signed what there is
    ]
    assert re.findall(r"^  bypassed +smoke on (gfx\d+)", excused, re.M) == ["gfx1100", "gfx942"]

    files = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in demo.wheels().values()}
    found = [json.loads(one.read_text()) for one in (staged.parents[1] / "evidence").glob("*/*.json")]
    assert sorted((one["kind"], one["outcome"], one["gfx"]) for one in found) == [
        ("audit", "pass", None),
        ("resolver", "pass", None),
        ("smoke", "pass", None),
    ]
    assert all(set(one["hashes"]) == set(files.values()) for one in found)

    pages = [
        json.loads(page.read_text())
        for page in (releases / "store/multi-arch/simple").glob("nightly/*/*.json")
    ]
    assert {file["filename"]: file["hashes"]["sha256"] for page in pages for file in page["files"]} == files
    for html in (releases / "store/multi-arch/simple/nightly").glob("*/index.html"):
        assert f"{staged.name}: untested" in html.read_text()
    assert all(demo.has_installed("from-the-release", wheel) for wheel in demo.wheels().values())


def test_the_audit_of_a_set_lets_it_go_or_holds_it(demo: Demo, tmp_path: Path) -> None:
    """From the staged set itself, which says what was planned: a wheel that is gone is missed twice."""
    store, policy = tmp_path / "store", tmp_path / "policy.yaml"
    shutil.copytree(demo.folder / "releases" / "store", store)
    [document] = (store / "multi-arch" / "sets").glob("*/set.json")
    policy.write_text("channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}")
    of_set = (str(store), "--set", document.parent.name)

    audit = ("audit", "--set", document, "--by-recipe", "--json")
    found = json.loads(demo.ours(*audit, code=0).out)["set"]
    assert "set-plan" in found["ran"] and not found["findings"]
    demo.ours("set", "check", *of_set, code=0)
    demo.ours("set", "gate", *of_set, "--channel", "nightly", "--policy", policy, code=0)
    next(store.rglob("torchaudio-*.whl")).unlink()
    found = json.loads(demo.ours(*audit, code=14).out)["set"]
    assert {"RW061", "RW065"} <= {finding["id"] for finding in found["findings"]}


def test_the_smoke_tests_of_a_demo_were_run_and_the_rest_is_named(demo: Demo) -> None:
    """A selection of the CPU half, which it says; no test of a GPU counts as run."""
    results = json.loads((demo.folder / "releases/results/smoke/results.json").read_text())
    outcomes = {one["name"]: one["outcome"] for one in results["tests"]}
    belongs = "test_companion_belongs_to_this_torch[{}]"
    assert outcomes.pop(f"test_versions.py::{belongs.format('pytorch-triton-rocm')}") == "skipped"
    companions = map(belongs.format, ("apex", "torchaudio", "torchvision", "triton"))
    assert {name.partition("::")[2]: outcome for name, outcome in outcomes.items()} == dict.fromkeys(
        {*companions, "test_torch_starts", "test_requirements_of_torch_are_met", "test_rocm_sdk"}, "passed"
    )
    assert "gfx" not in results and results["selected"]
    assert set(results["wheels"]) == {wheel.name for wheel in demo.wheels().values()}
    said = demo.log()
    assert "the smoke tests of the CPU half that calculate nothing" in said


def test_torch_requires_its_rocm_and_its_triton(demo: Demo) -> None:
    with zipfile.ZipFile(demo.wheels()["torch"]) as torch:
        metadata = next(torch.read(n).decode() for n in torch.namelist() if n.endswith("/METADATA"))
        assert f"Requires-Dist: rocm[libraries]=={miniature.ROCM_VERSION}" in metadata
        triton = demo.wheels()["triton"].name.split("-")[1]
        assert f"Requires-Dist: triton=={triton}" in metadata
        assert f'check_version="{miniature.ROCM_VERSION}"' in torch.read("torch/_rocm_init.py").decode()


def test_tritons_version_names_the_upstream_commit(demo: Demo) -> None:
    pin = (demo.torch / ".ci/docker/ci_commit_pins/triton.txt").read_text()
    assert f"+git{pin[:8]}.rocm" in demo.wheels()["triton"].name


def test_a_second_run_does_nothing_and_says_so(demo: Demo) -> None:
    before = snapshot(demo.folder)
    ended = run_demo(demo)
    assert ended.code == 0, ended.err
    log = (demo.folder / "demo.log").read_text()
    assert log.count("nothing to do: every wheel is up to date") == 4
    assert "fat is up to date" in log and "split is up to date" in log
    assert "by-pip is up to date" in log and "by-uv is up to date" in log
    assert "releases/results is up to date" in log
    assert "nothing to do; nightly of multi-arch is at 2.13.0a0-rocm7.1.0.miniature-" in log
    assert "from-the-release is up to date" in log
    assert "added " not in log
    changed = changed_since(before, demo.folder)
    assert not {p for p in changed if p.suffix in {".whl", ".o", ".so", ".hip", ".cu"}}
    ignored = {"__pycache__", ".locks", ".lock"}
    places = {"environments", "installed", "release", "files", "evidence", "simple", "results"}
    assert not [p for p in changed if places & set(p.parts) and not ignored & set(p.parts)]


def kind_of(line: str) -> tuple[str, str, bool]:
    """Return what tells how a command is pasted: its program and its exit code.

    The demo has run the same words, all of them. What uv empties, uv fills.
    """
    program, *words = shlex.split(line)
    name = Path(program).name
    return name, words[0] if name == "uv" else "", "--explain" in words


def test_every_command_that_it_printed_can_be_pasted(demo: Demo, exhaustive: bool) -> None:
    """In the clone, by somebody who activated nothing. The sample has the first command of each kind."""
    said = demo.log()
    lines = [line.removeprefix("$ ") for line in said.splitlines() if line.startswith("$ ")]
    assert len(lines) == 44
    if not exhaustive:
        kinds = {kind_of(line): line for line in reversed(lines)}
        lines = [line for line in lines if line in kinds.values()]
        assert len(lines) >= 8
    for line in lines:
        paste(line, demo, 15 if " gate " in line and " --explain" in line else 0)


def paste(line: str, demo: Demo, code: int = 0) -> None:
    """Run a line in a shell that stands in the clone; the Python on its PATH is that of the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{demo.env['PATH']}"
    demo.start("sh", "-c", line, code=code, cwd=CLONE, PATH=path)


def by_lock(demo: Demo) -> list[str]:
    return ["--lock", str(demo.folder / "sources.lock.json"), "--source-dir", str(demo.folder / "sources")]


def test_a_build_from_the_lock_is_of_its_trees(demo: Demo) -> None:
    words = [*by_lock(demo), "--output-dir", str(demo.folder / "wheels")]
    ended = demo.run("build", *words, "--json")
    assert ended.code == 0, ended.err
    digest = hashlib.sha256((demo.folder / "sources.lock.json").read_bytes()).hexdigest()
    assert {row["lock"] for row in json.loads(ended.out)} == {digest}
    setup = demo.folder / "sources/apex/setup.py"
    text = setup.read_text()
    setup.write_text(text + "# mine\n")
    try:
        refused = demo.run("build", *words)
    finally:
        setup.write_text(text)
    assert refused.code == 10
    assert "  apex: it was changed since its checkout" in refused.err
    fewer = demo.run("build", *words, "--rocm", "==7.2")
    assert (fewer.code, "contradicts" in fewer.err) == (2, True)


def test_each_wheel_holds_what_it_was_built_from(demo: Demo) -> None:
    whole = json.loads((demo.folder / "sources.lock.json").read_text())
    held = {name: lock_in(wheel) for name, wheel in demo.wheels().items()}
    assert {name: list(lock["projects"]) for name, lock in held.items()} == {
        "triton": ["triton"],
        "torch": ["triton", "pytorch"],
        "apex": ["triton", "pytorch", "apex"],
        "torchaudio": ["triton", "pytorch", "pytorch_audio"],
        "torchvision": ["triton", "pytorch", "pytorch_vision"],
    }
    for lock in held.values():
        assert lock["projects"].items() <= whole["projects"].items()
        assert (lock["rocm"], lock["targets"]) == (miniature.ROCM_VERSION, list(miniature.TARGETS))
    with zipfile.ZipFile(demo.wheels()["torch"]) as torch:
        version = torch.read("torch/version.py").decode()
    upstream = whole["projects"]["pytorch"]["commit"]
    assert f"git_version = {upstream!r}\n" in version  # not the commit of hipify, which is HEAD


def test_each_wheel_lists_its_parts(demo: Demo) -> None:
    """The repositories of its lock and their submodules, the ROCm packages; no path, no name of a user."""
    projects = json.loads((demo.folder / "sources.lock.json").read_text())["projects"]
    recipes = {"torch": "pytorch", "torchaudio": "pytorch_audio", "torchvision": "pytorch_vision"}
    for distribution, wheel in demo.wheels().items():
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(f".dist-info/{sbom.SBOM_MEMBER}"))
            content = archive.read(name)
        document = require_valid(content)
        assert str(demo.folder).encode() not in content
        assert str(Path.home()).encode() not in content
        components = {part["purl"]: part for part in document["components"]}
        locked = projects[recipes.get(distribution, distribution)]
        commits = {locked["commit"], *(each["commit"] for each in (locked["submodules"] or {}).values())}
        assert {purl.rpartition("@")[2] for purl in components if "pypi" not in purl} == commits
        packages = {purl for purl in components if purl.startswith("pkg:pypi/rocm")}
        assert bool(packages) == (distribution not in ("triton", "torchaudio")), (distribution, packages)
        for purl in packages:
            assert [entry["name"] for entry in components[purl]["properties"]] == [
                "rocm-wheels:record-sha256"
            ]


def test_each_wheel_says_how_it_was_built(demo: Demo) -> None:
    """Its statement is of these bytes, follows what was done to it, and comes back without a build."""
    wheels = demo.wheels()
    made = [*wheels.values(), *(demo.folder / "release").rglob("*.whl")]
    named = [str(path) for path in made if path.with_name(f"{path.name}.intoto.json").is_file()]
    assert set(map(str, wheels.values())) < set(named)  # variants have them, too
    checked = demo.ours("provenance", "verify", *named, "--json", code=0)
    assert {report["builder"] for report in json.loads(checked.out)} == {TOOL_URN}
    statements = [Path(f"{name}.intoto.json").read_text() for name in named]
    for secret in (str(demo.folder), str(Path.home()), platform.node(), demo.env["XDG_CACHE_HOME"]):
        assert not any(secret in text for text in statements)
    statement = wheels["torch"].with_name(f"{wheels['torch'].name}.intoto.json")
    content = statement.read_bytes()
    statement.unlink()
    again = demo.build()
    assert again.code == 0, again.err
    assert "nothing had to be built" in again.err
    assert statement.read_bytes() == content


def test_another_lock_of_the_same_sources_rebuilds_nothing(demo: Demo, tmp_path: Path) -> None:
    lock = json.loads((demo.folder / "sources.lock.json").read_text())
    lock["projects"]["pytorch"]["why"] = "said in another way"
    (tmp_path / "other.json").write_text(json.dumps(lock))
    output = tmp_path / "wheels"
    words = ["--source-dir", str(demo.folder / "sources"), "--output-dir", str(output)]
    ended = demo.run("build", "--lock", str(tmp_path / "other.json"), *words)
    assert ended.code == 0, ended.err
    renewed = re.findall(r"^.*repair-\w+-cp.*inputs changed: lock \(", ended.err, re.MULTILINE)
    assert len(renewed) == 4  # not triton's
    assert "; nothing had to be built" in ended.err
    torch = next(output.glob("torch-*.whl"))
    assert lock_in(torch)["projects"]["pytorch"]["why"] == "said in another way"
    demo.ours("audit", "--by-recipe", torch, code=0)
    back = ["--lock", str(demo.folder / "sources.lock.json"), *words[:3], str(demo.folder / "wheels")]
    assert demo.run("build", *back).code == 0


def lock_in(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/sources.lock.json"))
        found: dict[str, Any] = json.loads(archive.read(name))
    return found


def test_the_table_at_the_end_names_the_bytes(demo: Demo) -> None:
    ended = demo.build("--json")
    rows = json.loads(ended.out)
    assert [row["project"] for row in rows] == ["triton", "pytorch", "pytorch_audio"]
    for row in rows:
        wheel = demo.folder / "wheels" / row["wheel"]
        assert row["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert row["size"] == wheel.stat().st_size
        assert sorted(row["targets"]) == ([] if row["project"] == "triton" else sorted(miniature.TARGETS))
        assert row["checked"] == "verified"


def test_cmake_is_that_of_the_build_environment(demo: Demo) -> None:
    cache = (demo.torch / "build" / "CMakeCache.txt").read_text()
    command = re.search(r"CMAKE_COMMAND:INTERNAL=(.*)", cache)
    assert command and Path(command.group(1)).is_relative_to(demo.torch / "build")  # a copy, for all Pythons
    installed = (demo.folder / "sources" / ".rocm-wheels" / "environments").glob(
        "*/tools/pytorch/lib/*/site-packages/cmake"
    )
    (own,) = installed
    assert Path(command.group(1)).read_bytes() == (own / "data" / "bin" / "cmake").read_bytes()


MINE = {"CXXFLAGS": "-DMINE=1", "LD_LIBRARY_PATH": "/mine"}


def test_killed_builds_go_on_in_their_tree(demo: Demo, tmp_path: Path) -> None:
    """Of other targets, with other flags, which stay where they belong."""
    alone = ("--no-build-triton", "--no-build-pytorch-audio")
    with (tmp_path / "said").open("w") as file:
        child = subprocess.Popen(
            demo.command(*demo.build_words("--clean", *alone, output="narrow", targets="gfx942")),
            env={**demo.env, **MINE},
            start_new_session=True,
            stderr=file,
        )
    wait_until(lambda: not objects_in(demo.torch), "an empty tree")
    wait_until(lambda: len(objects_in(demo.torch)) >= 2, "objects")
    before = objects_in(demo.torch)
    killed = time.time_ns()
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    err = (tmp_path / "said").read_text()
    assert re.search(r"build-pytorch-\w+: starting \(inputs changed: .*PYTORCH_ROCM_ARCH", err), err
    ended = demo.build(
        output="narrow", targets="gfx942", **MINE
    )  # at once: what the killed run had started is no danger
    assert ended.code == 0, ended.err
    done = {path: when for path, when in before.items() if when < killed}
    assert done
    again = objects_in(demo.torch)
    kept = [path for path, when in done.items() if again.get(path) == when]
    assert len(kept) >= len(done) - 2  # those being written when the signal came are made again
    (torch,) = (demo.folder / "narrow").glob("torch-*.whl")
    assert targets_in(torch) == {"gfx942"}
    audio = demo.last_log("pytorch_audio")
    assert "-DMINE=1" in audio, "flags of the user stay"
    assert "rocm_sysdeps" not in audio, "no flag of torch gets there"


def test_a_terminated_build_leaves_no_process(demo: Demo) -> None:
    child = subprocess.Popen(
        demo.command(*demo.build_words("--clean", "--no-build-triton")),
        env=demo.env,
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: processes_in(demo.torch), "a process")
    child.terminate()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"interrupted\ntip: run the same command again" in err
    assert processes_in(demo.torch) == []


def test_github_gets_groups_and_a_summary_and_the_same_input_gives_the_same_bytes(
    demo: Demo, tmp_path: Path
) -> None:
    """As the demo itself made, after builds of other targets and flags, one of which was terminated."""
    page = tmp_path / "summary.md"
    words = [*by_lock(demo), "--output-dir", str(demo.folder / "wheels")]
    words += ["--clean", "--no-build-pytorch-vision", "--no-build-apex"]
    both = demo.run("build", *words, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(page))
    assert both.code == 0, both.err
    digests = demo.digests()
    assert digests == json.loads((demo.folder.parent / "digests.json").read_text())
    assert both.err.count("::group::build-") == 3
    assert both.err.count("::group::") == both.err.count("::endgroup::")
    table = page.read_text().splitlines()
    assert table[0].startswith("| wheel | version | targets |")
    for line, name in zip(table[2:], ("triton", "torch", "torchaudio"), strict=True):
        assert demo.wheels()[name].name in line and digests[name] in line


def test_editing_one_kernel_recompiles_one_object(demo: Demo) -> None:
    kernel = sorted(demo.torch.glob("aten/src/ATen/native/cuda/*.cu"))[0]
    kernel.write_text(kernel.read_text() + "\n// edited\n")
    try:
        ended = demo.build()
        assert ended.code == 0, ended.err
        log = demo.last_log("pytorch")
        compiled = re.findall(r"\[\d+/\d+\] Building HIP object \S+?(\w+)\.hip", log)
        assert compiled == [kernel.stem]  # hipified by the build
    finally:
        subprocess.run(["git", "checkout", "-q", "--", "."], cwd=demo.torch, check=True)
    # put back, it is the tree of the lock again, which no build has to hipify
    ended = demo.run("build", *by_lock(demo), "pytorch", "--output-dir", str(demo.folder / "wheels"))
    assert ended.code == 0, ended.err
    assert "hipify" not in ended.err


def test_a_failing_build_ends_with_its_first_error(demo: Demo) -> None:
    broken = sorted(demo.torch.glob("aten/src/ATen/native/hip/*.hip"))[0]
    text = broken.read_text()
    broken.write_text(text + "\n__global__ void broken(int *p) { p[0] = no_such_name; }\n")
    try:
        ended = demo.build()
    finally:
        broken.write_text(text)
    assert ended.code == 12
    assert re.search(
        rf"{re.escape(str(broken))}:\d+: use of undeclared identifier 'no_such_name' \(compiled for gfx\d+\)",
        ended.err,
    )
    assert re.search(r"log: .*/build-pytorch-cp\w+\.log", ended.err)
    last = ended.err.strip().splitlines()[-1]
    script = Path(shlex.split(last.split("repeat: ", 1)[1])[0])
    assert "-m build --wheel --no-isolation" in script.read_text(encoding="utf-8")
    assert re.search(r"pytorch .*failed", ended.out)
    assert re.search(r"pytorch_audio .*not built", ended.out)

    demo.start(script)


def test_a_wheel_that_fails_its_checks_is_kept_aside(demo: Demo) -> None:
    before = {p.name: p.read_bytes() for p in (demo.folder / "wheels").iterdir()}
    package = demo.torch / "torch" / "__init__.py"
    text = package.read_text()
    package.write_text(text + "\nraise RuntimeError('cannot be imported')\n")
    try:
        ended = demo.build("--no-build-pytorch-audio")
        assert ended.code == 14
        assert "cannot be imported" in ended.err
        aside = Path(re.findall(r"kept aside with its log: (.+)", ended.err)[-1])
        assert {p.suffix for p in aside.iterdir()} == {".whl", ".json", ".log"}
        assert {p.name: p.read_bytes() for p in (demo.folder / "wheels").iterdir()} == before
    finally:
        package.write_text(text)
    again = demo.build()
    assert again.code == 0, again.err


def test_five_projects_in_the_order_in_which_they_need_each_other(demo: Demo) -> None:
    ended = demo.build("--json", "--build-pytorch-vision", "--build-apex")
    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)
    order = ["triton", "pytorch", "apex", "pytorch_audio", "pytorch_vision"]
    assert [row["project"] for row in rows] == order
    assert {row["checked"] for row in rows} == {"verified"}


def test_apex_is_compiled_where_it_is_used_or_while_it_is_built(demo: Demo, tmp_path: Path) -> None:
    """Its wheel brings translated sources, and the tree that it was built in is as it was checked out."""
    tree = demo.folder / "sources" / "apex"
    assert {name: str((tree / "apex" / name).readlink()) for name in ("csrc", "op_builder")} == {
        "csrc": "../csrc",
        "op_builder": "../op_builder",
    }
    assert demo.start("git", "-C", tree, "status", "--porcelain").out == ""

    words = ("--no-build-triton", "--no-build-pytorch-audio", "--no-build-pytorch", "--build-apex")
    asked = [word for name in ("CPP", "CUDA") for word in ("--set-env", f"apex:APEX_BUILD_{name}_OPS=1")]
    torch = str(demo.wheels()["torch"])
    ended = demo.build(*words, *asked, "--pytorch-wheel", torch, output="compiled apex")
    assert ended.code == 0, ended.err
    (compiled,) = (demo.folder / "compiled apex").glob("apex-*.whl")
    assert targets_in(compiled) == set(miniature.TARGETS)

    python = environment_python(demo)
    root = demo.start(python, "-m", "rocm_sdk", "path", "--root").out.strip()
    for name, wheel in {"brought": compiled, "compiled here": demo.wheels()["apex"]}.items():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / name)
        places = {"PYTHONPATH": str(tmp_path / name), "TORCH_EXTENSIONS_DIR": str(tmp_path / "made" / name)}
        code = "from apex.optimizers import FusedSGD; print(FusedSGD(0.5).step([1.0], [1.0]))"
        used = demo.start(python, "-c", code, ROCM_HOME=root, **places)
        assert used.out.splitlines()[-1] == "(100, [1.0])", "there is no GPU here"
    assert [place.name for place in (tmp_path / "made").iterdir()] == ["compiled here"]


def environment_python(demo: Demo) -> Path:
    """Return the interpreter that the demo's apex was built by, with the tools that it needs."""
    (place,) = (demo.folder / "sources/.rocm-wheels/environments").glob("py*")
    return place / "tools" / "apex" / "bin" / "python"


def test_wheels_install_and_run_where_a_user_has_them(demo: Demo, tmp_path: Path) -> None:
    uv, venv = find_uv_bin(), tmp_path / "user"
    demo.start(uv, "venv", "-q", "--python", sys.executable, venv)
    install = (uv, "pip", "install", "-q", "--prerelease", "allow", "--python", venv / "bin" / "python")
    links = demo.folder / "rocm-packages" / "dist"
    demo.start(*install, "--find-links", links, *demo.wheels().values())
    code = "import apex, torch, torchaudio, torchvision, triton\n"
    code += "print(torch.version.hip, torch.cuda.is_available(), torch.__version__)"
    hip, available, version = demo.start(venv / "bin" / "python", "-I", "-c", code).out.split()
    assert hip.startswith("7.1.0") and version.endswith("+rocm7.1.0.miniature")
    assert available == "False"


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_fat_torch_needs_no_rocm_packages(demo: Demo, tmp_path: Path, installer: str) -> None:
    """Installed without an index, with its companions; its ROCm is its own, and goes with it."""
    wheels, links = demo.wheels(), demo.folder / "rocm-packages" / "dist"
    words = ("--find-links", links, "--gfx", "gfx942", "-o", tmp_path)
    demo.ours("wheel", "fat", wheels["torch"], *words, code=0)
    wheels["torch"] = tmp_path / wheels["torch"].name
    python = tmp_path / "user" / "bin" / "python"
    demo.start(find_uv_bin(), "venv", "-q", "--seed", "--python", sys.executable, python.parents[1])
    tool = {"uv": [find_uv_bin(), "pip"], "pip": [python, "-m", "pip"]}[installer]
    into = ["--python", python] if installer == "uv" else []
    named = [wheels[name] for name in ("torch", "triton", "torchaudio", "torchvision")]
    demo.start(*tool, "install", "-q", *into, "--no-index", *named)
    demo.start(*tool, "check", *into)
    code = "import torch, torchaudio, torchvision\n"
    code += "print(torch.cuda.is_available(), torch.saxpy_hip(2.0, [1.0], [1.0])[0])\n"
    code += "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}, sep='\\n')"
    said, *maps = demo.start(python, "-I", "-c", code).out.splitlines()
    assert said == "False 100", "a launch ends with hipErrorNoDevice"
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    ours = [name for name in maps if name.startswith(str(site))]
    assert f"{site}/torch/_rocm/lib/libamdhip64.so.7" in ours
    system = (str(Path(sys.base_prefix).resolve()), "/lib", "/usr")
    assert [name for name in maps if name not in ours and not name.startswith(system)] == []
    assert "rocm" not in " ".join(path.name for path in site.iterdir()).replace("rocm7.1.0", "")
    demo.start(*tool, "uninstall", "-q", *into, *(["-y"] if installer == "pip" else []), "torch")
    assert not (site / "torch" / "_rocm").exists()


def objects_in(source: Path) -> dict[Path, int]:
    """The HIP objects of a build tree, and when each was written; the tree may change meanwhile."""
    found = {}
    for folder, _, names in os.walk(source / "build"):
        for name in names:
            if name.endswith(".hip.o"):
                try:
                    found[Path(folder, name)] = Path(folder, name).stat().st_mtime_ns
                except FileNotFoundError:
                    continue
    return found


def processes_in(folder: Path) -> list[int]:
    """Processes whose current folder lies below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if place.is_relative_to(folder):
                found.append(int(entry.name))
    return found
