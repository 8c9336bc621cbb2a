"""What reaches a wheel is among the inputs of its build, and what does not costs no build."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from runs import finish, make_facts, settled

from rocm_wheels.compile import compiler_cache
from rocm_wheels.models.project import RepairRecipe
from rocm_wheels.pipeline import build_environment
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.step_kinds import repair

TRITON = "build-triton-cp312"
REACH = """
    CXXFLAGS LDSHARED HIPCC_COMPILE_FLAGS_APPEND HIPCC_LINK_FLAGS_APPEND CCC_OVERRIDE_OPTIONS
    _GLIBCXX_USE_CXX11_ABI WITH_BLAS OPENSSL_ROOT_DIR Numa_INCLUDE_DIR STATIC_DISPATCH_BACKEND
    SKBUILD_CMAKE_ARGS CMAKE_ARGS JSON_SYSPATH FFMPEG_ROOT EXTRA_CAFFE2_CMAKE_FLAGS
"""
DO_NOT = """
    MAX_JOBS CMAKE_BUILD_PARALLEL_LEVEL TRITON_CACHE_DIR TORCH_LOGS SCCACHE_DIR CCACHE_DIR
    UV_CACHE_DIR LANG TMPDIR BUILD_ID BUILD_URL GITHUB_RUN_ID INCLUDE LIB
"""


@pytest.mark.parametrize("name", [*REACH.split(), *DO_NOT.split()])
def test_variables(tmp_path: Path, name: str) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312", "probe-targets", TRITON])
    step = settled(replace(facts, env={**facts.env, name: "other"}))[TRITON]
    assert step.verdict == ("run" if name in REACH.split() else "skip")
    assert name not in REACH.split() or f"inputs changed: {name} (" in step.why


def test_what_a_wheel_takes_in_is_what_its_build_left_and_what_the_user_named(tmp_path: Path) -> None:
    """Another folder repairs the built wheel again, and builds nothing."""
    facts = finish(make_facts(tmp_path))
    named = f"/libs{os.pathsep}/more"
    steps = settled(replace(facts, env={**facts.env, "ROCM_WHEELS_LIBRARY_DIRS": named}))
    assert steps[TRITON].verdict == "skip"
    assert "graft from /libs, graft from /more" in steps["repair-triton-cp312"].inputs["repair"]
    left = tmp_path / "build/deps-1/lib"
    left.mkdir(parents=True)
    recipe = RepairRecipe(library_dirs=("build/deps-*/lib", "none"))
    folders = repair.list_library_dirs(recipe, tmp_path, {"ROCM_WHEELS_LIBRARY_DIRS": "/libs"})
    assert folders == (left, Path("/libs"))


def test_a_checkouts_own_variables_and_the_recipes_settings(tmp_path: Path) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312", "probe-targets", TRITON])
    mine = replace(facts, triton_environment={"MY_OWN": "1"})
    assert settled(mine)[TRITON].why == "inputs changed: MY_OWN (not set → 1)"
    assert settled(facts)[TRITON].inputs["front end"] == "setup.py"


def test_a_compiler_cache_is_tried_again_when_it_is_told_to_overlook_more(tmp_path: Path) -> None:
    facts = replace(
        make_facts(tmp_path), cache=compiler_cache.CompilerCache("ccache", Path("/usr/bin/ccache"))
    )
    facts = finish(facts, only=["check-cache"])
    assert settled(facts)["check-cache"].verdict == "skip"
    step = settled(replace(facts, cache_settings="compiler_check = none\n"))["check-cache"]
    assert step.why == "inputs changed: settings ( → compiler_check = none)"


@pytest.mark.parametrize("word", ["-r ", "-r", "--requirement=", "-c ", "--constraint "])
def test_requirements_that_a_file_includes(tmp_path: Path, word: str) -> None:
    (tmp_path / "sub").mkdir()
    first, more = tmp_path / "requirements.txt", tmp_path / "sub" / "more.txt"
    first.write_text(f"numpy\n{word}sub/more.txt  # more\n-r missing.txt\n")
    more.write_text("-r ../requirements.txt\ncmake==3.31\n")
    before = build_environment.read_requirement_files([first]).digest
    names = build_environment.list_required_names(
        build_environment.read_requirement_files([first]).requirements
    )
    assert names == (("numpy",) if "c" in word else ("numpy", "cmake"))
    more.write_text("-r ../requirements.txt\ncmake==4.0\n")
    assert build_environment.read_requirement_files([first]).digest != before


def test_a_developers_build_is_in_its_version_and_a_release_is_not(tmp_path: Path) -> None:
    """Edits, debugging, commits of one's own; a suffix that was given is the user's word."""

    def torch_version(facts: Facts, **tree: object) -> str:
        trees = {}
        for name, facts_of_tree in facts.trees.items():
            identity = replace(facts_of_tree.identity, commit="0" * 40)
            identity = replace(identity, **tree) if name == "pytorch" else identity
            trees[name] = replace(facts_of_tree, identity=identity)
        facts = replace(facts, trees=trees)
        return settled(finish(facts))["build-pytorch-cp312"].inputs["PYTORCH_BUILD_VERSION"]

    plain = finish(make_facts(tmp_path))
    edited = {"dirty": True, "tree": "0123456789"}
    assert torch_version(plain) == torch_version(plain, upstream="u", source="u") == "2.9.0+rocm7.1.0"
    assert torch_version(plain, **edited) == "2.9.0+rocm7.1.0.gfx1100.gfx942.dirty01234567"
    own = torch_version(plain, upstream="u", source="fedcba9876")
    assert own == "2.9.0+rocm7.1.0.gfx1100.gfx942.gitfedcba98"
    for variables in ({"DEBUG": "1"}, {"CMAKE_BUILD_TYPE": "Debug"}):
        debug = replace(plain, request=replace(plain.request, set_env={"pytorch": variables}))
        assert torch_version(debug) == "2.9.0+rocm7.1.0.gfx1100.gfx942.debug"
    dev = replace(plain, request=replace(plain.request, release_type="dev"))
    commits = {"upstream": "0" * 40, "source": "abcdef01" * 5}
    assert torch_version(dev, **commits) == "2.9.0+gitabcdef01.rocm7.1.0.gfx1100.gfx942"
    mine = replace(plain, request=replace(plain.request, version_suffix="+mine"))
    assert torch_version(mine, **edited) == "2.9.0+mine"
