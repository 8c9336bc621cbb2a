"""TheRock's scripts for manifests, wheels and reports: its command lines, on real repositories and wheels."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from commands import run_program
from finished_demo import Demo
from sources import Upstream
from warm_python import warm_python

from rocm_wheels.core import junit
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.testing.results import write_junit, write_results

TOOLS = Path(__file__).resolve().parents[2] / "build_tools"
GENERATE, CHECKOUT = TOOLS / "generate_pytorch_source_manifest.py", TOOLS / "checkout_from_manifest.py"


@pytest.mark.contract
def test_manifest_is_generated_and_checked_out_as_the_lock_of_it(sources: Upstream, tmp_path: Path) -> None:
    up = sources.copy(tmp_path / "servers", github=True)
    up.git("audio", "branch", "nightly", "main~1")
    up.git("vision", "branch", "nightly", "main")

    def run(script: Path, *words: str | Path, code: int = 0) -> str:
        ended = up.start(tmp_path, script, *words)
        assert ended.code == code, ended.out + ended.err
        return ended.out

    refs = ("--manifest-dir", "manifests", "--pytorch-git-refs", "nightly;main")
    commit = "2555d629204cb066d6668823ad6241d2fcf250e4"
    rocm = ("--rocm-version", "7.13.0a20260501")
    # main of the fork pins no audio: nothing is written, of nightly neither
    run(GENERATE, *rocm, *refs, "--platform", "linux", "--projects", "pytorch pytorch_audio", code=10)
    assert not (tmp_path / "manifests").exists()
    for wrong in (
        ("--output", "m.json", "--pytorch-git-refs", "nightly main"),
        ("--pytorch-git-refs", "nightly"),
        ("--output", "m.json", "--manifest-dir", "x", "--pytorch-git-refs", "nightly"),
        ("--output", "m.json", "--pytorch-git-refs", "nightly", "--projects", "triton"),
        ("--output", "m.json", "--pytorch-git-refs", "nightly", "--projects", "pytorch;nosuch"),
        ("--output", "m.json", "--pytorch-git-refs", "nightly", "--therock-branch", "main"),
    ):
        run(GENERATE, *rocm, *wrong, code=2)
    words = ("--platform", "linux", "--therock-commit", commit, "--therock-branch", "main")
    run(GENERATE, *rocm, *words, *refs[:3], "nightly")
    file = tmp_path / "manifests" / "therock-manifest_torch_linux_nightly.json"
    manifest = json.loads(file.read_text())
    assert manifest.pop("schema_version") == 1
    suffix = "+rocm7.13.0a20260501"
    therock = {"repo": "https://github.com/ROCm/TheRock", "commit": commit, "branch": "main"}
    assert manifest.pop("therock") == {**therock, "version": "7.13.0a20260501"}
    assert {name: entry.get("branch") for name, entry in manifest.items()} == {
        "pytorch": "nightly", "pytorch_audio": "nightly", "pytorch_vision": "nightly", "apex": "master",
        "triton": None,
    }  # fmt: skip
    assert all(entry["version"].endswith(suffix) for entry in manifest.values())
    assert manifest["pytorch_audio"]["commit"] == up.git("audio", "rev-parse", "main~1")
    assert manifest["triton"]["commit"] == up.git("triton", "rev-parse", "main~1"), "as torch pins it"
    assert not [
        entry["repo"] for entry in manifest.values() if not entry["repo"].startswith("https://github.com/")
    ]

    run(CHECKOUT, "--manifest", file, "--checkout-root", "src", "--projects", "pytorch;pytorch_audio")
    words = ("--lock", file, "--source-dir", "locked")
    assert up.checkout(tmp_path, "torch", "pytorch_audio", *words).code == 0
    for name in ("pytorch", "pytorch_audio"):
        heads = {up.git(tmp_path / folder / name, "rev-parse", "HEAD") for folder in ("src", "locked")}
        assert len(heads) == 1
    assert sorted(path.name for path in (tmp_path / "src").iterdir() if path.name[0] != ".") == [
        "pytorch", "pytorch_audio",
    ]  # fmt: skip
    run(
        CHECKOUT,
        "--manifest-url",  # TheRock's word for it
        file.as_uri(),
        "--checkout-root",
        "plain",
        "--projects",
        "pytorch",
        "--no-hipify",
    )
    head = up.git(tmp_path / "plain" / "pytorch", "rev-parse", "HEAD")
    assert head == manifest["pytorch"]["commit"], "no commit of hipify is on top"
    for wrong in (
        (),
        ("--manifest", file, "--manifest-url", file.as_uri()),
        ("--manifest", file, "--projects", "nosuch"),
        ("--manifest", file, "--expected-pytorch-git-ref", "release/2.13"),
    ):
        run(CHECKOUT, *wrong, "--checkout-root", "none", code=2)
    assert not (tmp_path / "none").exists()


@pytest.mark.contract_slow
@pytest.mark.slow
@pytest.mark.network
def test_wheels_of_a_build_are_checked(demo: Demo, tmp_path: Path) -> None:
    def run(folder: Path, *words: str) -> int:
        script = "build_tools/sanity_check_wheel.py"
        ended = demo.run(str(folder), *words, door=script)
        assert "Traceback" not in ended.err, ended.err
        return ended.code

    assert run(demo.folder / "wheels") == 0
    (tmp_path / "dist").mkdir()
    assert run(tmp_path / "dist") == run(tmp_path / "none") == 2, "no wheel is no pass"
    audio = demo.wheels()["torchaudio"]
    shutil.copy(audio, tmp_path / "dist")
    assert run(tmp_path / "dist") == 0
    assert run(tmp_path / "dist", "--python", sys.executable) == 14, "it cannot be imported without its torch"
    content = audio.read_bytes()
    (tmp_path / "dist" / audio.name).write_bytes(content[: len(content) // 2])
    assert run(tmp_path / "dist") == 14
    (tmp_path / "dist" / audio.name).unlink()
    (tmp_path / "dist" / "torch-of-mine.whl").write_bytes(b"")
    assert run(tmp_path / "dist") == 2


def write_report(folder: Path, *failed: str, name: str = "python-pytest/test_nn/test_nn-1.xml") -> Path:
    cases = (
        junit.JunitCase("test_nn.TestNN", "test_passes", 1.0),
        *(
            junit.JunitCase("test_nn.TestNN", test, 1.0, "failure", "failed", f"{test}: 1 | 2\nmore")
            for test in failed
        ),
    )
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    junit.write_junit_file(file, [("pytest", cases)], when="2026-11-22T00:00:00", host="here")
    return file


def summarize(folder: Path, *words: str | Path, **variables: str) -> tuple[int, str]:
    """Run the script; return its exit code, and what it appended to the page of the job."""
    page = folder / "page.md"
    page.unlink(missing_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GITHUB_STEP_SUMMARY": str(page), **variables}
    argv = [*warm_python(), TOOLS / "summarize_test_results.py", *words]
    ended = run_program(argv, cwd=folder, env=env)
    text = page.read_text() if page.is_file() else ""
    assert text in ended.out
    return ended.code, text


@pytest.mark.contract
def test_reports_of_a_run_are_summarized(tmp_path: Path) -> None:
    reports = tmp_path / "test-reports"
    assert summarize(tmp_path, "--reports-dir", reports)[0] == 2
    reports.mkdir()
    assert summarize(tmp_path, "--reports-dir", reports)[0] == 16, "no report is no pass"
    whole = write_report(reports)
    code, text = summarize(tmp_path, "--reports-dir", reports)
    assert code == 0 and "|" not in text
    write_report(reports, "test_a", "test_b", name="python-pytest/test_mm/x.xml")
    shard = {"TEST_CONFIG": "default", "SHARD_NUMBER": "2", "NUM_TEST_SHARDS": "6", "AMDGPU_FAMILY": "gfx942"}
    code, text = summarize(tmp_path, "--reports-dir", reports, **shard)
    assert code == 0, "the run that failed did fail"
    assert "2 tests failed — default | shard 2/6 | gfx942" in text
    assert "| python-pytest/test_mm/x.xml | test_nn.TestNN::test_a | failed | test_a: 1 \\| 2 |" in text
    assert (
        summarize(tmp_path, "--reports-dir", reports, "--test-config", "inductor", **shard)[1].count(
            "inductor"
        )
        == 1
    )
    whole.write_text(whole.read_text()[:-30])
    code, text = summarize(tmp_path, "--reports-dir", reports)
    assert (
        code == 16 and "test_b" in text and "| python-pytest/test_nn/test_nn-1.xml |  | not whole |" in text
    )


@pytest.mark.contract
def test_reports_of_all_shards_are_summarized(tmp_path: Path) -> None:
    """Configurations may have hyphens in their names; a shard that left nothing is not one that passed."""
    artifacts = tmp_path / "artifacts"
    for name, failed in (("default-1-2", []), ("default-2-2", ["test_a"]), ("multi-gpu-1-1", ["test_b"])):
        write_report(artifacts / f"test-reports-{name}", *failed)
    facts = {"TORCH_VERSION": "2.13.0+rocm7.13", "PACKAGE_INDEX_URL": "https://x.example/whl"}
    code, text = summarize(tmp_path, "--combined-dir", artifacts, "--amdgpu-family", "gfx94X-dcgpu", **facts)
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ")]
    assert code == 0 and rows[2:] == [["| default", "2/2"], ["| multi-gpu", "1/1"]]
    assert all(value in text for value in facts.values())
    shutil.rmtree(artifacts / "test-reports-default-1-2")
    code, text = summarize(tmp_path, "--combined-dir", artifacts)
    assert code == 16 and "| default | 1/2 |  |  | missing |" in text
    shutil.rmtree(artifacts / "test-reports-multi-gpu-1-1" / "python-pytest")
    assert summarize(tmp_path, "--combined-dir", artifacts)[1].count("missing |") == 2
    for path in artifacts.iterdir():
        shutil.rmtree(path)
    assert summarize(tmp_path, "--combined-dir", artifacts)[0] == 2


@pytest.mark.contract
def test_records_of_our_own_runs_are_summarized(tmp_path: Path) -> None:
    alike = [TestResult(name=f"test_mm.py::t[{n}]", outcome="failed", detail="no kernel") for n in range(88)]
    tests = (
        TestResult(name="test_math.py::test_sum", outcome="failed", detail="1 is not 2"),
        TestResult(name="test_math.py::test_mm", outcome="missing", detail="not run"),
        *alike,
    )
    when = datetime(2026, 11, 22, tzinfo=timezone.utc)
    results = Results(kind="smoke", tool="x", when=when, host="here", wheels={}, tests=tests)
    folder = tmp_path / "smoke"
    folder.mkdir()
    write_results(folder, results)
    write_junit(folder / "junit.xml", results)
    code, text = summarize(tmp_path, "--reports-dir", folder)
    assert code == 16 and text.count("| test_math.py::test_") == 2, "one was not run"
    assert "90 tests failed" in text and text.count("no kernel") == 1
    assert "no kernel and 87 more of the same error" in text
    (folder / "results.json").write_text("{}")
    assert summarize(tmp_path, "--reports-dir", folder)[0] == 2
