"""The first error of a build, read from logs of real compilers (tests/data/build_logs)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.compile import failure as failures
from rocm_wheels.compile.failure import BuildFailure, find_first_failure

pytestmark = pytest.mark.contract

LOGS = Path(__file__).parent.parent / "data" / "build_logs"


NO_PACKAGE = 'Could not find a package configuration file provided by "hip" with any of the following names:'
FULL = "/tmp/ccc9YTQC.s: Fatal error: can't fill 256 bytes in section .rodata of x.o"
REAL = {
    "ninja_hip_one_target": (
        "compile",
        "use of undeclared identifier 'undeclared_here'",
        "k.hip",
        4,
        "gfx1100",
    ),
    "clang_hip_host": ("compile", "Can't find declaration for hipLaunchKernel", "h.hip", 2, "host"),
    "lld_undefined_device_symbol": ("link", "undefined hidden symbol: not_there", None, None, "gfx1100"),
    "clang_unknown_target": ("build", "unsupported HIP gpu architecture: gfx9999", None, None, "gfx9999"),
    "setuptools_gcc_missing_header": ("compile", "nothere.h: No such file or directory", "a.cpp", 1),
    "cmake_missing_package": ("configure", NO_PACKAGE, "CMakeLists.txt", 3),
    "ld_undefined_reference": ("link", "undefined reference to `f()'", "m.cpp"),
    "ld_missing_library": ("link", "cannot find -lnosuch: No such file or directory"),
    "gcc_out_of_memory": ("memory", "virtual memory exhausted: Cannot allocate memory"),
    "gcc_disk_full": ("disk", f"{FULL}: 'No space left on device'"),
}


@pytest.mark.parametrize("log", REAL)
def test_real_logs(log: str) -> None:
    expected = BuildFailure(*REAL[log])  # type: ignore[arg-type]
    lines = (LOGS / f"{log}.log").read_text().splitlines()
    assert find_first_failure(lines) == expected
    noise = ["-- Looking for error.h - found", "x.cpp:3:4: warning: unused", "0 errors generated."] * 50
    assert find_first_failure([*noise, *lines, *noise]) == expected


@pytest.mark.parametrize(
    ("line", "kind", "place", "message"),
    [
        (r"C:\src\a.cpp(12): error C2065: 'x': no", "compile", (r"C:\src\a.cpp", 12), "C2065: 'x': no"),
        (r"a.cpp(12,5): error: no member", "compile", ("a.cpp", 12), "no member"),
        (r"a.cpp(1): fatal error C1083: No 'x.h'", "compile", ("a.cpp", 1), "C1083: No 'x.h'"),
        ("a.cpp:7: error: old style", "compile", ("a.cpp", 7), "old style"),
        ("\x1b[1ma.cpp:1:2: \x1b[31merror: \x1b[0mcoloured", "compile", ("a.cpp", 1), "coloured"),
        ("clang++: error: no such file: 'x'", "compile", None, "no such file: 'x'"),
        ("k.obj : error LNK2019: unresolved f", "link", ("k.obj", None), "LNK2019: unresolved f"),
        ("LINK : fatal error LNK1104: no 'x.lib'", "link", ("LINK", None), "LNK1104: no 'x.lib'"),
        ("lld-link: error: undefined symbol: f", "link", None, "undefined symbol: f"),
        ("ld: a.o:(.text+0x5): undefined reference to `f'", "link", ("a.o", None), "reference to `f'"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "memory", None, "Killed signal"),
        ("clang++: error: unable to execute command: Killed", "memory", None, "execute command: Killed"),
        ("CMake Error: Could not find CMAKE_ROOT !!!", "configure", None, "Could not find CMAKE_ROOT !!!"),
        ("ModuleNotFoundError: No module 'x'", "build", None, "ModuleNotFoundError: No module 'x'"),
        ("ninja: error: loading 'build.ninja': No", "build", None, "loading 'build.ninja': No"),
        ("ERROR Missing dependencies: ninja", "build", None, "Missing dependencies: ninja"),
        ("make: *** [Makefile:2: a.o] Error 1", "build", None, "[Makefile:2: a.o] Error 1"),
    ],
)
def test_lines_of_other_tools(
    line: str, kind: str, place: tuple[str, int | None] | None, message: str
) -> None:
    found = find_first_failure(["ninja: build stopped: subcommand failed.", line])
    assert found is not None
    assert (found.kind, found.file, found.line) == (kind, *(place or (None, None)))
    assert message in found.message


def test_the_cause_comes_before_those_who_report_it() -> None:
    lines = [
        "Traceback (most recent call last):",
        "RuntimeError: Error compiling objects for extension",
        "error: command '/usr/bin/g++' failed",
        "a.cu:3:1: error: the real one",
    ]
    found = find_first_failure(lines)
    assert found is not None and found.message == "the real one"


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("hipcc --offload-arch=gfx942 -c a.hip", "gfx942"),
        ("hipcc --offload-arch=gfx942 --offload-arch=gfx1100 -c a.hip", None),
        ("hipcc --offload-arch=gfx942,gfx1100 -c a.hip", None),
        ("clang -cc1 -target-cpu gfx90a:xnack+ a.hip", "gfx90a:xnack+"),
        ("g++ -c a.hip", None),
    ],
)
def test_the_target_comes_from_the_command_when_it_names_one(command: str, target: str | None) -> None:
    found = find_first_failure(
        ["[1/2] x", "hipcc --offload-arch=gfx1201 -c z.hip", f"[2/2] {command}", "a.hip:1:1: error: no"]
    )
    assert found is not None
    assert found.target == target


def test_the_next_files_errors_are_not_this_files() -> None:
    lines = [
        "a.hip:1:1: error: first",
        "FAILED: b.o",
        "b.hip:1:1: error: x",
        "1 error generated when compiling for gfx942.",
    ]
    found = find_first_failure(lines)
    assert found is not None and found.target is None


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=80), max_size=20))
def test_any_log_can_be_read(lines: list[str]) -> None:
    find_first_failure(lines)


def test_a_log_without_errors_has_no_failure() -> None:
    assert find_first_failure(["-- Performing Test X - Failed", "warning: something", "0 error(s)"]) is None


def test_the_screen_ends_with_what_is_needed_to_go_on(tmp_path: Path) -> None:
    base = {"PATH": "/bin", "TOKEN": "t", "OLD": "1"}
    env = {"PATH": "/sdk/bin:/bin", "TOKEN": "t", "CXXFLAGS": "-O1 -g"}
    command = failures.format_repeat_command(["python", "setup.py"], cwd=Path("/src dir"), base=base, env=env)
    assert command == "cd '/src dir' && env -u OLD CXXFLAGS='-O1 -g' PATH=/sdk/bin:/bin python setup.py"
    failure = BuildFailure("compile", "no", "a.hip", 3, "gfx942")
    text = failures.explain_failure("building torch failed", failure, log=tmp_path / "x.log", command=command)
    assert text.splitlines() == [
        "building torch failed",
        "  first error: a.hip:3: no (compiled for gfx942)",
        f"  log: {os.fspath(tmp_path / 'x.log')}",
        f"  repeat: {os.fspath(tmp_path / 'x.repeat.sh')}",
    ]
    assert (tmp_path / "x.repeat.sh").read_text(encoding="utf-8") == f"#!/bin/sh\n{command}\n"
    nowhere = failures.explain_failure("x", None, log=tmp_path / "gone" / "x.log", command="y z")
    assert "none was recognised" in nowhere
    assert nowhere.endswith("  repeat: y z")


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/ld: s2.o:(.bss+0x0): multiple definition of `__hip_cuid_94'; s1.o: first defined",
        "ld.lld: error: duplicate symbol: __hip_cuid_94",
    ],
)
def test_twins_out_of_a_compiler_cache_have_a_tip(line: str) -> None:
    failure = find_first_failure(["[9/9] Linking", line])
    assert failure is not None and failure.kind == "link"
    failed = failures.BuildFailed("building failed", failure=failure, log=Path("x.log"), command="make")
    assert "without the cache" in (failed.tip or "")


def test_an_error_that_names_no_file_is_of_what_ninja_was_making() -> None:
    lines = ["[3/9] Building a.o", "FAILED: [code=1] lib/libtorch_hip.so", "c++ -o lib/libtorch_hip.so"]
    link = find_first_failure([*lines, "ld.lld: error: undefined symbol: f"])
    assert link is not None and (link.kind, link.file) == ("link", "lib/libtorch_hip.so")
    lines = ["FAILED: k.hip.o", "clang++ k.hip", "k.hip:4:1: error: expected unqualified-id"]
    source = find_first_failure(lines)
    assert source is not None and (source.file, source.line) == ("k.hip", 4)
