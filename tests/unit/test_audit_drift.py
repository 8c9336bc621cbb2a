"""A wheel against the one of the last good set: each loss is named by one check, a mere rebuild by none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_mutations import Mutation, Row, assert_named, become, drop, name_rows, put, require
from binaries import code_object, messagepack
from wheels import Draft, bundle, library

from rocm_wheels.audit import audited_wheel, checks, drift, drift_limits, exceptions, verify
from rocm_wheels.cli import boundary, main
from rocm_wheels.core.errors import DataError
from rocm_wheels.index import update
from rocm_wheels.wheels import scan

pytestmark = pytest.mark.contract

IDS = {
    "RW081": "lost-files",
    "RW082": "new-files",
    "RW083": "lost-libraries",
    "RW084": "lost-symbols",
    "RW085": "needed-drift",
    "RW086": "lost-targets",
    "RW087": "lost-kernels",
    "RW088": "size-drift",
    "RW089": "requirement-drift",
}
HIP, MODULE = "demo/lib/libdemo_hip.so.7", "demo/_C.cpython-311-x86_64-linux-gnu.so"
NUMBERED, GRAFT = "demo/lib/libkernels.so.0.11.0", "demo.libs/libgomp-0a1b2c3d.so.1.0.0"
DATABASE = "demo/lib/rocblas/library"
STEM = "TensileLibrary_Type_SS"
NO_RECIPE = audited_wheel.WheelExpectation(None, "linux")


def database(target: str, kernels: int = 1) -> dict[str, bytes]:
    stems, kernel = [f"{STEM}{number}_{target}" for number in range(kernels)], code_object(target)
    files = {f"{DATABASE}/TensileLibrary_lazy_{target}.dat": messagepack({"files": stems})}
    for stem in stems:
        files |= {f"{DATABASE}/{stem}.dat": b"1", f"{DATABASE}/{stem}.co": kernel}
    return files


def code(*targets: str, objects: int = 1) -> bytes:
    return b"".join(bundle(*targets).ljust(4096, b"\0") for _ in range(objects))


def hip(fatbin: bytes, *needed: str, soname: str = "libdemo_hip.so.7") -> bytes:
    libraries = needed or ("librocblas.so.5", "libamdhip64.so.7", "libc.so.6")
    return library(fatbin=fatbin, soname=soname, needed=libraries, run_path="$ORIGIN")


def demo() -> Draft:
    modules = {f"demo/{name}.py": name.encode() for name in ("__init__", "ops", "nn")}
    members = {
        **modules,
        HIP: hip(code("gfx942", "gfx1100", objects=12)),
        MODULE: library(needed=("libdemo_hip.so.7",), run_path="$ORIGIN:$ORIGIN/lib"),
        NUMBERED: library("gfx942", soname="libkernels.so"),
        GRAFT: library(soname="libgomp-0a1b2c3d.so.1.0.0"),
        **database("gfx942", 30),
        **database("gfx1100"),
    }
    requires = ["filelock>=3", "rocm[libraries]==7.1.0", "jinja2; extra == 'html'"]
    return Draft(
        "demo",
        "2.9.0+rocm7.1.0",
        "cp311-cp311-manylinux_2_17_x86_64",
        members=members,
        requires=requires,
        fields=["Provides-Extra: html"],
    )


def compare(
    old: Path, new: Path, limits: drift_limits.DriftLimits | None = None
) -> audited_wheel.AuditReport:
    """Return the report of a wheel, with what the comparison found alone."""
    baseline = audited_wheel.Baseline(
        audited_wheel.AuditedWheel(scan.scan_wheel(old, symbols=True), NO_RECIPE),
        limits or drift_limits.load_drift_limits(),
    )
    report = verify.check_wheel(
        audited_wheel.AuditedWheel(scan.scan_wheel(new, symbols=True), NO_RECIPE, baseline=baseline)
    )
    names = {check.name for check in checks.DRIFT_CHECKS}
    assert names <= set(report.ran)
    found = tuple(finding for finding in report.findings if finding.check in names)
    return replace(report, findings=found)


def flood(draft: Draft) -> None:
    draft.members |= {f"demo/tests/test_{number}.py": b"" for number in range(60)}


def drop_target(draft: Draft) -> None:
    """One GPU was left out of the build, everywhere."""
    for name in database("gfx1100"):
        del draft.members[name]
    draft.members[HIP] = hip(code("gfx942", objects=12))


def state_xnack(draft: Draft) -> None:
    """What ran with any setting runs with one."""
    draft.members[HIP] = hip(code("gfx942:xnack-", "gfx1100", objects=12))


def without_extra(draft: Draft) -> None:
    draft.fields.remove("Provides-Extra: html")
    draft.requires.remove("jinja2; extra == 'html'")


MOST_KERNELS = sorted({*database("gfx942", 30)} - {*database("gfx942", 5)})
MUTATIONS: list[Row] = [
    ("file", "RW081 warning", drop("demo/ops.py"), "demo/ops.py"),
    ("few-new", "", put("demo/more.py", b""), ""),
    ("many-new", "RW082 warning", flood, "60 files of demo/tests are new: test_0.py"),
    ("library", "RW083 error", drop(NUMBERED), "library libkernels.so.0.11.0 is gone"),
    ("module", "RW083 error", drop(MODULE), "the module _C.cpython-311"),
    (
        "soname",
        "RW083 error",
        put(HIP, hip(code("gfx942", "gfx1100", objects=12), soname="libdemo_hip.so.8")),
        "libdemo_hip.so.7 is libdemo_hip.so.8 now",
    ),
    ("graft", "RW083 warning", drop(GRAFT), "libgomp-0a1b2c3d.so.1.0.0 is gone"),
    (
        "unlinked",
        "RW085 warning",
        put(HIP, hip(code("gfx942", "gfx1100", objects=12), "libamdhip64.so.7")),
        "is no longer linked to librocblas.so.5",
    ),
    (
        "linked",
        "RW085 warning",
        put(NUMBERED, library("gfx942", soname="libkernels.so", needed=("libnuma.so.1",))),
        "newly linked to libnuma.so.1",
    ),
    ("toolchain", "", put(NUMBERED, library("gfx942", soname="libkernels.so", needed=("libdl.so.2",))), ""),
    (
        "number",
        "RW085 info",
        put(HIP, hip(code("gfx942", "gfx1100", objects=12), "librocblas.so.6", "libamdhip64.so.7")),
        "librocblas.so.6 instead of librocblas.so.5",
    ),
    ("target", "RW086 error", drop_target, "rocBLAS has no kernel files for gfx1100 any more"),
    ("one-library", "RW086 error", put(NUMBERED, library("gfx1100", soname="libkernels.so")), NUMBERED),
    ("no-code", "RW086 error", put(NUMBERED, library(soname="libkernels.so")), "no code objects"),
    ("feature", "RW086 error", state_xnack, "no code objects for gfx942 any more"),
    ("more-targets", "", put(NUMBERED, library("gfx942", "gfx90a", soname="libkernels.so")), ""),
    ("object", "RW087 warning", put(HIP, hip(code("gfx942", "gfx1100", objects=11))), "11 of 12"),
    ("objects", "RW087 error", put(HIP, hip(code("gfx942", "gfx1100", objects=2))), "2 of 12"),
    ("kernels", "RW087 error", drop(*MOST_KERNELS), "rocBLAS has 11 of 61 kernel files for gfx942"),
    ("large", "RW088 warning", put("demo/ops.py", bytes(2 << 20)), "grew from"),
    ("no-requirement", "RW089 warning", require(instead="filelock>=3"), "no longer requires filelock>=3"),
    (
        "requirement",
        "RW089 warning",
        require("filelock>=3", "numpy", instead="filelock>=3"),
        "newly requires numpy",
    ),
    (
        "loose-pin",
        "RW089 warning",
        require("rocm[libraries]>=7.1.0", instead="rocm[libraries]==7.1.0"),
        "rocm[libraries]>=7.1.0 instead",
    ),
    ("bound", "RW089 info", require("filelock>=4", instead="filelock>=3"), "filelock>=4 instead"),
    ("pin", "", require("rocm[libraries]==7.1.1", instead="rocm[libraries]==7.1.0"), ""),
    ("extra", "RW089 warning", without_extra, "no longer has 1 extra: html"),
    ("python", "RW089 warning", become(python=">=3.11"), "Python >=3.11"),
]


@pytest.fixture(scope="module")
def last_good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo().write(tmp_path_factory.mktemp("last-good"))


@pytest.mark.parametrize(("named", "change", "words"), name_rows(MUTATIONS))
def test_one_loss_is_named_by_exactly_one_check(
    named: str, change: Mutation, words: str, last_good: Path, tmp_path: Path
) -> None:
    draft = demo()
    change(draft)
    assert_named(compare(last_good, draft.write(tmp_path)).findings, named, words)


def test_ids_are_for_good_and_each_has_its_mutation() -> None:
    ids = {check.id: check.name for check in checks.DRIFT_CHECKS}
    assert ids == IDS and set(IDS) <= {check.id for check in checks.ALL_CHECKS}
    assert all(check.looks_for and check.why and check.fix for check in checks.DRIFT_CHECKS)
    assert {row[1].split()[0] for row in MUTATIONS if row[1]} == IDS.keys() - {"RW084"}


def test_the_same_wheel_and_one_that_was_built_again_are_silent(last_good: Path, tmp_path: Path) -> None:
    """Versions, tags, digests and hashes of grafted libraries go with each build."""
    assert compare(last_good, last_good).findings == ()
    draft = demo()
    draft.version, draft.tag = "2.9.1+rocm7.1.1", "cp311-cp311-manylinux_2_28_x86_64"
    draft.requires[1] = "rocm[libraries]==7.1.1"
    draft.members["demo/lib/libkernels.so.0.12.1"] = draft.members.pop(NUMBERED)
    del draft.members[GRAFT]
    draft.members["demo.libs/libgomp-99887766.so.1.0.0"] = library(soname="libgomp-99887766.so.1.0.0")
    assert compare(last_good, draft.write(tmp_path)).findings == ()


def test_code_of_a_generic_processor_serves_what_it_covers(tmp_path: Path) -> None:
    old, new = demo(), demo()
    old.members = {NUMBERED: library("gfx1101", "gfx1102", soname="libkernels.so")}
    new.members = {NUMBERED: library(fatbin=bundle("gfx11-generic", abi=4), soname="libkernels.so")}
    (tmp_path / "new").mkdir()
    first, second = old.write(tmp_path), new.write(tmp_path / "new")
    assert compare(first, second).findings == ()
    lost = compare(second, first).findings
    assert [(finding.check, finding.severity) for finding in lost] == [("lost-targets", "error")]


def test_a_policy_sets_limits(last_good: Path, tmp_path: Path) -> None:
    draft = demo()
    del draft.members["demo/ops.py"]
    path = draft.write(tmp_path)
    policy = tmp_path / "audit.yaml"
    text = "limits:\n  files-lost:\n    {bounds}\n    reason: ours\n"
    policy.write_text(text.format(bounds="error: {percent: 0, amount: 0}"))
    [finding] = compare(last_good, path, exceptions.load_audit_policy(policy).drift_limits).findings
    assert finding.severity == "error"
    policy.write_text(text.format(bounds="warning: {percent: 50, amount: 0}"))
    assert compare(last_good, path, exceptions.load_audit_policy(policy).drift_limits).findings == ()
    negative = text.format(bounds="warning: {percent: -1, amount: 0}")
    for broken in (negative, "limits: {files-lost: {reason: x}}", "limits: {files-gone: {}}"):
        policy.write_text(broken)
        with pytest.raises(DataError, match=r"audit\.yaml:"):
            exceptions.load_audit_policy(policy)


def test_wheels_are_matched_by_what_does_not_change_with_a_build() -> None:
    new = [
        "demo-2.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "demo-2.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "demo-2.1-cp312-cp312-win_amd64.whl",
        "demo-2.1-cp312-cp312-linux_x86_64-rocm7.whl",
        "no wheel.whl",
    ]
    old = [
        "demo-1.9+rocm7.1-cp311-cp311-linux_x86_64.whl",
        "demo-1.10+rocm7.0-cp311-cp311-linux_x86_64.whl",
        "demo-2.0-cp312-cp312-win_amd64.whl",
        "demo-2.0-cp312-cp312-linux_aarch64.whl",
        "Demo-2.0-cp312-cp312-manylinux_2_17_x86_64-rocm7.whl",
    ]
    assert drift.match_wheels(new, old) == {new[0]: old[1], new[2]: old[2], new[3]: old[4]}


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = boundary.run_command(main.cli, ["audit", *map(str, words), "--json"])
    out = capfd.readouterr().out
    return code, json.loads(out) if out else {}


def test_a_set_is_compared_with_an_older_set(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder or an index; a wheel without successor is told of the set, and an exception lets it pass."""
    old, new, index = tmp_path / "old", tmp_path / "new", tmp_path / "index"
    for folder in (old, new):
        folder.mkdir()
    older, newer = demo(), demo()
    older.write(old)
    older.tag = "cp310-cp310-manylinux_2_17_x86_64"
    older.members[MODULE.replace("311", "310")] = older.members.pop(MODULE)
    lost = older.write(old)
    newer.version = "2.9.1+rocm7.1.1"
    wheel = newer.write(new)
    update.add_wheels(index, sorted(old.glob("*.whl")), now="2026-11-26T00:00:00Z")
    for place in (old, index):
        code, document = run(capfd, "--set", new, "--against", place)
        errors = [(f["id"], f["where"]) for f in document["set"]["findings"] if f["severity"] == "error"]
        assert code == 14 and errors == [("RW090", lost.name)]
        assert document["wheels"][0]["compared_with"] == f"demo-2.9.0+rocm7.1.0-{demo().tag}.whl"
        assert not {"RW081", "RW083", "RW086"} & {f["id"] for f in document["wheels"][0]["findings"]}
    policy = tmp_path / "audit.yaml"
    policy.write_text(
        "ignore:\n  - {check: RW090, wheel: '*cp310*', owner: ann, reason: 3.10 ended, expires: 2999-01-01}\n"
    )
    code, document = run(capfd, "--set", new, "--against", old, "--policy", policy)
    assert code == 0 and [f["id"] for f in document["set"]["ignored"]] == ["RW090"]
    code, document = run(capfd, "--set", old, "--against", new)
    assert code == 0 and "compared_with" not in document["wheels"][0]
    code, document = run(capfd, wheel, "--against", old / document["wheels"][1]["wheel"])
    assert code == 0 and "compared_with" in document["wheels"][0]


