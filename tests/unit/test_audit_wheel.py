"""One wheel, one fault, exactly this finding; and a wheel without faults has none."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from audit_mutations import Mutation, Row, assert_named, become, drop, name_rows, put
from binaries import code_object, kpack, kpack_reference
from wheels import INIT, VERSION, Draft, bundle, dll, library, torch_draft

from rocm_wheels.audit import audited_wheel, outputs, verify
from rocm_wheels.audit.checks import CHECKS
from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors
from rocm_wheels.models.project import load_project
from rocm_wheels.wheels import dist_info, scan

pytestmark = pytest.mark.contract

HIP = "torch/lib/libtorch_hip.so"
TARGETS = ("gfx942", "gfx1100")


def expectation(**changes: object) -> audited_wheel.WheelExpectation:
    known = audited_wheel.WheelExpectation(
        load_project("pytorch"),
        "linux",
        version="2.9.0+rocm7.1.0",
        python_tag="cp311",
        targets=TARGETS,
        rocm_version="7.1.0",
        requirements=("triton==3.5.0",),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def checked(report: audited_wheel.AuditReport) -> set[str]:
    return {finding.check for finding in report.findings}


def test_nothing_is_found_in_a_good_wheel(tmp_path: Path) -> None:
    report = verify.verify_wheel(torch_draft().write(tmp_path), expectation())
    assert report.findings == ()
    assert report.passed
    assert report.targets == ("gfx1100", "gfx942")
    # every check is accounted for, and what did not run says why
    named = {*report.ran, *(skip.check for skip in report.skipped)}
    assert named == {check.name for check in CHECKS} - {"exceptions"}
    reasons = {skip.check: skip.reason for skip in report.skipped}
    assert set(reasons) == {
        *("import", "device-consistency", "carried-rocm", "elf-tag-too-old", "imported-dlls"),
        *("target-list", "kernel-files", "kernel-targets", "needed-symbols", "entry-points"),
    }
    assert "no environment to import it in" in reasons["import"]


def init(old: str, new: str) -> Mutation:
    return put(INIT_FILE, INIT.replace(old, new))


def version(old: str, new: str) -> Mutation:
    return put(VERSION_FILE, VERSION.replace(old, new))


def requiring(*lines: str) -> Mutation:
    return become(requires=["filelock", *lines])


def wrong_digest(draft: Draft) -> None:
    draft.record["torch/__init__.py"] = (
        "torch/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFV,0"
    )


def hex_digest(draft: Draft) -> None:
    content = draft.members["torch/__init__.py"]
    digest = hashlib.sha256(content).hexdigest()
    draft.record["torch/__init__.py"] = f"torch/__init__.py,sha256={digest},{len(content)}"


def installer_file(draft: Draft) -> None:
    draft.members[f"{draft.folder}/direct_url.json"] = b"{}"


def extra_rocm(draft: Draft) -> None:
    draft.requires = ["filelock", TRITON, f"{ROCM}; extra == 'x'"]
    draft.fields = ["Provides-Extra: x"]


ROCM, TRITON, ON_ARM = "rocm[libraries]==7.1.0", "triton==3.5.0", "platform_machine == 'aarch64'"
AT_HOME, REPAIRED = library(run_path="/home/ci/sdk/lib"), "cp311-cp311-manylinux_2_28_x86_64"
INIT_FILE, VERSION_FILE = "torch/_rocm_init.py", "torch/version.py"
OTHER_WORDS = re.sub(r"__version__ = .*", "__version__ = 'of yesterday'", VERSION)
NO_CALL = "def initialize():\n    pass\n"
METADATA = b"Metadata-Version: 2.4\nVersion: 2.9.0+rocm7.1.0\n"
OTHER_VERSION = b"""Metadata-Version: 2.4
Name: torch
Version: 2.9.1
Requires-Python: >=3.10
Requires-Dist: rocm[libraries]==7.1.0
Requires-Dist: triton==3.5.0
"""

PROGRAM = "torch/test/hip_apply_test"  # which was asked for, and may hold code for the targets
FAULTS: list[Row] = [
    ("program", "", put(PROGRAM, library(*TARGETS)), ""),
    ("program-of-one", "", put(PROGRAM, library("gfx942")), ""),
    ("program-of-host", "", put(PROGRAM, library()), ""),
    ("program-of-another", "RW017 error", put(PROGRAM, library("gfx90a")), "holds gfx90a"),
    ("odd-key", "RW015 error", put(VERSION_FILE, "hip = {[]: 1}\n"), "a CPU-only build"),
    ("odd-signs", "RW015 error", put(VERSION_FILE, f"hip = {'-' * 100_000}1\n"), "nested too deeply"),
    ("odd-calls", "RW015 error", put(VERSION_FILE, f"hip = a{'()' * 20_000}\n"), "nested too deeply"),
    ("odd-version", "RW015 error", put(VERSION_FILE, OTHER_WORDS), VERSION_FILE),
    ("no-name", "RW001 error", become(file_name="torch.whl"), "is not the name of a wheel"),
    ("renamed", "RW001 error", become(metadata=OTHER_VERSION), "METADATA says version 2.9.1"),
    ("digest", "RW001 error", wrong_digest, "torch/__init__.py does not have the digest"),
    ("hex-digest", "RW025 warning", hex_digest, "digest in hex"),
    (
        "unlisted",
        "RW001 error",
        become(unlisted={"torch/extra.py": b"1"}),
        "torch/extra.py is in the wheel but not",
    ),
    ("tags", "RW023 error", become(wheel_tag="cp311-cp311-manylinux_2_28_x86_64"), "WHEEL states the tags"),
    ("no-field", "RW005 error", become(metadata=METADATA), "is not the name of a project"),
    ("bad-requirement", "RW005 error", requiring(ROCM, TRITON, "numpy >>= 2"), "a field cannot be read"),
    ("cut-bundle", "RW001 error", put(HIP, library(fatbin=bundle(*TARGETS)[:-4])), "reaches past the end"),
    ("lying-bundle", "RW001 error", put(HIP, library(fatbin=bundle(*TARGETS, lies=True))), "its e_flags"),
    ("cut-library", "RW001 error", put(HIP, library(*TARGETS)[:-70]), "reaches past the end"),
    ("distribution", "RW002 error", become(distribution="torch_nightly"), "is a wheel of torch-nightly"),
    ("version", "RW002 error", become(version="2.9.0+cpu"), "has version 2.9.0+cpu; 2.9.0+rocm7.1.0 was"),
    ("platform", "RW003 error", become(tag="cp311-cp311-win_amd64"), "is for win_amd64, not for linux"),
    ("any", "RW003 error", become(tag="py3-none-any"), "any platform, but holds torch/lib/lib"),
    ("python", "RW004 error", become(tag="cp312-cp312-linux_x86_64"), "does not fit the interpreter cp311"),
    (
        "threaded",
        "RW004 error",
        become(tag="cp311-cp311t-linux_x86_64"),
        "does not fit the interpreter cp311",
    ),
    (
        "licence",
        "RW005 error",
        become(fields=["License-Expression: do what you like"]),
        "license-expression",
    ),
    ("two-authors", "RW005 error", become(fields=["Author: A", "Author: B"]), "author is given twice"),
    ("unknown-field", "RW005 warning", become(fields=["Colour: red"]), "the field colour is unknown"),
    ("too-new", "RW006 error", become(python=">=3.12"), ">=3.12 shuts out 3.11"),
    ("any-python", "RW006 warning", become(python=""), "states no Requires-Python"),
    (
        "direct",
        "RW007 error",
        requiring(ROCM, TRITON, "numpy @ file:///build/numpy.whl"),
        "file:///build/numpy.whl",
    ),
    ("no-rocm", "RW008 error", requiring(TRITON), "does not require rocm[libraries]==7.1.0"),
    ("empty-rocm", "RW008 error", requiring(TRITON, "rocm[libraries]"), ", but rocm[libraries]"),
    ("lax-rocm", "RW008 error", requiring(TRITON, "rocm[libraries]>=7"), ", but rocm[libraries]>=7"),
    ("no-libraries", "RW008 error", requiring(TRITON, "rocm==7.1.0"), ", but rocm==7.1.0"),
    (
        "other-rocm",
        "RW008 error",
        requiring(TRITON, "rocm[libraries]==7.2.0"),
        ", but rocm[libraries]==7.2.0",
    ),
    ("extra-rocm", "RW008 error", extra_rocm, "does not require"),
    ("rocm-of-arm", "RW008 error", requiring(TRITON, f"{ROCM}; {ON_ARM}"), "does not require"),
    ("no-triton", "RW009 error", requiring(ROCM), "does not require triton==3.5.0"),
    ("triton-of-arm", "RW009 error", requiring(ROCM, f"{TRITON}; {ON_ARM}"), "does not require triton"),
    (
        "other-hip",
        "RW015 error",
        version("7.1.25424", "6.4.43482"),
        "with HIP 6.4.43482, and is for ROCm 7.1.0",
    ),
    ("no-runtime", "RW013 error", init('["amdhip64"]', '["hiprtc"]'), "does not preload amdhip64"),
    ("undeclared-extra", "RW005 error", requiring(ROCM, TRITON, "x; extra == 'y'"), "the extra y"),
    ("empty", "RW045 error", put("torch/lib/libx.so", b""), "is empty"),
    ("text", "RW045 error", put("torch/lib/libx.so", b"INPUT(libx.so.1)"), "is no ELF file"),
    ("of-windows", "RW045 error", put("torch/lib/c10.dll", dll("KERNEL32.dll")), "is for amd64"),
    ("relocations", "RW027 error", put("torch/lib/libc10.so", library(flags=4)), "DT_TEXTREL"),
    ("repaired", "RW021 error", become({"torch/lib/libc10.so": AT_HOME}, tag=REPAIRED), "/home/ci/sdk/lib"),
    (
        "windows-triton",
        "RW009 error",
        requiring(ROCM, f"{TRITON}; sys_platform == 'win32'"),
        "does not require triton",
    ),
    (
        "two-tritons",
        "RW009 error",
        requiring(ROCM, TRITON, "triton>=3.6"),
        "triton>=3.6: nothing can satisfy both",
    ),
    ("file", "RW010 error", drop("torch/__init__.py"), "no member matches torch/__init__.py"),
    ("direct-url", "RW011 error", installer_file, "is written by installers"),
    ("no-init", "RW013 error", drop(INIT_FILE), "is missing"),
    ("broken-init", "RW013 error", put(INIT_FILE, "def initialize(:"), "does not compile: line 1"),
    ("unused-init", "RW013 error", put("torch/__init__.py", "# _rocm_init"), "never uses `_rocm_init`"),
    ("null-init", "RW013 error", put(INIT_FILE, b"a = 1\0"), "does not compile"),
    ("idle-init", "RW013 error", put(INIT_FILE, NO_CALL), "does not call `initialize_process`"),
    ("old-init", "RW013 error", init("7.1.0", "7.0.2"), "ROCm 7.0.2, but was built with 7.1.0"),
    ("lax-init", "RW013 error", init('"7.1.0"', "None"), "without a `check_version`"),
    ("bare-init", "RW013 error", init('["amdhip64"]', "[]"), "without libraries to preload"),
    ("cpu-only", "RW015 error", version("'7.1.25424'", "None"), "a CPU-only build"),
    ("no-hip", "RW015 error", put(VERSION_FILE, "cuda = None\n"), "a CPU-only build"),
    ("cuda", "RW015 error", put(VERSION_FILE, VERSION + "cuda = '12.8'\n"), "a CUDA build: `cuda` is '12.8'"),
    ("long-init", "RW013 error", init("7.1.0", "9" * 5000), "but was built with 7.1.0"),
    ("long-version", "RW015 error", version("2.9.0", "9" * 5000), "says that this is version 9"),
    ("old-version", "RW015 error", version("2.9.0", "2.8.0"), "version 2.8.0"),
    ("no-hip-library", "RW016 error", drop(HIP), f"no library matches {HIP}"),
    ("host-only", "RW017 error", put(HIP, library()), "a host-only library"),
    (
        "lacking",
        "RW017 error",
        put(HIP, library("gfx942")),
        "lacks gfx1100: holds gfx942, requested gfx942 gfx1100",
    ),
    (
        "empty-entry",
        "RW017 error",
        put(HIP, library(fatbin=bundle(*TARGETS, empty=("gfx1100",)))),
        "lacks gfx1100",
    ),
    (
        "foreign",
        "RW017 error",
        put(HIP, library(*TARGETS, "gfx90a:xnack+")),
        "holds gfx90a:xnack+, not requested",
    ),
    (
        "foreign-triton",
        "RW017 error",
        put("torch/lib/aotriton/flash.so", library("gfx1201")),
        "holds gfx1201, not",
    ),
    ("uncovered", "RW019 error", put("torch/bin/tool", library("gfx942")), "no rule of the recipe covers it"),
    (
        "run-path",
        "RW021 warning",
        put("torch/lib/libc10.so", library(run_path="/home/ci/sdk/lib")),
        "/home/ci/sdk/lib",
    ),
]


@pytest.mark.parametrize(("named", "change", "words"), name_rows(FAULTS))
def test_one_fault_gives_exactly_its_finding(
    named: str, change: Mutation, words: str, tmp_path: Path
) -> None:
    draft = torch_draft()
    change(draft)
    report = verify.verify_wheel(draft.write(tmp_path), expectation())
    assert_named(report.findings, named, words)
    assert report.passed == (not named.endswith("error"))


def test_a_recipe_wants_an_exact_rocm_whichever_it_was_built_with(tmp_path: Path) -> None:
    draft = torch_draft()
    requiring(TRITON, "rocm[libraries]>=7")(draft)
    report = verify.verify_wheel(draft.write(tmp_path), expectation(rocm_version=None))
    assert_named(report.findings, "RW008 error", "rocm[libraries]==<version>, but rocm[libraries]>=7")


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = torch_draft().write(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"import rocm_sdk\n", b"import rocm_sdl\n"))
    report = verify.verify_wheel(path, expectation())
    assert "archive" in checked(report)
    assert any(
        "torch/_rocm_init.py" in finding.message and "CRC" in finding.message for finding in report.findings
    )


def test_what_is_no_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "torch-2.9.0-cp311-cp311-linux_x86_64.whl"
    path.write_bytes(b"not a zip")
    with pytest.raises(errors.DataError, match="not a readable wheel"):
        verify.verify_wheel(path, expectation())


OTHERS = [
    # project, members, targets asked for, finding's check (None: no finding)
    ("triton", {"triton/__init__.py": b"", "triton/_C/libtriton.so": library()}, TARGETS, None),
    ("triton", {"triton/__init__.py": b"", "triton/x.so": library("gfx942")}, TARGETS, "device-code"),
    ("pytorch_audio", {"torchaudio/__init__.py": b"", "torchaudio/_C.so": library()}, TARGETS, None),
    (
        "pytorch_audio",
        {"torchaudio/__init__.py": b"", "torchaudio/_C.so": library("gfx90a")},
        TARGETS,
        "device-code",
    ),
    (
        "pytorch_vision",
        {"torchvision/__init__.py": b"", "torchvision/_C.so": library(*TARGETS)},
        TARGETS,
        None,
    ),
    ("apex", {"apex/__init__.py": b"", "amp_C.so": library("gfx942"), "apex_C.so": library()}, TARGETS, None),
    ("apex", {"apex/__init__.py": b"", "apex_C.so": library()}, TARGETS, "rocm-build"),
    ("apex", {"apex/__init__.py": b"", "apex/csrc/sgd.hip": b"// kernels"}, TARGETS, None),
    ("apex", {"apex/__init__.py": b"", "apex/csrc/a.hip": b"", "apex/apex_C.so": library()}, TARGETS, None),
    ("apex", {"apex/__init__.py": b"", "apex/csrc/sgd.cu": b"// kernels"}, TARGETS, "rocm-build"),
    (
        "apex",
        {"apex/__init__.py": b"", "apex/csrc/a.hip": b"", "apex/amp_C.so": library("gfx90a")},
        TARGETS,
        "device-code",
    ),
    ("apex", {"apex/__init__.py": b"", "apex_C.so": library()}, None, "rocm-build"),
]


@pytest.mark.parametrize(("project", "members", "targets", "check"), OTHERS)
def test_each_recipe_has_its_own_rules(
    tmp_path: Path,
    project: str,
    members: dict[str, bytes],
    targets: tuple[str, ...] | None,
    check: str | None,
) -> None:
    recipe = load_project(project)
    requires = ["torch==2.9.0"] * bool(recipe.build.pins)
    path = Draft(recipe.distribution, "1.0", members=members, requires=requires).write(tmp_path)
    report = verify.verify_wheel(path, audited_wheel.WheelExpectation(recipe, "linux", targets=targets))
    assert checked(report) == ({check} if check else set())


@pytest.mark.parametrize(
    ("requires", "stated", "passed", "said"),
    [
        ([], (), True, "torch is not required in one exact version"),
        (["torch>=2.11"], (), True, "torch is not required in one exact version, but torch>=2.11"),
        (["torch==2.*"], (), True, "torch is not required in one exact version, but torch==2.*"),
        (["torch==2.9.0"], (), True, None),
        (["torch==2.9.0"], ("torch==2.9.0+rocm7.1",), False, "does not require torch==2.9.0+rocm7.1, but"),
        (["torch"], ("torch==2.9.0+rocm7.1",), False, "does not require torch==2.9.0+rocm7.1, but torch"),
        (["Torch==2.9.0+rocm7.1"], ("torch==2.9.0+rocm7.1",), True, None),
    ],
)
def test_a_companion_is_held_to_the_torch_that_it_was_built_against(
    tmp_path: Path, requires: list[str], stated: tuple[str, ...], passed: bool, said: str | None
) -> None:
    """Without word of which torch that was, a loose requirement is a warning alone: others build so."""
    members = {"torchaudio/__init__.py": b"", "torchaudio/_C.so": library()}
    path = Draft("torchaudio", "1.0", members=members, requires=requires).write(tmp_path)
    expected = audited_wheel.WheelExpectation(
        load_project("pytorch_audio"), "linux", targets=TARGETS, requirements=stated
    )
    report = verify.verify_wheel(path, expected)
    assert report.passed == passed
    (found,) = [one.message for one in report.findings] or [None]
    assert (found or "").startswith(said or "") and (found is None) == (said is None)


def test_a_project_that_needs_no_rocm_must_not_require_it(tmp_path: Path) -> None:
    members = {"triton/__init__.py": b"", "triton/_C/libtriton.so": library()}
    path = Draft("triton", "3.5.0", members=members, requires=["rocm[libraries]==7.1.0"]).write(tmp_path)
    report = verify.verify_wheel(path, audited_wheel.WheelExpectation(load_project("triton"), "linux"))
    assert checked(report) == {"rocm-requirement"}


@pytest.mark.parametrize("package", ["rocm[libraries]==7.1.0", "rocm-sdk-device-gfx942==7.1.0"])
def test_a_wheel_that_carries_its_rocm_requires_none_of_it(package: str, tmp_path: Path) -> None:
    draft = torch_draft()
    draft.members["torch/_rocm/lib/libamdhip64.so.7"] = library(soname="libamdhip64.so.7")
    draft.requires = ["rocm-bootstrap", package]
    report = verify.verify_wheel(draft.write(tmp_path), expectation())
    [finding] = [finding for finding in report.errors if finding.check == "rocm-requirement"]
    assert finding.message.startswith(f"requires {package}; carries its ROCm in torch/_rocm/")


FULL, PART = HIP, "torch/lib/libaotriton_v2.so.0.11.0"
XNACK = ("gfx90a:xnack+", "gfx90a:xnack-")
UNSTATED = {"version": None, "python_tag": None, "rocm_version": None, "requirements": ()}
ASKED: list[tuple[str, str, tuple[str, ...] | None, tuple[str, ...], tuple[str, ...], str]] = [
    # name, what must be found, targets asked for (None: not stated, as nothing is), two libraries, words
    ("subset", "", None, TARGETS, ("gfx942",), ""),
    ("differ", "RW018 error", None, ("gfx942",), ("gfx90a",), "holds gfx90a"),
    ("host-only", "RW017 error", None, (), (), "holds no device code at all"),
    ("settings", "", XNACK, XNACK, (), ""),
    ("one-setting", "RW017 error", XNACK, ("gfx90a:sramecc+:xnack-",), (), "lacks gfx90a:xnack+"),
    ("any-setting", "", ("gfx90a",), ("gfx90a:sramecc+:xnack-",), (), ""),
]


@pytest.mark.parametrize(("named", "asked", "full", "part", "words"), name_rows(ASKED))
def test_libraries_are_compared_with_what_was_asked_for_and_else_with_each_other(  # noqa: PLR0917
    named: str,
    asked: tuple[str, ...] | None,
    full: tuple[str, ...],
    part: tuple[str, ...],
    words: str,
    tmp_path: Path,
) -> None:
    """Features count where they were asked for."""
    draft = torch_draft()
    draft.members |= {FULL: library(*full), PART: library(*part)}
    changes = UNSTATED if asked is None else {}
    report = verify.verify_wheel(draft.write(tmp_path), expectation(targets=asked, **changes))
    assert_named(report.findings, named, words)
    skipped = {skip.check for skip in report.skipped}
    assert ("device-consistency" in skipped) == (asked is not None)
    assert asked is not None or {"python", "pins", "import"} <= skipped


ARCHIVES = "../.kpack/torch_@GFXARCH@.kpack"
SPLIT = [
    # project, member, finding's severity (None: no finding), what it says
    ("pytorch", HIP, "warning", "cannot be checked here; requested: gfx942 gfx1100"),
    ("pytorch", "torch/lib/libcaffe2_nvrtc.so", "warning", "cannot be checked here"),
    ("pytorch", "torch/bin/tool.so", "error", "and no rule of the recipe covers it"),
    ("triton", "triton/x.so", "error", "none is expected"),
]


@pytest.mark.parametrize(("project", "member", "severity", "said"), SPLIT)
def test_device_code_in_archives_is_not_called_missing(
    tmp_path: Path, project: str, member: str, severity: str, said: str
) -> None:
    split = library(marker=kpack_reference(ARCHIVES))
    draft = (
        torch_draft()
        if project == "pytorch"
        else Draft("triton", "3.5.0", members={"triton/__init__.py": b""})
    )
    draft.members[member] = split
    expected = (
        expectation()
        if project == "pytorch"
        else audited_wheel.WheelExpectation(load_project("triton"), "linux")
    )
    report = verify.verify_wheel(draft.write(tmp_path), expected)
    [finding] = report.findings
    assert (finding.severity, finding.subject) == (severity, member)
    assert finding.message.startswith("its device code is in ../.kpack/torch_@GFXARCH@.kpack")
    assert said in finding.message
    assert "device code in ../.kpack/torch_@GFXARCH@.kpack" in outputs.format_audits([report])[0]
    assert report.to_json()["archives"] == ["../.kpack/torch_@GFXARCH@.kpack"]


OTHER_ARCHIVE = library(
    marker=kpack_reference("../.kpack/other_@GFXARCH@.kpack", kernel_name="lib/libtorch_hip.so")
)


def record_digest(content: bytes) -> str:
    return dist_info.encode_record_digest(sha256(content).digest())


def split_torch(
    folder: Path, *targets: str, requires: str = "torch==2.9.0+rocm7.1.0"
) -> tuple[Path, list[Path]]:
    """Write a host wheel as ROCm's splitter does, with a device wheel for each target; digests are in hex."""
    draft = torch_draft()
    draft.members[HIP] = library(marker=kpack_reference(ARCHIVES, kernel_name="lib/libtorch_hip.so"))
    parts = []
    for target in targets:
        code = {("lib/libtorch_hip.so#0", target): code_object(target)}
        members = {f"torch/.kpack/torch_{target}.kpack": kpack(code)}
        part = Draft(f"amd_torch_device_{target}", draft.version, members=members, requires=[requires])
        part.record = {
            name: f"{name},sha256={sha256(data).hexdigest()},{len(data)}" for name, data in members.items()
        }
        parts.append(part.write(folder))
    return draft.write(folder), parts


