"""Installing for a machine with stated GPUs: real resolvers, real pip and uv, tiny real wheels over http."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from commands import Ended, call
from pythons import (
    CUDA,
    ROCM,
    TAG,
    Environment,
    document,
    make_environment,
    multi_arch,
    pypi,
    rocm_index,
    rocm_sources,
    served_index,
    torch,
)
from pythons import (
    library_behind as library,
)
from servers import FileServer, IndexHandler, IndexServer, serving
from wheels import SCHEMA, Draft, wheel

from rocm_wheels.core import errors, files
from rocm_wheels.core.files import hash_file, lock_folder
from rocm_wheels.models.project import list_projects
from rocm_wheels.user.install import install as carry_out
from rocm_wheels.user.package_set import InstallRequest
from rocm_wheels.user.plan import plan_install

pytestmark = pytest.mark.contract

SET = {
    "mpmath": "1.3.0",
    "pytorch_triton_rocm": "3.5.0",
    "sympy": "1.14.0",
    "torch": "2.9.1+rocm7.2",
    "torchaudio": "2.9.1+rocm7.2",
    "torchvision": "0.24.1+rocm7.2",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    folder = tmp_path_factory.mktemp("index")
    with served_index(folder / "index", rocm_index(folder / "raw")) as server:
        yield server


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    folder = tmp_path_factory.mktemp("rest")
    with served_index(folder / "index", pypi(folder / "raw")) as server:
        yield server


@pytest.fixture(autouse=True)
def own_folders(own_caches: None, rest: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own indexes, which must not matter."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", rest.url)
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", rest.url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", rest.url)


@pytest.fixture
def venv(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "venv")


def install(
    index: str | Path,
    venv: Environment,
    *words: str | Path,
    gfx: str = "gfx942",
    code: int | Sequence[int] = 0,
) -> Ended:
    """Install into ``venv`` and nowhere else: another --python only as a dry run."""
    assert "--python" not in words or "--dry-run" in words
    defaults = {"--index": index, "--python": venv.prefix, "--gfx": gfx}
    given = [word for name, value in defaults.items() if name not in words for word in (name, value)]
    return call("install", *given, *words, code=code)


def test_the_set_is_installed_once_and_nothing_of_it_is_from_elsewhere(
    index: IndexServer, rest: IndexServer, venv: Environment, tmp_path: Path
) -> None:
    rest.requests.clear()
    told = install(index.url, venv).out
    assert venv.packages() == SET
    assert "torch 2.9.1+rocm7.2 (built for rocm)" in told
    asked = {one.path.split("/")[1] for one in rest.requests}
    assert asked == {"sympy", "mpmath"}  # not even looked up: torch, torchvision, triton
    said = install(index.url, venv)
    assert "all of it was installed already" in said.out
    assert "fetching" not in said.err and "installing" not in said.err
    (venv.site / "torch" / "version.py").unlink()  # what is damaged is made good, and that alone
    next(venv.site.glob("torch-*.dist-info/METADATA")).unlink()  # uv takes it for installed all the same
    for kept in (tmp_path / "cache").rglob("torchaudio*.whl"):
        kept.write_bytes(b"rotten")  # of no importance: what is installed of it is right
    assert "installing torch 2.9.1+rocm7.2\n" in install(index.url, venv).err
    assert (venv.site / "torch" / "version.py").is_file()
    unpacked = set((tmp_path / "uv" / "archive-v0").iterdir())
    install(index.url, make_environment(tmp_path / "second"))
    assert set((tmp_path / "uv" / "archive-v0").iterdir()) == unpacked  # nothing was unpacked again


def test_rocms_own_packages_may_come_from_an_index_of_their_own_and_nothing_else_from_there(
    tmp_path: Path, venv: Environment
) -> None:
    """As a set that was staged: its wheels require ROCm, which is elsewhere."""
    builds, own = tmp_path / "builds", tmp_path / "rocm"
    torch(builds, "2.9.1+rocm7.2", "rocm==7.2.0", "triton==3.5.0")
    wheel(own, "rocm", "7.2.0")
    wheel(own, "triton", "3.5.0")
    install(builds, venv, "torch", code=17)
    assert "triton" in install(builds, venv, "torch", "--rocm-index", own, code=17).err
    assert venv.packages() == {}
    wheel(builds, "triton", "3.5.0")
    install(builds, venv, "torch", "--rocm-index", own)
    assert venv.packages() == {"rocm": "7.2.0", "torch": "2.9.1+rocm7.2", "triton": "3.5.0"}
    # also what its own packages require of each other
    wheel(own, "rocm", "7.3.0", requires=("rocm-sdk-core==7.3.0",))
    wheel(own, "rocm_sdk_core", "7.3.0")
    torch(builds, "2.10.0+rocm7.3", "rocm==7.3.0", "triton==3.5.0")
    with served_index(tmp_path / "served", list(own.glob("rocm*"))) as server:
        for place in (str(own), server.url):
            target = make_environment(tmp_path / f"of-{len(place)}")
            install(builds, target, "torch", "--rocm-index", place)
            assert {"rocm", "rocm_sdk_core", "torch", "triton"} == set(target.packages())


def test_another_build_of_the_same_version_is_replaced_and_other_tritons_removed(
    tmp_path: Path, venv: Environment
) -> None:
    """PyPI's torch 2.9.1 is CUDA's; a ROCm build may be called 2.9.1 as well."""
    old, new = tmp_path / "old", tmp_path / "new"
    held = wheel(old, "xformers", "0.0.32", requires=("triton==3.4.0",))
    files = [torch(old, "2.9.1", built=CUDA), wheel(old, "triton", "3.4.0"), held]
    venv.uv("install", "--no-index", "--no-deps", *map(str, files))
    torch(new, "2.9.1", "pytorch-triton-rocm==3.5.0")
    wheel(new, "pytorch_triton_rocm", "3.5.0")
    said = install(new, venv, "torch")
    assert venv.packages() == {"pytorch_triton_rocm": "3.5.0", "torch": "2.9.1", "xformers": "0.0.32"}
    assert "hip: str | None = '7.2" in (venv.site / "torch" / "version.py").read_text()
    assert "replaces another build of 2.9.1 (cuda)" in said.err
    assert "removed first: triton 3.4.0" in said.err
    assert "warning: The package `xformers` requires `triton==3.4.0`, but it's not installed" in said.err


def test_pip_finds_nothing_wrong_with_it(index: IndexServer, tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "with-pip", pip=True)
    venv.uv("install", "--no-index", "--no-deps", str(torch(tmp_path / "old", "2.9.1+cu128", built=CUDA)))
    install(index.url, venv)
    assert venv.packages() == SET
    assert list(venv.site.glob("*/direct_url.json")) == []  # `pip freeze` says torch==…, and no path
    subprocess.run([venv.python, "-m", "pip", "check"], check=True)


def test_variant_wheels_are_installed_under_their_plain_name(tmp_path: Path, venv: Environment) -> None:
    files = [
        torch(tmp_path, "2.9.1", label="gfx94x", gfx=("gfx942",)),
        torch(tmp_path, "2.9.1", label="gfx110x", gfx=("gfx1100", "gfx1101")),
        torch(tmp_path, "2.9.1", label="null", built=CUDA.replace("'12.8'", "None")),
    ]
    with served_index(tmp_path / "index", files) as server:
        install(server.url, venv, "torch", gfx="gfx1100")
        assert "gfx110x" in (venv.site / "torch" / "__init__.py").read_text()
        # the same version for another GPU is another build
        install(server.url, venv, "torch", gfx="gfx942")
        assert "gfx94x" in (venv.site / "torch" / "__init__.py").read_text()
    assert venv.packages() == {"torch": "2.9.1"}


def of_2025(folder: Path, label: str, gfx: str, *, said: str) -> None:
    """An index with one variant in the form of 2025, for ``gfx``; its document says it is for ``said``."""
    page = folder / "torch"
    made = torch(page, "2.9.1", label=label, gfx=(gfx,), old=True, code=library(said))
    (page / "torch-2.9.1-variants.json").write_text(document(label, (said,), old=True))
    links = "".join(f'<a href="{one}">{one}</a>\n' for one in (made.name, "torch-2.9.1-variants.json"))
    (page / "index.html").write_text(f"<html><body>{links}</body></html>")


def test_a_variant_is_what_the_index_says_also_one_of_2025(tmp_path: Path, venv: Environment) -> None:
    of_2025(tmp_path / "wrong", "gfx94x", "gfx1100", said="gfx942")
    told = install(tmp_path / "wrong", venv, "torch", gfx="gfx942", code=17).err
    assert "is not the variant that the index's document says" in told
    assert venv.packages() == {}
    of_2025(tmp_path / "right", "gfx94x", "gfx942", said="gfx942")
    install(tmp_path / "right", venv, "torch", gfx="gfx942")
    assert venv.packages() == {"torch": "2.9.1"}


def test_a_dry_run_fetches_no_wheel_and_no_page_twice(
    tmp_path: Path, venv: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        torch(tmp_path / "raw", "2.9.1", "sympy", label="null", built=CUDA.replace("'12.8'", "None")),
        torch(tmp_path / "raw", "2.9.1", "sympy", label="gfx110x", gfx=("gfx1100",)),
        wheel(tmp_path / "raw", "sympy", "1.14.0"),
    ]
    with served_index(tmp_path / "index", files) as server:
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        install(server.url, venv, "torch", "--dry-run", gfx="none")
        asked = [request.path for request in server.requests if request.method == "GET"]
    assert [path for path in asked if path.endswith(".whl")] == []
    assert sorted(asked) == sorted(set(asked))


def split_by_kernels(folder: Path) -> list[Path]:
    """A variant as a kernel splitter writes it: an entry a target, and a marker for what each requires."""
    label, targets = "gfx9_dc", ("gfx90a", "gfx942")
    requires = [
        f'torch-kernels-{target}==1.0; "amd :: gfx_arch :: {target}" in variant_properties'
        for target in targets
    ]
    draft = Draft("torch", "2.9.1", TAG, requires=[*requires, "nvidia-nccl; 'nvidia' in variant_namespaces"])
    draft.file_name = f"torch-2.9.1-{TAG}-{label}.whl"
    draft.members = {
        "torch/version.py": f"__version__ = '2.9.1'\n{ROCM}".encode(),
        "torch/lib/libtorch_hip.so": library(*targets),
    }
    amd = {"install-time": True, "plugin-api": "a:B", "requires": ["amd-variant-provider >= 1.0"]}
    old = {
        "providers": {"amd": amd},
        "default-priorities": {"namespace": ["amd"], "property": {"amd": {"gfx_arch": list(targets)}}},
        "variants": {target: {"amd": {"gfx_arch": [target]}} for target in targets},
    }
    draft.members[f"{draft.folder}/variant.json"] = json.dumps(old).encode()
    folder.mkdir(parents=True, exist_ok=True)
    return [draft.write(folder), *(wheel(folder, f"torch_kernels_{target}", "1.0") for target in targets)]


def test_a_wheel_with_variant_markers_is_refused_before_anything_is_fetched(
    tmp_path: Path, venv: Environment
) -> None:
    """No installer reads them (PEP 825 leaves them open)."""
    with served_index(tmp_path / "index", split_by_kernels(tmp_path / "raw")) as server:
        told = install(server.url, venv, "torch", gfx="gfx942", code=(2, 17)).err
        assert "has variant markers" in told and "Traceback" not in told, told
        assert venv.packages() == {}


def test_a_companion_is_the_build_for_the_abi_of_torch(tmp_path: Path, venv: Environment) -> None:
    def vision(release: str) -> Path:
        label = f"abi{release}"
        draft = Draft("torchvision", "0.24.1", TAG, requires=["torch"])
        draft.file_name = f"torchvision-0.24.1-{TAG}-{label}.whl"
        stated = {
            "$schema": SCHEMA,
            "default-priorities": {"namespace": ["abi_dependency"]},
            "providers": {"abi_dependency": {"builtin": "abi_dependency"}},
            "variants": {label: {"abi_dependency": {"torch": [release]}}},
        }
        draft.members = {
            "torchvision/__init__.py": f"# {label}\n".encode(),
            f"{draft.folder}/variant.json": json.dumps(stated).encode(),
        }
        return draft.write(tmp_path)

    files = [torch(tmp_path, "2.9.1"), torch(tmp_path, "2.8.0"), vision("2.8"), vision("2.9")]
    with served_index(tmp_path / "index", files) as server:
        install(server.url, venv, "torch==2.8.0", "torchvision")
        assert "abi2.8" in (venv.site / "torchvision" / "__init__.py").read_text()
        install(server.url, venv, "torch", "torchvision")
        assert "abi2.9" in (venv.site / "torchvision" / "__init__.py").read_text()


def test_kernels_come_by_extras_and_never_from_the_index_of_dependencies(
    tmp_path: Path, venv: Environment
) -> None:
    with served_index(tmp_path / "index", multi_arch(tmp_path, "gfx942")) as server:
        install(server.url, venv, "torch")
        assert set(venv.packages()) == {"torch", "amd_torch_device_gfx942"}
        # somebody has registered this one at the index of dependencies, in the right version
        assert "amd-torch-device-gfx1100" in install(server.url, venv, "torch[device-gfx1100]", code=17).err
        other = make_environment(tmp_path / "other")
        told = install(server.url, other, "torch", gfx="gfx1100", code=17).err
        told = told.partition("error: ")[2].partition("with kernels for")[0]
        why, *others = told.splitlines()
        assert "no kernels for gfx1100: device-gfx1100 needs amd-torch-device-gfx1100" in why
        assert not any("gfx1100" in line for line in others)  # it is said once
        told = install(server.url, make_environment(tmp_path / "second"), "torch", gfx="gfx1030", code=17).err
        assert "its kernels are in device wheels, and none of them is for it" in told
        install(server.url, venv, "torch", gfx="gfx1030", code=17)  # nor does what is there already
    assert set(venv.packages()) == {"torch", "amd_torch_device_gfx942"}


def test_kernels_for_another_card_come_to_the_torch_that_is_there(tmp_path: Path, venv: Environment) -> None:
    with served_index(tmp_path / "index", multi_arch(tmp_path, "gfx942", "gfx1100")) as server:
        install(server.url, venv, "torch")
        install(server.url, venv, "torch", gfx="gfx1100")
    assert set(venv.packages()) == {"torch", "amd_torch_device_gfx942", "amd_torch_device_gfx1100"}


def test_rocms_own_sources_are_built_before_anything_is_installed(tmp_path: Path, venv: Environment) -> None:
    torch(tmp_path, "2.9.1+rocm7.2", "rocm[libraries]==7.2.0")
    rocm_sources(tmp_path)
    wheel(tmp_path, "rocm_sdk_core", "7.2.0")
    wheel(tmp_path, "rocm_sdk_libraries", "7.2.0")
    install(tmp_path, venv, "torch")  # a folder of files, as it is
    assert set(venv.packages()) == {"rocm", "rocm_sdk_core", "rocm_sdk_libraries", "torch"}
    assert "all of it was installed already" in install(tmp_path, venv, "torch").out


def test_other_torch_projects_come_without_compiled_code_or_not_at_all(
    index: IndexServer, venv: Environment
) -> None:
    told = install(index.url, venv, "torch", "xformers", code=17).err
    assert "xformers 0.0.33 of the index of dependencies is refused" in told
    told = install(index.url, venv, "torch", "torchao==0.19.0", code=17).err
    assert "only wheels without compiled code" in told
    assert venv.packages() == {}
    install(index.url, venv, "torch", "torchao")
    assert venv.packages()["torchao"] == "0.18.0"


def test_what_there_is_a_recipe_of_comes_from_the_chosen_index(
    index: IndexServer, venv: Environment, tmp_path: Path
) -> None:
    recipes = [recipe for recipe in list_projects() if recipe.build.only_named]
    for recipe in recipes:
        told = install(index.url, venv, recipe.distribution, code=17).err
        assert f"{recipe.distribution} is for one build of torch or ROCm" in told
    assert venv.packages() == {} and len(recipes) == 5
    # of LightGBM, which does without a GPU, PyPI's serves whatever else requires it, until ours is named
    install(index.url, venv, "torch", "boosts-with-lightgbm")
    assert venv.packages()["lightgbm"] == "4.6.0"
    wheel(tmp_path, "lightgbm", "4.5.0+rocm7.2", requires=("rocm[libraries]==7.2.0",))
    wheel(tmp_path, "rocm", "7.2.0")
    install(tmp_path, venv, "lightgbm")
    assert venv.packages()["lightgbm"] == "4.5.0+rocm7.2"
    # installers take one with AddressSanitizer for the newer one
    wheel(tmp_path, "lightgbm", "4.7.0+rocm7.2.asan")
    refused = install(tmp_path, venv, "lightgbm", code=17)
    assert "lightgbm 4.7.0+rocm7.2.asan has AddressSanitizer" in refused.err
    install(tmp_path, venv, "lightgbm==4.7.0+rocm7.2.asan")
    install(index.url, venv, "torch", "boosts-with-lightgbm")  # it stays
    assert venv.packages()["lightgbm"] == "4.7.0+rocm7.2.asan"


@pytest.mark.parametrize("form", ["folder", "{family}", "links.html", "file:"])
def test_every_form_of_an_index_is_one(form: str, venv: Environment, tmp_path: Path) -> None:
    """And PyPI's torchvision and triton are higher versions everywhere."""
    files = rocm_index(tmp_path / "gfx94X-dcgpu")
    with served_index(tmp_path / "index", files) as server:
        shutil.copytree(tmp_path / "index", tmp_path / "families" / "gfx94X-dcgpu")
        places = {
            "folder": str(tmp_path / "gfx94X-dcgpu"),
            "{family}": f"{tmp_path}/families/{{family}}/",
            "links.html": f"{server.url}links.html",
            "file:": (tmp_path / "index").as_uri(),
        }
        install(places[form], venv)
    assert venv.packages() == SET


