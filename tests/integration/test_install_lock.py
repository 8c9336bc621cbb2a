"""Locks (PEP 751) that are written, installed again, and taken along as a folder without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Ended, call
from pythons import CUDA, Environment, make_environment, multi_arch, rocm_sources, served_index, torch
from servers import IndexServer
from wheels import wheel

from rocm_wheels.core import installation, toml_reader
from rocm_wheels.user import install as installing

pytestmark = pytest.mark.usefixtures("own_caches")
HEAD = 'lock-version = "1.0"\ncreated-by = "x"\n'
PACKAGE = f'{HEAD}[[packages]]\nname = "a"\nversion = "1"\n'
OLD_PIP = "23.0.1"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """An index with variants for two GPUs, and what all have in common."""
    raw = tmp_path / "raw"
    files = [
        torch(raw, "2.9.1", "sympy", label="gfx94x", gfx=("gfx942",)),
        torch(raw, "2.9.1", "sympy", label="gfx110x", gfx=("gfx1100", "gfx1101")),
        wheel(raw, "torchvision", "0.24.1", requires=("torch==2.9.1",)),
        wheel(raw, "sympy", "1.14.0"),
    ]
    with served_index(tmp_path / "index", files) as server:
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        yield server


SET = {"sympy": "1.14.0", "torch": "2.9.1", "torchvision": "0.24.1"}


def write_lock(index: IndexServer, output: Path, gfx: str, *packages: str, code: int = 0) -> Ended:
    common = ["--index", index.url, "--dry-run", "-o", str(output)]
    place = ["--venv", str(output.parent / "planned"), "--gfx", gfx]
    return call("install", *(packages or ("torch",)), *common, *place, code=code)


def install_lock(lock: Path, venv: Environment, gfx: str, *words: str, code: int = 0) -> Ended:
    return call("install", "--lock", lock, "--python", venv.prefix, "--gfx", gfx, *words, code=code)


@pytest.mark.contract
def test_a_lock_of_variants_installs_the_same_again_and_by_uv_too(tmp_path: Path, index: IndexServer) -> None:
    lock = tmp_path / "pylock.toml"
    write_lock(index, lock, "gfx942", "torch", "torchvision")
    assert not (tmp_path / "planned").exists()
    document = toml_reader.parse_toml(lock.read_text(), name="lock")
    assert [row["name"] for row in document["packages"]] == ["sympy", "torch", "torchvision"]
    assert document["tool"]["rocm-wheels"]["gfx"] == ["gfx942"]
    again = tmp_path / "pylock.again.toml"
    write_lock(index, again, "gfx942", "torch", "torchvision")
    assert again.read_bytes() == lock.read_bytes()
    venv = make_environment(tmp_path / "venv")
    index.requests.clear()
    install_lock(lock, venv, "gfx942")
    assert "gfx94x" in (venv.site / "torch" / "__init__.py").read_text() and venv.packages() == SET
    assert [request.path for request in index.requests if not request.path.endswith(".whl")] == []
    assert "all of it was installed already" in install_lock(lock, venv, "gfx942").out
    told = install_lock(lock, make_environment(tmp_path / "other"), "gfx1100", code=17).err
    assert "code for gfx1100: no: it has code for gfx942" in told
    by_uv = make_environment(tmp_path / "by-uv")
    by_uv.uv("install", "--no-config", "-r", str(lock), "--preview")
    assert "gfx94x" in (by_uv.site / "torch" / "__init__.py").read_text()


@pytest.mark.contract
def test_a_lock_has_the_kernels_that_came_by_extras(tmp_path: Path) -> None:
    lock, venv = tmp_path / "pylock.toml", make_environment(tmp_path / "venv")
    with served_index(tmp_path / "index", multi_arch(tmp_path / "raw", "gfx942", "gfx1100")) as server:
        write_lock(server, lock, "gfx942")
        install_lock(lock, venv, "gfx942")
    assert set(venv.packages()) == {"torch", "amd_torch_device_gfx942"}


@pytest.mark.contract
def test_what_is_installed_is_in_a_lock_all_the_same(tmp_path: Path, index: IndexServer) -> None:
    venv, lock = make_environment(tmp_path / "venv"), tmp_path / "pylock.toml"
    words = ["install", "torch", "--index", index.url, "--gfx", "gfx942", "--python", venv.prefix]
    call(*words)
    call(*words, "--dry-run", "-o", lock)
    document = toml_reader.parse_toml(lock.read_text(), name="lock")
    urls = [row["wheels"][0]["url"] for row in document["packages"]]
    assert len(urls) == 2 and all(url.startswith(index.url) for url in urls)


@pytest.mark.contract
def test_a_lock_of_uv_is_installed(tmp_path: Path, index: IndexServer) -> None:
    theirs = tmp_path / "pylock.uv.toml"
    words = [str(installation.find_uv()), "pip", "compile", "--no-config", "--universal"]
    words += ["--default-index", index.url]
    markers = b"sympy; sys_platform != 'win32'\ntorchvision; sys_platform == 'win32'"
    words += ["--no-deps", "--format", "pylock.toml", "-o", str(theirs), "-"]
    subprocess.run(words, input=markers, check=True)
    other = make_environment(tmp_path / "other")
    install_lock(theirs, other, "none")
    assert other.packages() == {"sympy": "1.14.0"}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, 2, "does not exist"),
        ("lock-version = ", 2, "not valid TOML"),
        (HEAD, 2, "is no lock of PEP 751"),
        (f'{HEAD}packages = [{{name = "a", version = "1"}}]\n', 2, "PEP 751"),
        (f'{PACKAGE}wheels = [{{url = "https://x/a-1-cp27-none-any.whl", hashes = {{sha256 = "00"}}}}]\n',
         17, "has nothing that fits Python"),
        (f'{PACKAGE}wheels = [{{url = "https://x/a-1-py3-none-any.whl", hashes = {{md5 = "00"}}}}]\n',
         2, "has no sha256"),
        ('lock-version = "2.0"\ncreated-by = "x"\npackages = []\n', 2, "2.0"),
        (f'{HEAD}packages = []\n[tool.rocm-wheels]\ngfx = "gfx942"\n', 2, "is not of lists of texts"),
        (f"{HEAD}packages = []\n[tool]\nrocm-wheels = 1\n", 2, "is not of lists of texts"),
    ],
)  # fmt: skip
def test_what_is_no_lock(tmp_path: Path, text: str | None, code: int, message: str) -> None:
    lock = tmp_path / "pylock.toml"
    if text is not None:
        lock.write_text(text)
    venv = make_environment(tmp_path / "venv")
    assert message in install_lock(lock, venv, "gfx942", code=code).err
    assert venv.packages() == {}


@pytest.mark.contract
def test_what_makes_no_lock(tmp_path: Path, index: IndexServer) -> None:
    lock = tmp_path / "pylock.toml"
    write_lock(index, lock, "gfx1201", code=17)
    assert "called pylock.toml" in write_lock(index, tmp_path / "lock.toml", "gfx942", code=2).err
    words = ["install", "torch", "--index", index.url, "-o", str(lock), "--venv", str(tmp_path / "venv")]
    call(*words, code=2)
    assert not lock.exists() and not (tmp_path / "venv").exists()
    lock.write_text(HEAD + "packages = []")
    venv = make_environment(tmp_path / "venv")
    told = install_lock(lock, venv, "gfx942", "torch", "--index", index.url, code=2).err
    assert "packages, --index would choose others" in told


@pytest.fixture
def plain_index(tmp_path: Path) -> Iterator[IndexServer]:
    """An index with one torch, which does not say for which GPUs it has code."""
    files = [torch(tmp_path / "raw", "2.9.1", gfx=("gfx1030", "gfx1100"))]
    with served_index(tmp_path / "plain", files) as server:
        yield server


def test_a_card_beside_graphics_inside_the_processor_is_locked_as_it_is_installed(
    tmp_path: Path, plain_index: IndexServer
) -> None:
    lock = tmp_path / "pylock.toml"
    write_lock(plain_index, lock, "gfx1036,gfx1100")
    told = install_lock(lock, make_environment(tmp_path / "venv"), "gfx1036,gfx1100").out
    hidden = "HIP_VISIBLE_DEVICES=1"  # as they are stated: graphics first
    assert hidden in told
    words = ["--index", plain_index.url, "--gfx", "gfx1036,gfx1100", "--dry-run", "--json"]
    told = call("install", "torch", "--venv", tmp_path / "other", *words).out
    assert json.loads(told)["environment"] == hidden
    write_lock(plain_index, lock, "gfx1036", code=17)  # alone it needs kernels


def test_a_card_that_runs_the_kernels_of_another_installs_a_lock_of_those(
    tmp_path: Path, plain_index: IndexServer
) -> None:
    lock = tmp_path / "pylock.toml"
    write_lock(plain_index, lock, "gfx1030")
    venv = make_environment(tmp_path / "venv")
    told = install_lock(lock, venv, "gfx1031", code=17).err
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0: with --gfx gfx1030" in told
    # as it is locked where no index serves the card itself
    lock.write_text(lock.read_text().replace('gfx = ["gfx1030"]', 'gfx = ["gfx1031"]'))
    assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in install_lock(lock, venv, "gfx1031").out
    assert venv.packages() == {"torch": "2.9.1"}


def test_a_lock_is_no_way_round_the_question_about_the_cpu(tmp_path: Path) -> None:
    lock, raw = tmp_path / "pylock.toml", tmp_path / "cuda"
    with served_index(tmp_path / "cuda-index", [torch(raw, "2.9.1", built=CUDA)]) as server:
        write_lock(server, lock, "none")
        venv = make_environment(tmp_path / "venv")
        install_lock(lock, venv, "gfx1100", code=17)
        assert venv.packages() == {}
        install_lock(lock, venv, "gfx1100", "--allow-cpu")


def run_without_network(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where there is no network at all: not even this machine's own."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("there is no unshare here")
    front = [program, "--net", *(["--map-root-user"] if os.getuid() else [])]
    if subprocess.run([*front, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    env |= {"HOME": str(folder.parent / "home"), "XDG_CACHE_HOME": "", "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run([*front, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.contract
def test_kept_wheels_install_where_there_is_no_network(tmp_path: Path) -> None:
    """By the line that is printed, with pip; by ours and the lock of the folder. Sources are wheels there."""
    raw = tmp_path / "raw"
    torch(raw, "2.9.1", "sympy", "rocm[libraries]==7.2.0", label="gfx110x", gfx=("gfx1100",))
    for name, version in (("sympy", "1.14.0"), ("rocm_sdk_core", "7.2.0"), ("rocm_sdk_libraries", "7.2.0")):
        wheel(raw, name, version)
    rocm_sources(raw)
    kept, venv = tmp_path / "kept", make_environment(tmp_path / "venv")
    words = ["install", "torch", "--index", str(raw), "--gfx", "gfx1100", "--python", str(venv.prefix)]
    for _ in range(2):  # all of it, whatever is installed already
        line = call(*words, "--keep-wheels", kept).out.splitlines()[-1].partition(": ")[2]
        assert len(list(kept.glob("*.whl"))) == len(venv.packages()) == 5
        (kept / "torch-2.9.1-py3-none-linux_x86_64.whl").unlink()
    call(*words, "--keep-wheels", kept)
    shutil.rmtree(raw)
    assert line == installing.make_offline_line(kept) and line.startswith("pip install --no-index")
    by_pip = make_environment(tmp_path / "by-pip", pip=True)
    ended = run_without_network([str(by_pip.python), "-m", *line.split()], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert by_pip.packages() == venv.packages()
    assert "gfx110x" in (by_pip.site / "torch" / "__init__.py").read_text()
    copy = shutil.copytree(kept, tmp_path / "elsewhere" / "copy")
    line = f"{sys.executable} -m rocm_wheels install --lock pylock.toml --venv torch-env --gfx gfx1100"
    ended = run_without_network(line.split(), copy)
    assert ended.returncode == 0, ended.stderr
    (init,) = (copy / "torch-env").glob("lib/python*/site-packages/torch/__init__.py")
    assert "gfx110x" in init.read_text()


@pytest.mark.contract
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: content + bytes(9)])
def test_a_kept_wheel_that_was_damaged_is_told_of_before_anything_is_installed(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Also one that uv would fetch by itself: to run the command again, as its failure says, is no help."""
    raw, kept, venv = tmp_path / "raw", tmp_path / "kept", make_environment(tmp_path / "venv")
    torch(raw, "2.9.1+rocm7.2", "sympy")
    wheel(raw, "sympy", "1.14.0")
    words = ["install", "--gfx", "gfx1100", "--python", str(venv.prefix)]
    keep = ["torch", "--index", str(raw), "--keep-wheels", str(kept)]
    call(*words, *keep)
    venv.uv("uninstall", "torch", "sympy")
    (sympy,) = kept.glob("sympy-*.whl")
    sympy.write_bytes(damage(sympy.read_bytes()))
    said = call(*words, "--lock", kept / "pylock.toml", code=17).err
    assert f"{sympy} has the sha256 " in said and "tip: nothing was installed; get that file again" in said
    assert venv.packages() == {}