def test_a_split_wheel_is_read_together_with_its_device_wheels(tmp_path: Path) -> None:
    host, parts = split_torch(tmp_path, "gfx942", "gfx1100")
    report = verify.verify_wheel(host, expectation(), parts=parts)
    assert {(f.check, f.severity, f.subject) for f in report.findings} == {
        ("device-wheels", "warning", part.name) for part in parts
    }, "their digests are in hex"
    assert report.targets == ("gfx1100", "gfx942")
    assert report.to_json()["device_wheels"] == [part.name for part in parts]
    [lacking] = verify.verify_wheel(host, expectation(), parts=parts[:1]).errors
    assert (lacking.check, lacking.subject) == ("device-code", HIP)
    assert "lacks gfx1100: holds gfx942" in lacking.message
    report = verify.verify_wheel(host, expectation(targets=("gfx942",)), parts=parts)
    assert [finding.check for finding in report.errors] == ["device-code"], "and one that nobody asked for"


@pytest.mark.parametrize("wrong", ["cut", "magic", "missing"])
def test_records_that_cannot_be_read_are_named(tmp_path: Path, wrong: str) -> None:
    """The HIP runtime would find nothing, whatever the archives hold."""
    _, parts = split_torch(tmp_path, *TARGETS)
    marker = kpack_reference(ARCHIVES, kernel_name="lib/libtorch_hip.so")
    split = library(marker=marker, records=2)
    if wrong == "cut":  # the section ends within its second record
        at = split.rindex(struct.pack("<QQ", split.index(b"HIPK"), 48)) + 8
        split = split[:at] + struct.pack("<Q", 47) + split[at + 8 :]
    elif wrong == "magic":
        split = split.replace(b"HIPK", b"HIPX", 1)
    else:
        split = library(sections={b".rocm_kpack_ref": marker})
    draft = torch_draft()
    draft.members[HIP] = split
    found = verify.verify_wheel(draft.write(tmp_path), expectation(), parts=parts).errors
    assert [(finding.check, finding.subject) for finding in found] == [("moved-code", HIP)]
    assert "hipFatBinSegment" in found[0].message and "split the wheel again" in found[0].tip