def test_a_password_in_the_address_is_for_its_server_and_written_down_nowhere(
    venv: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a large wheel, which is fetched here, and those that uv fetches."""
    send, wants = IndexHandler.send_head, tmp_path / "index"

    def let_in(handler: IndexHandler) -> object:
        authorization = handler.headers.get("Authorization")
        if handler.server.folder != wants or authorization == "Basic bWU6czNjcmV0":
            return send(handler)
        handler.send_error(401)
        return None

    lock = tmp_path / "pylock.toml"
    monkeypatch.setattr("rocm_wheels.user.install.LARGE", 5000)
    with served_index(tmp_path / "index", rocm_index(tmp_path / "raw")) as server:
        address = server.url.replace("//", "//me:s3cret@")
        monkeypatch.setattr(IndexHandler, "send_head", let_in)
        install(server.url, venv, code=17)
        told = install(address, venv), install(address, venv, "--dry-run", "-o", lock)
        assert venv.packages() == SET
        assert {request.status for request in server.requests if request.method == "GET"} >= {200, 401}
    files = [path for root in (tmp_path / "cache", venv.prefix) for path in root.rglob("*") if path.is_file()]
    written = [path.name for path in (*files, lock) if b"s3cret" in path.read_bytes()]
    assert written == [] and not any("s3cret" in one.out + one.err for one in told)


def test_wheels_of_a_folder_or_page_count_beside_the_index(
    index: IndexServer, venv: Environment, tmp_path: Path
) -> None:
    """But for torch's own: that is chosen. What PyPI has of such a project is not looked at."""
    own = tmp_path / "own"
    wheel(own, "torchvision", "0.24.2+rocm7.2", requires=("torch==2.9.1", "torchgeo"), tag=TAG)
    wheel(own, "apex", "1.0", requires=("torch==2.9.1",), tag=TAG)
    torch(own, "3.0.0+rocm7.2")
    assert "apex is for one build of torch or ROCm" in install(index.url, venv, "torch", "apex", code=17).err
    install(index.url, venv, "torch", "apex", "torchvision==0.24.1.*", "--find-links", own)
    got = venv.packages()
    assert (got["apex"], got["torch"], got["torchvision"]) == ("1.0", "2.9.1+rocm7.2", "0.24.1+rocm7.2")
    install(index.url, venv, "torch", "apex", "--find-links", tmp_path / "none", code=2)


def test_what_is_set_for_pip_is_followed(
    index: IndexServer, rest: IndexServer, venv: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.setenv("HOME", str(venv.prefix))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(venv.prefix))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(venv.prefix))
    settings = venv.prefix / "pip.conf"
    settings.write_text("[install]\nno-index = true\n")
    install(index.url, venv, "torch", code=17)  # sympy is not in the chosen index
    settings.write_text(f"[global]\nindex-url = {rest.url}\nproxy = http://127.0.0.1:9\n")
    install(index.url, venv, "torch")  # no proxy is asked for this machine's own servers
    assert venv.packages()["sympy"] == "1.14.0"