@pytest.mark.network
@pytest.mark.contract_slow
def test_pip_of_debian_installs_kept_wheels(
    tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, old = tmp_path / "kept", make_environment(tmp_path / "old")
    words = ["--index", index.url, "--gfx", "gfx942", "--keep-wheels", kept]
    call("install", "torch", "--venv", tmp_path / "venv", *words)
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    old.uv("install", f"pip=={OLD_PIP}")
    line = installing.make_offline_line(kept)
    ended = run_without_network([str(old.python), "-m", *line.split()], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert old.packages() == {"sympy": "1.14.0", "torch": "2.9.1"}


@pytest.mark.contract
def test_large_wheels_are_kept_once_and_by_uv(
    tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come by our own download, which goes on where it broke off; uv has them unpacked afterwards."""
    monkeypatch.setattr("rocm_wheels.user.install.LARGE", 500)
    words = ["--index", index.url, "--gfx", "gfx942", "torch"]
    first, second = make_environment(tmp_path / "first"), make_environment(tmp_path / "second")
    call("install", *words, "--python", first.prefix)
    large = tmp_path / "cache" / "rocm-wheels" / "large"
    assert len(list(large.iterdir())) == 2 and not list(large.glob("*/*"))
    index.requests.clear()
    call("install", *words, "--python", second.prefix)
    # parts of torch are read again, as code for the GPU is proven; nothing is fetched
    assert {request.path.count("/torch-") for request in index.requests if ".whl" in request.path} == {1}
    assert second.packages() == first.packages() == {"sympy": "1.14.0", "torch": "2.9.1"}
    shutil.rmtree(tmp_path / "uv")  # somebody has cleaned uv's cache
    third = make_environment(tmp_path / "third")
    call("install", *words, "--python", third.prefix)
    assert third.packages() == first.packages()