def test_device_wheels_of_another_build_are_told_from_the_right_ones(tmp_path: Path) -> None:
    host, parts = split_torch(tmp_path, *TARGETS, requires="torch==2.9.1")
    found = verify.verify_wheel(host, expectation(), parts=parts).errors
    assert {(finding.check, finding.subject) for finding in found} == {
        ("device-wheels", p.name) for p in parts
    }
    content = bytearray(parts[0].read_bytes())
    content[60] ^= 0xFF
    parts[0].write_bytes(content)
    assert parts[0].name in {
        f.subject for f in verify.verify_wheel(host, expectation(), parts=parts[:1]).errors
    }


def test_device_wheels_of_another_build_are_told_by_their_digests(tmp_path: Path) -> None:
    """The host wheel lists what was split off; ROCm's own splitter writes no such list."""
    _, parts = split_torch(tmp_path, *TARGETS)
    names = [f"torch/.kpack/torch_{target}.kpack" for target in TARGETS]
    digests = {m.name: m.digest for part in parts for m in scan.scan_wheel(part).members if m.name in names}
    draft = torch_draft()
    draft.members[HIP] = library(marker=kpack_reference(ARCHIVES, kernel_name="lib/libtorch_hip.so"))
    listed = f"{draft.folder}/device_files.json"
    for changes, errors_of in (({}, []), ({names[0]: digests[names[1]]}, [("device-wheels", parts[0].name)])):
        draft.members[listed] = json.dumps({**digests, **changes}).encode()
        report = verify.verify_wheel(draft.write(tmp_path), expectation(), parts=parts)
        assert [(finding.check, finding.subject) for finding in report.errors] == errors_of
    for damaged in (b"[]", b"[" * 200_000):
        draft.members[listed] = damaged
        report = verify.verify_wheel(draft.write(tmp_path), expectation(), parts=parts)
        assert [finding.subject for finding in report.errors] == [listed]


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (
            lambda host, _: host.members.update({HIP: OTHER_ARCHIVE}),
            "moved-code",
            "and no device wheel has it",
        ),
        (lambda _, part: part.members.update({"torch/x.py": b""}), "device-wheels", "torch/x.py is not what"),
        (
            lambda _, part: part.members.clear(),
            "device-wheels",
            "no device wheel has torch/.kpack/torch_gfx942",
        ),
        (lambda host, _: host.requires.append("amd-torch-device==1"), "device-extras", "of another version"),
    ],
    ids=["named", "more", "less", "selector"],
)
def test_what_is_split_off_is_in_the_device_wheels_and_nothing_else(
    change: Callable[[Draft, Draft], object], check: str, words: str, tmp_path: Path
) -> None:
    host, member = torch_draft(), "torch/.kpack/torch_gfx942.kpack"
    content = kpack({("lib/libtorch_hip.so#0", "gfx942"): code_object("gfx942")})
    host.members |= {
        HIP: library(marker=kpack_reference(ARCHIVES, kernel_name="lib/libtorch_hip.so")),
        f"{host.folder}/device_files.json": json.dumps({member: record_digest(content)}).encode(),
    }
    host.fields = ["Provides-Extra: device-gfx942"]
    host.requires.append(f"amd-torch-device-gfx942=={host.version}; extra == 'device-gfx942'")
    part = Draft("amd_torch_device_gfx942", host.version, members={member: content})
    part.requires = [f"torch=={host.version}"]
    expected = expectation(targets=("gfx942",))
    change(host, part)
    report = verify.verify_wheel(host.write(tmp_path), expected, parts=[part.write(tmp_path)])
    assert any(words in each.message for each in report.errors if each.check == check)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_metadata_twice_is_an_error_of_the_archive(tmp_path: Path) -> None:
    """It can be read, and each reader may take another of the two."""
    draft = torch_draft()
    path = draft.write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{draft.folder}/METADATA", archive.read(f"{draft.folder}/METADATA"))
    assert "archive" in {finding.check for finding in verify.verify_wheel(path, expectation()).errors}


