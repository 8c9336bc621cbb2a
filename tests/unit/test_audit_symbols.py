"""Symbols and versions that libraries must find in others: compiled libraries, in a wheel and in another."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import Draft

from rocm_wheels.audit import audited_wheel, verify
from rocm_wheels.cli import boundary, main
from rocm_wheels.models import project
from rocm_wheels.wheels import required_packages

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="needs a C compiler for Linux"
    ),
]

RUNTIME = "int hip_first(void) { return 1; } int hip_second(void) { return 2; }"
VERSIONS = "hip_4.2 { global: hip_first; local: *; }; hip_6.0 { global: hip_second; } hip_4.2;"
# it is linked to libblas alone, and uses libamdhip64, which that is linked to
USER = """
extern int blas(void), hip_first(void), absent(void) __attribute__((weak));
extern double sqrt(double);
extern void* PyLong_FromLong(long);
int use(double x) { return blas() + hip_first() + (absent ? absent() : 0) + (int)sqrt(x + 2); }
void* make(void) { return PyLong_FromLong(1); }
"""
# it is linked to libamdhip64 itself: its symbols have versions
DIRECT = "extern int hip_second(void); int direct(void) { return hip_second(); }"


class Linker:
    """Links libraries in a folder, each to those that were linked there before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def link(self, soname: str, source: str, *linked: str, versions: str = "") -> bytes:
        words = [f"-Wl,-soname,{soname}", "-Wl,--unresolved-symbols=ignore-all", "-fno-builtin"]
        if versions:
            (self.folder / "versions").write_text(versions)
            words.append(f"-Wl,--version-script={self.folder / 'versions'}")
        output = self.folder / soname
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *words, "-Wl,--no-as-needed"]
        command += [self.folder / name for name in linked]
        subprocess.run([*command, "-o", output], input=source, text=True, check=True)
        return output.read_bytes()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Draft, Draft]:
    """A wheel, and the package of ROCm that it requires, which fit each other."""
    linker = Linker(tmp_path_factory.mktemp("built") / "libraries")
    runtime = linker.link("libamdhip64.so.7", RUNTIME, versions=VERSIONS)
    blas = linker.link("libblas.so.1", "int blas(void) { return 3; }", "libamdhip64.so.7")
    user = linker.link("libuser.so", USER, "libblas.so.1")
    direct = linker.link("libdirect.so", DIRECT, "libamdhip64.so.7")
    rocm = Draft("rocm", "7.1.0", "py3-none-linux_x86_64", requires=["other"])
    rocm.members = {"_rocm/lib/libamdhip64.so.7": runtime, "_rocm/lib/libblas.so.1": blas}
    members = {"demo/__init__.py": b"", "demo/libuser.so": user, "demo/libdirect.so": direct}
    return Draft("demo", "1.0", "cp311-cp311-linux_x86_64", members=members, requires=["rocm"]), rocm


def audit(drafts: tuple[Draft, Draft], folder: Path, recipe: str | None = None) -> audited_wheel.AuditReport:
    wheel, rocm = (draft.write(folder) for draft in drafts)
    expected = audited_wheel.WheelExpectation(project.load_project(recipe) if recipe else None, "linux")
    return verify.verify_wheel(
        wheel, expected, packages=required_packages.PackagePool.collect([rocm], (), None, {}, symbols=True)
    )


def change_runtime(source: str, versions: str) -> Callable[[Path], dict[str, bytes]]:
    return lambda folder: {
        "_rocm/lib/libamdhip64.so.7": Linker(folder).link("libamdhip64.so.7", source, versions=versions)
    }


RENAMED = (RUNTIME.replace("hip_first", "hip_third"), VERSIONS.replace("hip_first", "hip_third"))
DROPPED = (RUNTIME, "hip_4.2 { global: hip_first; hip_second; local: *; };")
MOVED = (RUNTIME, "hip_4.2 { global: hip_first; hip_second; local: *; }; hip_6.0 { } hip_4.2;")


