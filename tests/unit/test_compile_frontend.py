"""Command lines of the front ends, the wheel that counts, and the text of ``_rocm_init.py``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runs import request

from rocm_wheels.compile import build_request, build_trees, frontend, sdk_tree
from rocm_wheels.core import errors

PYTHON = Path("/env/bin/python")
OUT = Path("/out")
BUILD = ["/env/bin/python", "-I", "-m", "build", "--wheel", "--no-isolation", "--outdir", "/out"]


@pytest.mark.contract
def test_each_project_has_its_front_end(tmp_path: Path) -> None:
    def command(name: str, **more: object) -> list[str]:
        asked = request(name, source=tmp_path, **more)
        return frontend.make_front_end_command(asked, tmp_path, python=PYTHON, out_dir=OUT)

    setup = ["/env/bin/python", "setup.py", "bdist_wheel", "--dist-dir", "/out"]
    assert command("pytorch_audio") == command("pytorch_vision") == command("triton") == setup
    assert command("apex") == [*BUILD, "-C--build-option=--cpp_ext", "-C--build-option=--cuda_ext"]
    assert command("pytorch") == BUILD
    known = frontend.make_front_end_command(
        request("pytorch", source=tmp_path), tmp_path, python=PYTHON, out_dir=OUT, checked=True
    )
    assert known == [*BUILD, "--skip-dependency-check"]
    assert command("flash_attention") == [*BUILD, "--skip-dependency-check"]  # psutil is not used
    asked = request("lightgbm", source=tmp_path)
    package = tmp_path / "python-package"
    inside = frontend.make_front_end_command(asked, package, python=PYTHON, out_dir=OUT)
    assert inside == [*BUILD, "-Ccmake.source-dir=.."] and command("lightgbm") == BUILD
    (tmp_path / "pyproject.toml").write_text('[build-system]\nbuild-backend = "scikit_build_core.build"\n')
    init = "-Cwheel.force-include.torch/_rocm_init.py=torch/_rocm_init.py"
    assert command("pytorch") == [*BUILD, init]
    windows = command("pytorch", platform="windows")
    assert windows[: len(BUILD) + 2] == [*BUILD, "--skip-dependency-check", init]
    assert [word.rsplit("/", 1)[1] for word in windows[len(BUILD) + 2 :]] == [
        "libomp140.x86_64.dll",
        "aotriton_v2.dll",
        "liblzma.dll",
    ]


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ('build-backend = "scikit_build_core.build"', True),
        ("build-backend = 'scikit_build_core.build'", True),
        ('backend-path = ["."]\nwrapped = "scikit_build_core.build"', True),
        ('# build-backend = "scikit_build_core.build"\nbuild-backend = "setuptools.build_meta"', False),
        ('build-backend = "setuptools.build_meta"', False),
    ],
)
def test_scikit_build_core_is_recognised(tmp_path: Path, text: str, uses: bool) -> None:
    assert build_request.uses_scikit_build_core(tmp_path) is False
    (tmp_path / "pyproject.toml").write_text(text)
    assert build_request.uses_scikit_build_core(tmp_path) is uses


TAG = "cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("pytorch_audio", [], "left nothing"),
        ("pytorch_audio", ["torchaudio-2.9.0.tar.gz"], "left torchaudio-2.9.0.tar.gz"),
        (
            "pytorch_audio",
            [f"torchaudio-{v}-{TAG}" for v in ("2.9.0+rocm7.1.0", "2.8.0")],
            "must leave one wheel",
        ),
        (
            "pytorch_audio",
            [f"torch-2.9.0+rocm7.1.0-{TAG}"],
            "must make a wheel of torchaudio, and made torch-",
        ),
        ("pytorch_audio", [f"torchaudio-2.9.0-{TAG}"], "must have version 2.9.0+rocm7.1.0"),
        ("pytorch_audio", [f"torchaudio-2.9.0+rocm7.1.0.post2-{TAG}"], "must have version"),
        ("pytorch_audio", ["torchaudio.whl"], "no wheel's name"),
        ("triton", [f"triton-3.7.0-{TAG}"], "must have version …+rocm7.1.0"),
        ("triton", [f"triton-3.7.0+xrocm7.1.0-{TAG}"], "must have version …+rocm7.1.0"),
    ],
)
def test_a_wrong_wheel_does_not_count(tmp_path: Path, name: str, files: list[str], message: str) -> None:
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(errors.BuildError) as fault:
        frontend.find_built_wheel(request(name), tmp_path)
    assert message in str(fault.value)


@pytest.mark.parametrize(
    ("name", "number", "file"),
    [
        ("pytorch", "1", f"torch-2.9.0+rocm7.1.0-{TAG}"),
        ("pytorch", "2", f"torch-2.9.0+rocm7.1.0.post2-{TAG}"),
        ("triton", "1", f"triton-3.7.0+rocm7.1.0-{TAG}"),
        ("triton", "1", f"triton-3.7.0+git12345678.rocm7.1.0-{TAG}"),
    ],
)
def test_the_right_wheel_counts(tmp_path: Path, name: str, number: str, file: str) -> None:
    (tmp_path / file).touch()
    path, version = frontend.find_built_wheel(request(name, build_number=number), tmp_path)
    assert path.name == file
    assert version == file.split("-")[1]


def test_the_key_of_a_tree_is_what_a_configure_step_writes_down() -> None:
    def name(
        env: dict[str, str],
        python: str = "/env/bin/python",
        project: str = "pytorch",
        set_env: dict[str, str] | None = None,
    ) -> str:
        asked = request(project, set_env=set_env or {})
        return build_trees.make_tree_key(asked, env, python=Path(python), python_tag="cp311").name

    base = {"CXXFLAGS": "-O2", "PYTORCH_ROCM_ARCH": "gfx942", "MAX_JOBS": "2"}
    same = {"MAX_JOBS": "9", "PYTORCH_BUILD_VERSION": "3", "BUILD_NUMBER": "2", "TERM": "x", "PATH": "/x"}
    same |= {"TORCH_LOGS": "x", "TRITON_CACHE_DIR": "/c", "BUILD_ID": "7", "BUILD_URL": "https://x"}
    same |= {"CMAKE_BUILD_PARALLEL_LEVEL": "3", "MKL_NUM_THREADS": "1", "HIP_VISIBLE_DEVICES": "0"}
    assert name(base) == name(base | same)
    for change in (
        {"CXXFLAGS": "-O3"},
        {"PYTORCH_ROCM_ARCH": "gfx1100"},
        {"USE_GLOO": "0"},
        {"BUILD_TEST": "0"},
        {"CC": "gcc"},
        {"APEX_BUILD_CUDA_OPS": "0"},
        {"GLIBCXX_USE_CXX11_ABI": "0"},
    ):
        assert name(base) != name(base | change)
    apex, other = "apex", "/other/bin/python"
    assert name(base, project=apex) != name(base, project=apex, python=other)
    assert name(base) == name(base, python=other), "all Pythons share the tree of torch"
    # of what is set for one project alone it is not known what configure makes of it
    mine = {"MY_SWITCH": "1"}
    assert name(base | mine) == name(base)
    assert name(base | mine, set_env=mine) not in (name(base), name(base, set_env={"MY_SWITCH": "2"}))
    assert name(base, set_env={"CMAKE_BUILD_PARALLEL_LEVEL": "3"}) == name(base)


def test_another_compiler_of_the_same_name_is_another_configuration(tmp_path: Path) -> None:
    def name(*folders: str) -> str:
        env = {"PATH": os.pathsep.join(str(tmp_path / folder) for folder in folders), "CC": "cc -m64"}
        return build_trees.make_tree_key(
            request("pytorch"), env, python=Path("/env/bin/python"), python_tag="cp311"
        ).name

    for folder in ("old", "new", "other"):
        (tmp_path / folder).mkdir()
    for file in ("old/cc", "old/g++", "new/gcc-14", "other/ls"):
        (tmp_path / file).touch(mode=0o755)
    before = name("old")
    assert name("other", "old") == before
    (tmp_path / "new" / "cc").symlink_to("gcc-14")
    assert name("new", "old") not in (before, name("old", "new"))
    assert name("old", "new") == before
    (tmp_path / "old" / "cc").write_text("of an update")
    assert name("old") != before


def test_the_lists_of_preloads_are_those_of_rocm() -> None:
    assert len(sdk_tree.list_preload_names("linux")) == 22
    assert len(sdk_tree.list_preload_names("windows")) == 13
    assert set(sdk_tree.list_preload_names("windows")) < set(sdk_tree.list_preload_names("linux"))
    assert "amd_smi" not in sdk_tree.list_preload_names("windows")


def test_initialize_calls_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    calls: list[dict[str, object]] = []
    sdk = types.ModuleType("rocm_sdk")
    sdk.initialize_process = lambda **given: calls.append(given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rocm_sdk", sdk)
    preloads = sdk_tree.select_preloads("linux", {"hipfile": "Unknown rocm library 'hipfile'"})
    text = sdk_tree.render_rocm_init("7.1.0+miniature", preloads)
    assert text == sdk_tree.render_rocm_init("7.1.0+miniature", preloads)
    space: dict[str, object] = {}
    exec(compile(text, "_rocm_init.py", "exec"), space)
    space["initialize"]()  # type: ignore[operator]
    (call,) = calls
    assert call == {"preload_shortnames": list(preloads.libraries), "check_version": "7.1.0+miniature"}
    assert len(preloads.libraries) == 21 and "hipfile" not in preloads.libraries
    assert "hipfile" in text and "hipfile" in (preloads.warning() or "")
    assert sdk_tree.Preloads(("a",)).warning() is None


def test_a_required_library_cannot_be_left_out() -> None:
    with pytest.raises(errors.SdkError, match="no amdhip64: not found"):
        sdk_tree.select_preloads("linux", {"amdhip64": "not found"})