def test_the_command_reads_host_and_device_wheels_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, parts = split_torch(tmp_path, *TARGETS)
    words = ["audit", "--gfx", "gfx942,gfx1100", "--json"]
    assert boundary.run_command(main.cli, [*words, str(parts[0]), str(host), str(parts[1])]) == 0
    [report] = json.loads(capsys.readouterr().out)["wheels"]
    assert (report["wheel"], report["passed"]) == (host.name, True)
    assert boundary.run_command(main.cli, [*words, str(host)]) == 0
    [report] = json.loads(capsys.readouterr().out)["wheels"]
    assert [finding["severity"] for finding in report["findings"]] == ["warning"]
    assert boundary.run_command(main.cli, [*words, str(parts[0])]) == 2
    parts[0].write_bytes(parts[0].read_bytes()[:-100])
    capsys.readouterr()
    assert boundary.run_command(main.cli, [*words, str(host), *map(str, parts)]) == 14
    whole, cut = json.loads(capsys.readouterr().out)["wheels"]
    assert (whole["wheel"], whole["device_wheels"]) == (host.name, [parts[1].name])
    assert (cut["wheel"], cut["recipe"], cut["passed"]) == (parts[0].name, "pytorch", False)


def test_an_audit_of_a_folder_reads_host_and_device_wheels_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, parts = split_torch(tmp_path, *TARGETS)
    boundary.run_command(main.cli, ["audit", "--set", str(tmp_path), "--json"])
    reports = {report["wheel"]: report for report in json.loads(capsys.readouterr().out)["wheels"]}
    assert sorted(reports[host.name]["device_wheels"]) == sorted(part.name for part in parts)
    assert reports[host.name]["targets"] == sorted(TARGETS)
