"""What reaches a wheel is among the inputs of its build, and what does not costs no build."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from planned_runs import finish, make_facts, settled

from rocm_wheels.compile import CompilerCache, build_trees
from rocm_wheels.pipeline import digest_requirements_file, read_required_names

TRITON = "build-triton-cp312"
REACH = [
    *(
        "CXXFLAGS",
        "LDSHARED",
        "HIPCC_COMPILE_FLAGS_APPEND",
        "HIPCC_LINK_FLAGS_APPEND",
        "CCC_OVERRIDE_OPTIONS",
    ),
    *(
        "_GLIBCXX_USE_CXX11_ABI",
        "WITH_BLAS",
        "OPENSSL_ROOT_DIR",
        "Numa_INCLUDE_DIR",
        "STATIC_DISPATCH_BACKEND",
    ),
    *("SKBUILD_CMAKE_ARGS", "CMAKE_ARGS", "JSON_SYSPATH", "FFMPEG_ROOT", "EXTRA_CAFFE2_CMAKE_FLAGS"),
]
DO_NOT = [
    *(
        "MAX_JOBS",
        "CMAKE_BUILD_PARALLEL_LEVEL",
        "TRITON_CACHE_DIR",
        "TORCH_LOGS",
        "SCCACHE_DIR",
        "CCACHE_DIR",
    ),
    *("UV_CACHE_DIR", "LANG", "TMPDIR", "BUILD_ID", "BUILD_URL", "GITHUB_RUN_ID", "INCLUDE", "LIB"),
]


@pytest.mark.parametrize("name", [*REACH, *DO_NOT])
def test_variables(tmp_path: Path, name: str) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312", "probe-targets", TRITON])
    step = settled(replace(facts, env={**facts.env, name: "other"}))[1][TRITON]
    assert step.verdict == ("run" if name in REACH else "skip")
    assert name not in REACH or f"inputs changed: {name} (" in step.why


def test_a_checkouts_own_variables_and_the_recipes_settings(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312", "probe-targets", TRITON])
    mine = replace(facts, triton_environment={"MY_OWN": "1"})
    assert settled(mine)[1][TRITON].why == "inputs changed: MY_OWN (not set → 1)"
    assert settled(facts)[1][TRITON].inputs["front end"] == "setup.py"


def test_a_compiler_cache_is_tried_again_when_it_is_told_to_overlook_more(tmp_path: Path) -> None:
    facts = replace(make_facts(tmp_path), cache=CompilerCache("ccache", Path("/usr/bin/ccache")))
    facts = finish(facts, only=["check-cache"])
    assert settled(facts)[1]["check-cache"].verdict == "skip"
    step = settled(replace(facts, cache_settings="compiler_check = none\n"))[1]["check-cache"]
    assert step.why == "inputs changed: settings ( → compiler_check = none)"


@pytest.mark.parametrize("word", ["-r ", "-r", "--requirement=", "-c ", "--constraint "])
def test_requirements_that_a_file_includes(tmp_path: Path, word: str) -> None:
    (tmp_path / "sub").mkdir()
    first, more = tmp_path / "requirements.txt", tmp_path / "sub" / "more.txt"
    first.write_text(f"numpy\n{word}sub/more.txt  # more\n-r missing.txt\n")
    more.write_text("-r ../requirements.txt\ncmake==3.31\n")
    before = digest_requirements_file(first)
    names = read_required_names((), [first])
    assert names == (("numpy",) if "c" in word else ("numpy", "cmake"))
    more.write_text("-r ../requirements.txt\ncmake==4.0\n")
    assert digest_requirements_file(first) != before


def test_a_compiler_that_an_update_replaced_in_its_place(tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text("12.2.0")
    compiler.chmod(0o755)
    env = {"PATH": str(compiler.parent), "CC": "ccache gcc -m64"}
    os.utime(compiler, (10**9, 10**9))
    before = build_trees._describe_compilers(env)
    assert before == f"gcc={compiler} (6 bytes, 1000000000)"
    compiler.write_text("12.2.1")
    os.utime(compiler, (10**9 + 1, 10**9 + 1))
    build_trees._describe_programs.cache_clear()
    assert build_trees._describe_compilers(env) != before