def test_what_cannot_be_compared_is_refused(
    last_good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = Draft("other", "1.0", "py3-none-any", members={"other.py": b""}).write(tmp_path)
    broken = tmp_path / "broken" / last_good.name
    broken.parent.mkdir()
    broken.write_bytes(last_good.read_bytes()[:100])
    for against in (other, tmp_path / "nowhere", tmp_path / "audit.yaml", broken):
        code, document = run(capfd, last_good, "--against", against)
        assert (code, document) == (2, {})


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs cc on Linux")
@pytest.mark.parametrize(
    ("member", "source", "severity", "said"),
    [
        ("libx.so", "int first; int second; int __hip_cuid_2;", "", ""),
        ("libx.so", "int first; int __hip_cuid_1;", "error", "lost 1 C symbol of 2: second"),
        ("libx.so", "int second; int first; int more;", "", ""),
        ("x.cpython-311-x86_64-linux-gnu.so", "int first;", "", ""),
        ("libx-0a1b2c3d.so", "int first;", "", ""),
    ],
)
def test_symbols_that_others_can_link_to_are_kept(
    member: str, source: str, severity: str, said: str, tmp_path: Path
) -> None:
    """Of compiled libraries; nobody links to a module, or to what a repair took in."""
    wheels = []
    for name, text in (("old", "int first; int second; int __hip_cuid_1;"), ("new", source)):
        folder = tmp_path / name
        folder.mkdir()
        command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{member}", "-x", "c", "-", "-o", folder / "x"]
        subprocess.run(command, input=text, text=True, check=True)
        draft = Draft("demo", "1.0", "cp311-cp311-manylinux_2_17_x86_64")
        draft.members = {f"demo/{member}": (folder / "x").read_bytes()}
        wheels.append(draft.write(folder))
    findings = compare(*wheels).findings
    assert [finding.check for finding in findings] == ["lost-symbols"] * bool(severity)
    assert all((f.severity, f.message) == (severity, said) for f in findings)