@pytest.mark.parametrize(
    ("source", "versions", "check", "member", "words"),
    [
        pytest.param(RUNTIME, VERSIONS, "", "", (), id="fitting"),
        pytest.param(*RENAMED, "needed-symbols", "demo/libuser.so", ("1 symbol", "hip_first"), id="renamed"),
        pytest.param(*DROPPED, "needed-versions", "demo/libdirect.so", ("hip_6.0",), id="dropped"),
        pytest.param(*MOVED, "needed-symbols", "demo/libdirect.so", ("hip_second",), id="moved"),
        pytest.param(
            RUNTIME, "", "needed-versions", "demo/libdirect.so", ("defines none",), id="unversioned"
        ),
    ],
)
def test_a_change_of_the_runtime_is_named_by_exactly_one_check(  # noqa: PLR0917
    source: str,
    versions: str,
    check: str,
    member: str,
    words: tuple[str, ...],
    built: tuple[Draft, Draft],
    tmp_path: Path,
) -> None:
    """A library counts that another one brings with it; weak symbols, Python's and libm's do not."""
    demo, rocm = built
    changed = replace(rocm, members={**rocm.members, **change_runtime(source, versions)(tmp_path / "link")})
    report = audit((demo, changed), tmp_path)
    assert [(finding.check, finding.subject) for finding in report.findings] == (
        [(check, member)] if check else []
    )
    assert {"needed-symbols", "needed-versions"} <= set(report.ran)
    for finding in report.findings:
        assert finding.severity == "warning" and all(word in finding.message for word in words)


def test_a_loader_agrees(built: tuple[Draft, Draft], tmp_path: Path) -> None:
    """What is an error here ends loading, and what is a warning for want of versions does not."""
    for name, (source, versions), loads in (
        ("fitting", (RUNTIME, VERSIONS), True),
        ("renamed", RENAMED, False),
        ("dropped", DROPPED, False),
        ("moved", MOVED, False),
        ("unversioned", (RUNTIME, ""), True),
    ):
        folder = tmp_path / name
        demo, rocm = built
        runtime = change_runtime(source, versions)(folder)
        for member, content in {**rocm.members, **demo.members, **runtime}.items():
            (folder / member.rpartition("/")[2]).write_bytes(content)
        code = "import ctypes, os, sys; [ctypes.CDLL(name, os.RTLD_NOW) for name in sys.argv[1:]]"
        libraries = [str(folder / library) for library in ("libuser.so", "libdirect.so")]
        env = {"LD_LIBRARY_PATH": str(folder)}
        ended = subprocess.run(
            [sys.executable, "-c", code, *libraries], env=env, capture_output=True, check=False
        )
        assert (ended.returncode == 0) is loads, (name, ended.stderr)


def test_nothing_is_said_of_what_is_not_at_hand(built: tuple[Draft, Draft], tmp_path: Path) -> None:
    demo, rocm = built
    renamed = replace(rocm, members=change_runtime(*RENAMED)(tmp_path / "link"))
    report = audit((demo, renamed), tmp_path)  # libblas is nowhere: what it brings with it is not known
    assert {finding.check for finding in report.findings} == {"needed-libraries"}
    alone = verify.verify_wheel(demo.write(tmp_path), audited_wheel.WheelExpectation(None, "linux"))
    assert {finding.check for finding in alone.findings} == {"needed-libraries"}
    assert "needed-symbols" in {skip.check for skip in alone.skipped}


def test_in_wheels_of_ours_it_is_an_error(built: tuple[Draft, Draft], tmp_path: Path) -> None:
    demo, rocm = built
    ours = replace(demo, distribution="triton", version="3.5.0")
    for runtime, check in ((RENAMED, "needed-symbols"), (DROPPED, "needed-versions")):
        changed = {**rocm.members, **change_runtime(*runtime)(tmp_path / check)}
        report = audit((ours, replace(rocm, members=changed)), tmp_path, "triton")
        assert check in {finding.check for finding in report.errors}


def test_a_module_of_ours_has_the_function_that_its_import_calls(tmp_path: Path) -> None:
    """Others load what is named like a module by torch.ops.load_library."""
    linker = Linker(tmp_path / "link")
    member = "triton/_x.cpython-311-x86_64-linux-gnu.so"
    for function, recipe, named in (("PyInit__x", True, False), ("main", True, True), ("main", False, False)):
        content = linker.link("_x.so", f"void* {function}(void) {{ return 0; }}")
        draft = Draft("triton", "3.5.0", members={"triton/__init__.py": b"", member: content})
        project_of_ours = project.load_project("triton") if recipe else None
        expected = audited_wheel.WheelExpectation(project_of_ours, "linux")
        report = verify.verify_wheel(draft.write(tmp_path), expected)
        assert ("extension-modules" in {finding.check for finding in report.errors}) is named


def test_from_the_command_line(
    built: tuple[Draft, Draft], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo, rocm = built
    changed = replace(rocm, members={**rocm.members, **change_runtime(*RENAMED)(tmp_path / "link")})
    wheel, package = demo.write(tmp_path), changed.write(tmp_path)
    assert boundary.run_command(main.cli, ["audit", str(wheel), "--find-links", str(package)]) == 0
    assert "RW052 needed-symbols" in capsys.readouterr().out