def test_versions_that_do_not_go_together_are_not_changed_silently(
    index: IndexServer, venv: Environment
) -> None:
    told = install(index.url, venv, "torch", "torchvision==0.23.*", code=17).err
    assert "rocm-wheels install 'torch==2.8.0+rocm7.2' 'torchvision==0.23.0+rocm7.2'" in told
    assert venv.packages() == {}
    install(index.url, venv, "torchvision==0.23.*")  # which says itself what it goes with
    assert venv.packages()["torch"] == "2.8.0+rocm7.2"
    assert venv.packages()["pytorch_triton_rocm"] == "3.4.0"


def test_versions_that_would_be_refused_again_are_not_advised(tmp_path: Path, venv: Environment) -> None:
    """The index of dependencies has a torchvision, for another torch: naming its version would not help."""
    with served_index(tmp_path / "index", multi_arch(tmp_path / "raw", "gfx1100")) as server:
        said = install(server.url, venv, "torch", "torchvision", "--gfx", "gfx1100", code=17).err
    assert (
        "torchvision is for one build of torch or ROCm and only taken from the index that was chosen" in said
    )
    assert "tip: name an index that has it with --index" in said and "go together" not in said


def test_a_dry_run_touches_nothing_and_its_lines_do_the_same(
    index: IndexServer, venv: Environment, tmp_path: Path
) -> None:
    said = install(index.url, venv, "--dry-run").out
    assert venv.packages() == {}
    assert [path.name for path in (tmp_path / "cache" / "rocm-wheels").iterdir()] == ["pages"]  # no wheel
    plan = install(index.url, venv, "--dry-run", "--json").json
    assert {one["from"] for one in plan["packages"]} == {"index", "dependencies"}
    assert plan["dry_run"] and plan["commands"] and plan["bytes_to_fetch"] > 0
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    from uv import find_uv_bin

    lines = [line.strip() for line in said[said.index("by hand:") :].splitlines()[1:]]
    path = f"{Path(find_uv_bin()).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1"}
    subprocess.run(["sh", "-ec", "\n".join(lines)], check=True, env=env, capture_output=True)
    assert venv.packages() == SET


def test_nothing_is_installed_when_one_file_is_wrong(tmp_path: Path, venv: Environment) -> None:
    files = rocm_index(tmp_path / "raw")
    with served_index(tmp_path / "index", files) as server:
        vision = next((tmp_path / "index" / "torchvision").glob("*0.24.1+rocm7.2*.whl"))
        content = bytearray(vision.read_bytes())
        content[60] ^= 1
        vision.write_bytes(content)
        told = install(server.url, venv, code=17).err
    assert "torchvision" in told
    assert venv.packages() == {}


def test_a_disk_without_room_for_the_environment_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /home may be full where the caches are on another disk."""
    free = files.measure_free_space
    full = tmp_path / "small-disk"
    full.mkdir()
    monkeypatch.setattr(files, "measure_free_space", lambda place: 99 if place == full else free(place))
    monkeypatch.setattr("rocm_wheels.user.install.LARGE", 500)
    with served_index(tmp_path / "index", rocm_index(tmp_path / "raw")) as server:
        words = ["--index", server.url, "--gfx", "gfx942", "--venv", str(full / "venv")]
        told = call("install", *words, code=17).err
    assert not (tmp_path / "cache" / "rocm-wheels" / "large").exists()
    assert f"unpacked, and {full / 'venv'} has room for 99 B" in told
    assert list(full.iterdir()) == []


def test_an_installation_that_breaks_says_what_is_there_and_goes_on(
    index: IndexServer, venv: Environment
) -> None:
    (venv.site / "torchvision" / "__init__.py").mkdir(parents=True)  # a folder in the way of a file
    said = install(index.url, venv, code=17).err
    assert "the installation failed" in said and "torchvision 0.24.1+rocm7.2 in part" in said
    shutil.rmtree(venv.site / "torchvision")
    install(index.url, venv)
    assert venv.packages() == SET


def test_a_plan_is_not_carried_out_where_another_run_came_first(
    index: IndexServer, venv: Environment, tmp_path: Path
) -> None:
    asked = InstallRequest(("torch",), index.url, python=venv.prefix, gfx=("gfx942",))
    planned = plan_install(asked, dict(os.environ))
    venv.uv("install", "--no-index", "--no-deps", str(torch(tmp_path / "other", "2.9.1", built=CUDA)))
    with pytest.raises(errors.HostError, match="has changed since this was planned: torch"):
        carry_out(planned)
    assert venv.packages() == {"torch": "2.9.1"}


def test_an_environment_is_changed_by_one_run_at_a_time_whatever_cache_each_has(
    index: IndexServer, venv: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = InstallRequest(("torch",), index.url, python=venv.prefix, gfx=("gfx942",))
    planned = plan_install(asked, {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "other")})
    monkeypatch.setattr("rocm_wheels.user.install._BUSY_PATIENCE", 0.1)
    held = lock_folder(venv.prefix / ".rocm-wheels", purpose="installing")
    with held, pytest.raises(errors.HostError, match="in use by process"):
        carry_out(planned)
    assert venv.packages() == {}
    carry_out(planned)


def test_two_runs_at_once_wait_for_each_other(index: IndexServer, venv: Environment, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rocm_wheels", "install", "--index", index.url, "--gfx", "gfx942"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path / "other")}
    words += ["--python", str(venv.prefix)]
    with lock_folder(venv.prefix / ".rocm-wheels", purpose="installing"):
        runs = [subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for run in runs:
            assert run.stderr is not None
            assert any("waiting" in line for line in run.stderr)
    ended = [run.communicate(timeout=60)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], ended
    assert sum("installing torch" in text or "installing mpmath" in text for text in ended) == 1
    assert venv.packages() == SET


def test_a_torch_that_is_not_what_its_index_says_is_found_out(tmp_path: Path, venv: Environment) -> None:
    family = tmp_path / "gfx94X-dcgpu"  # an index for these GPUs, by its name; the wheel was built for CUDA
    torch(family, "2.9.1+rocm7.2", built=CUDA)
    told = install(family, venv, "torch", code=17).err
    assert "code for gfx942: no: a build for NVIDIA GPUs (CUDA)" in told
    assert venv.packages() == {}


def test_a_plain_server_of_a_folder_will_do(tmp_path: Path, venv: Environment) -> None:
    """No ranges, no digests, no METADATA beside the wheel, one page: ``python -m http.server``."""
    path = torch(tmp_path, "2.9.1+rocm7.2", "sympy")
    page = f'<a href="{path.name.replace("+", "%2B")}">{path.name}</a>'.encode()
    with serving(FileServer({"": page, path.name: path.read_bytes()})) as server:
        server.ranges = False
        lock = tmp_path / "pylock.toml"
        install(server.url, venv, "torch", "--dry-run", "-o", lock)
        assert hash_file(path) in lock.read_text() and server.url in lock.read_text()
        told = install(server.url, venv, "torch").err
    assert venv.packages()["torch"] == "2.9.1+rocm7.2"
    assert "only the connection vouches" in told


def test_what_is_installed_and_fits_stays(index: IndexServer, venv: Environment, tmp_path: Path) -> None:
    venv.uv("install", "--no-index", "--no-deps", str(wheel(tmp_path, "sympy", "1.13.1")))
    install(index.url, venv, "torch")
    assert venv.packages()["torch"] == "2.9.1+rocm7.2"
    assert venv.packages()["sympy"] == "1.13.1"


MANAGED = """#!{python}
import sys, sysconfig
sys.prefix, sys.executable = sys.base_prefix, {managed!r}
own = sysconfig.get_path
sysconfig.get_path = lambda name, *rest, **more: {stdlib!r} if name == "stdlib" else own(name, *rest, **more)
exec(sys.argv[sys.argv.index("-c") + 1])
"""


def test_wrong_input(
    index: IndexServer, venv: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)  # a server that is not there
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    managed, closed = tmp_path / "managed", tmp_path / "file"
    closed.write_text("")
    (tmp_path / "stdlib").mkdir()
    (tmp_path / "stdlib" / "EXTERNALLY-MANAGED").write_text("")
    managed.write_text(
        MANAGED.format(python=sys.executable, managed=str(managed), stdlib=str(tmp_path / "stdlib"))
    )
    managed.chmod(0o755)
    rows = [
        (["torch==9.9.9"], 17, "torch==9.9.9"),
        (["torch", "triton"], 17, "only taken from the index that was chosen"),
        (["torch", "no-such-project"], 17, "no-such-project was not found"),
        (["torch", "no-such-project"], 17, "tip: is the name no-such-project right?"),
        (["numpy", "--index", str(tmp_path / "nowhere")], 2, "neither a folder nor the URL"),
        (["--python", str(tmp_path / "nowhere")], 2, "there is no Python"),
        (["--python", str(tmp_path)], 2, "no Python in the folder"),
        (["--python", str(closed)], 2, "is no program that can be started"),
        (["--python", str(managed)], 17, "PEP 668"),
        (["--gfx", "gfx9999zz"], 2, "gfx9999zz"),
        (["torch==2.9.1+cu128", "torchvision==0.24.1+rocm7.2"], 17, "torchvision"),
        (["torch", "--find-links", ""], 2, "it is empty; is a variable not set?"),
        (["torch", "--rocm-index", ""], 2, "it is empty; is a variable not set?"),
    ]
    for words, code, said in rows:
        assert said in install(index.url, venv, "--dry-run", *words, code=code).err, words
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/")
    assert "http://127.0.0.1:9/sympy/" in install(index.url, venv, "--dry-run", "torch", code=17).err
    # and not the current folder
    assert "'--index': it is empty" in install("", venv, "--dry-run", "torch", code=2).err
    assert venv.packages() == {}
