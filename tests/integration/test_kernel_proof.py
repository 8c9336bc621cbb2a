"""What torch has code for is told before it is fetched; one that serves no GPU here is never installed."""

from __future__ import annotations

import io
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from binaries import bundle, code_object, compress, elf, hip, kpack, pad
from commands import Ended, call
from pythons import CUDA, ROCM, TAG, Environment, make_environment, served_index, torch
from pythons import library_behind as library
from servers import FileServer, IndexHandler, IndexServer, serving
from wheels import Draft, wheel

from rocm_wheels.core.files import hash_file
from rocm_wheels.models import package_indexes
from rocm_wheels.user import index_pages, install_options, kernel_proof
from rocm_wheels.user.host import StatedMachine, make_host

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("own_caches")]

CLONE = Path(__file__).resolve().parents[2]
INDEXES = {index.name: index for index in package_indexes.list_indexes()}
CPU = "hip: str | None = None\ncuda: str | None = None\n"
REST = 24 << 20  # bytes behind the device code: more than sockets of this machine take unasked
NVIDIA = "nvidia-cublas-cu12==12.8; platform_system == 'Linux'"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    """An index with a torch whose device code for gfx1100 lies early in a large library."""
    folder = tmp_path_factory.mktemp("large")
    code = library("gfx1100", "gfx1101", host_code=os.urandom(1 << 20)) + os.urandom(REST)
    with served_index(folder / "index", [torch(folder, "2.9.1", code=code)]) as server:
        yield server


def list_alone(monkeypatch: pytest.MonkeyPatch, urls: Mapping[str, str]) -> None:
    """Have these indexes (their URLs by name) be all that are known."""
    rows = tuple(INDEXES[name].model_copy(update={"url": url}) for name, url in urls.items())
    monkeypatch.setattr(package_indexes, "list_indexes", lambda: rows)


def choose(index: str, *words: str, code: int = 0) -> Ended:
    return call("choose", "torch", "--index", index, "--rocm", "none", *words, code=code)


def install(index: str, venv: Environment, *words: str, code: int = 0) -> Ended:
    given = ["install", "torch", "--index", index, "--python", str(venv.prefix)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("UV_DEFAULT_INDEX", index)
        return call(*given, *words, code=code)


def test_a_cuda_torch_is_told_by_its_requirements_before_a_byte_of_a_wheel_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyPI has it: no label, and a CUDA build by what it requires."""
    monkeypatch.chdir(tmp_path)
    venv = make_environment(tmp_path / "venv")
    files = [torch(tmp_path, "2.9.1", NVIDIA, built=CUDA), wheel(tmp_path, "nvidia_cublas_cu12", "12.8")]
    with served_index(tmp_path / "index", files) as server:
        message = install(server.url, venv, "--gfx", "gfx1100", code=17).err
        assert "code for gfx1100: no: a build for NVIDIA GPUs (CUDA) (requires nvidia-cublas-cu12)" in message
        assert (
            "rocm-wheels install --venv my-torch --gfx gfx1100" in message and "tip: --allow-cpu" in message
        )
        assert choose(server.url, "--gfx", "gfx1100", code=17).err == message
        choose(server.url, "--gfx", "none")
        choose(server.url, "--gfx", "gfx1100", "--allow-cpu")
        assert not [request for request in server.requests if request.path.endswith(".whl")]
        assert venv.packages() == {}
        install(server.url, venv, "--gfx", "gfx1100", "--allow-cpu")
        assert venv.packages() == {"nvidia_cublas_cu12": "12.8", "torch": "2.9.1"}
        # what is installed already counts no more than what would be fetched
        install(server.url, venv, "--gfx", "gfx1100", code=17)
        install(server.url, venv, "--gfx", "none")


def test_device_code_is_read_by_ranges_as_far_as_it_takes(large: IndexServer, empty: Environment) -> None:
    large.sent = 0
    told = install(large.url, empty, "--gfx", "gfx1101", "--dry-run", "--json").out
    assert 1 << 20 < large.sent < REST // 2
    kernels = json.loads(told)["kernels"]
    assert (kernels["built_for"], kernels["by"], kernels["unread"]) == ("rocm", "libtorch_hip.so", None)
    assert kernels["gpus"] == [{"gfx": "gfx1101", "served": True, "how": "native"}]
    told = install(large.url, empty, "--gfx", "gfx942,gfx1101", "--dry-run").out  # one of them is served
    assert "code for gfx942: no: it has code for gfx1100, gfx1101" in told
    message = "code for gfx942: no: it has code for gfx1100, gfx1101 (libtorch_hip.so)"
    assert message in install(large.url, empty, "--gfx", "gfx942", code=17).err
    assert message in choose(large.url, "--gfx", "gfx942", code=17).err
    said = choose(large.url, "--gfx", "gfx1101").err
    assert "code for gfx1101: yes" in said and "does not say which GPUs" not in said
    choose(large.url, "--gfx", "gfx942,gfx1101")
    choose(large.url, "--gfx", "gfx942", "--allow-cpu")
    assert empty.packages() == {}


def test_a_connection_that_ends_amid_the_library_is_no_proof(
    large: IndexServer, empty: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and read after the download: a cut connection is no reason to refuse, or to trust."""
    send = IndexHandler.copyfile

    def cut(handler: IndexHandler, file: BinaryIO, out: object) -> None:
        content = file.read()
        cuts = len(content) > REST // 2
        send(handler, io.BytesIO(content[: 256 << 10] if cuts else content), out)
        if cuts:
            handler.connection.shutdown(socket.SHUT_RDWR)

    monkeypatch.setattr(IndexHandler, "copyfile", cut)
    kernels = install(large.url, empty, "--gfx", "gfx1101", "--dry-run", "--json").json["kernels"]
    assert kernels["gpus"] == [{"gfx": "gfx1101", "served": None, "how": None}] and kernels["unread"]


def test_choose_and_install_refuse_alike_what_only_a_table_or_an_extra_promises(
    tmp_path: Path, empty: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fat index that has gfx1100 by the table, and a host wheel whose device wheel has another archive."""
    fat = torch(tmp_path / "fat", "2.9.1", code=library("gfx942"))
    device = "amd-torch-device-gfx1100==2.9.2; extra == 'device-gfx1100'"
    host_wheel = torch(tmp_path / "host", "2.9.2", device, extras=("device-gfx1100",))
    draft = Draft("amd_torch_device_gfx1100", "2.9.2", TAG)
    archive = kpack({("lib/libtorch_hip.so#0", "gfx942"): code_object("gfx942")})
    draft.members = {"torch/.kpack/torch_gfx942.kpack": archive}
    device_wheel = draft.write(tmp_path / "host")
    for name, files in (("pytorch-rocm7.2", [fat]), ("amd-stable", [host_wheel, device_wheel])):
        with served_index(tmp_path / name, files) as server, monkeypatch.context() as patched:
            list_alone(patched, {name: server.url})
            patched.setenv("UV_DEFAULT_INDEX", server.url)
            words = ["torch", "--gfx", "gfx1100"]
            assert " was taken: stable index of ROCm" in call("choose", *words, "--allow-cpu").err
            more = ["--python", empty.prefix, "--dry-run"]
            for command in (["choose", *words], ["install", *words, *more]):
                assert "code for gfx1100: no: it has code for gfx942" in call(*command, code=17).err


def test_an_index_whose_torch_is_refused_is_passed_over_for_the_next_that_serves(
    tmp_path: Path, empty: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``choose`` and ``install`` alike; where none serves, the refusal is that of the best index."""
    first = torch(tmp_path / "first", "2.10.0", code=library("gfx942"))
    second = torch(tmp_path / "second", "2.9.1", code=library("gfx1100"))
    with (
        served_index(tmp_path / "index0", [first]) as best,
        served_index(tmp_path / "index1", [second]) as next_best,
    ):
        list_alone(monkeypatch, {"pytorch-rocm7.2": best.url, "pytorch-rocm7.1": next_best.url})
        monkeypatch.setenv("UV_DEFAULT_INDEX", best.url)
        for name, words in (("choose", []), ("install", ["--python", str(empty.prefix), "--dry-run"])):
            command = [name, "torch", *words, "--gfx"]
            answer = call(*command, "gfx1100", "--json").json
            choice = answer["choices"][0] if name == "choose" else answer["choice"]
            index = (answer if name == "install" else choice)["index"]
            assert (index, choice["requires"]) == (next_best.url, ["torch==2.9.1"])
            passed = (
                "passed over: pytorch-rocm7.2 has torch 2.10.0: code for gfx1100: no: it has code for gfx942"
            )
            assert any(passed in note for note in choice["notes"]), choice["notes"]
            message = call(*command, "gfx1200", code=17).err
            assert "torch 2.10.0: code for gfx1200: no: it has code for gfx942" in message
            assert "2.9.1" not in message
            assert "2.10.0" in call(*command, "gfx1200", "--allow-cpu").out


def test_an_index_whose_torch_is_refused_after_the_download_is_passed_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that sends no parts of files the wheel is looked into when it is here."""
    venv = make_environment(tmp_path / "venv")
    path = torch(tmp_path / "first", "2.10.0", code=library("gfx942"))
    second = torch(tmp_path / "second", "2.9.1", code=library("gfx1100"))
    page = f'<a href="{path.name}#sha256={hash_file(path)}">{path.name}</a>'.encode()
    files = dict.fromkeys(("", "torch/"), page) | {f"torch/{path.name}": path.read_bytes()}
    with (
        serving(FileServer(files)) as best,
        served_index(tmp_path / "index", [second]) as next_best,
    ):
        best.ranges = False
        list_alone(monkeypatch, {"pytorch-rocm7.2": best.url, "pytorch-rocm7.1": next_best.url})
        monkeypatch.setenv("UV_DEFAULT_INDEX", next_best.url)
        command = ["install", "torch", "--gfx", "gfx1100", "--python", str(venv.prefix)]
        told = call(*command).err
    assert "passed over: pytorch-rocm7.2 has torch 2.10.0" in told
    assert "torch 2.9.1 goes with pytorch-triton-rocm, and does not require it" in told
    assert venv.packages() == {"torch": "2.9.1"}


@pytest.mark.parametrize("form", [(1, "zlib"), (2, "zstd"), (3, "zstd"), None])
def test_bundles_of_each_form_are_read(
    form: tuple[int, str] | None, tmp_path: Path, empty: Environment
) -> None:
    """Also where the first bundle has none for the GPU: parts of torch are compiled for some targets only."""
    first, second = bundle(hip("gfx1100")), bundle(hip("gfx942"))
    if form:
        first, second = compress(first, *form), compress(second, *form)
    code = elf({".text": bytes(8128), ".hip_fatbin": pad(first) + second})
    torch(tmp_path / "builds", "2.9.1", code=code)
    planned = install(str(tmp_path / "builds"), empty, "--gfx", "gfx942", "--dry-run", "--json")
    kernels = planned.json["kernels"]
    assert kernels["targets"] == ["gfx942", "gfx1100"] and kernels["gpus"][0]["served"] is True


def test_a_server_without_ranges_is_proven_after_the_download_and_before_anything_is_installed(
    tmp_path: Path,
) -> None:
    venv = make_environment(tmp_path / "venv")
    path = torch(tmp_path, "2.9.1", code=library("gfx942"))
    link = f'<a href="{path.name}#sha256={hash_file(path)}" data-core-metadata="true">{path.name}</a>'
    metadata = b"Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\nRequires-Python: >=3.10\n"
    files = {"": link.encode(), path.name: path.read_bytes(), f"{path.name}.metadata": metadata}
    with serving(FileServer(files)) as server:
        server.ranges = False
        message = install(server.url, venv, "--gfx", "gfx1100", code=17).err
        assert "the server gives out no parts of files" in message
        assert "code for gfx1100: no: it has code for gfx942 (libtorch_hip.so)" in message
        assert "nothing was installed" in message
        assert venv.packages() == {}
        install(server.url, venv, "--gfx", "gfx942")
    assert venv.packages() == {"torch": "2.9.1"}


def test_a_torch_for_the_cpu_is_taken_when_somebody_says_so(tmp_path: Path) -> None:
    """On a terminal by an answer; elsewhere by the option alone."""
    venv = make_environment(tmp_path / "venv")
    torch(tmp_path / "builds", "2.9.1+cpu", built=CPU)
    words = ["-m", "rocm_wheels", "install", "torch", "--index", str(tmp_path / "builds"), "--gfx", "gfx1100"]
    words += ["--python", str(venv.prefix)]
    for answer, code in ((b"n\n", 17), (b"y\n", 0)):
        here, terminal = pty.openpty()
        os.write(here, answer)
        env = {**os.environ, "PYTHONPATH": str(CLONE / "build_tools")}
        done = subprocess.run([sys.executable, *words], stdin=terminal, stderr=terminal, env=env, check=False)
        os.close(terminal)
        os.close(here)
        assert done.returncode == code
        assert venv.packages() == ({"torch": "2.9.1+cpu"} if code == 0 else {})


@pytest.mark.parametrize(
    ("gfx", "python", "platform", "commands"),
    [
        # RX 6600: of Python 3.10 there is a nightly, of newer ones a stable torch; VII on Windows: nightlies
        ("gfx1032", "3.10", "linux", ("--python 3.11 --gfx gfx1032", "--channel nightly --gfx gfx1032")),
        ("gfx906", "3.12", "windows",
         ("rocm-wheels install --venv my-torch --channel nightly --gfx gfx906",)),
        ("gfx90c", "3.12", "linux", ("--gfx gfx900   # with HSA_OVERRIDE_GFX_VERSION=9.0.0",)),
        ("gfx700", "3.12", "linux", ("no ROCm of today compiles for it",)),
        ("gfx803", "3.12", "linux", ("no ROCm of today compiles for it", "torch 2.5.1 with ROCm 6.3.0")),
        ("new:gfx1399", "3.12", "linux", ("choose torch --channel nightly --gfx new:gfx1399",)),
    ],
)  # fmt: skip
def test_a_gpu_that_no_index_serves_is_an_error_that_says_what_does(  # noqa: PLR0917 - pytest passes names
    gfx: str,
    python: str,
    platform: str,
    commands: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where no environment of this program is
    host = make_host({}, StatedMachine((gfx,), "none", python, platform))
    with pytest.raises(install_options.UnservedGpuError) as refusal:
        install_options.require_gpu_index(host, "stable")
    assert all(command in refusal.value.message for command in commands), refusal.value.message
    assert "--allow-cpu" in (refusal.value.tip or "")
    if "gfx803" in gfx or "gfx1399" in gfx:
        assert "rocm-wheels install" not in refusal.value.message
        assert "rocm-wheels build" not in refusal.value.message


def test_a_card_that_runs_the_kernels_of_another_is_served_by_those() -> None:
    host = make_host({}, StatedMachine(("gfx90c",), "none", "3.12", "linux"))
    proof = kernel_proof.KernelProof("torch 2.9.1", "rocm", "", ("gfx900",), "libtorch_hip.so")
    demand, posing_demand = (
        kernel_proof.make_demand(host, None),
        kernel_proof.make_demand(host, "HSA_OVERRIDE_GFX_VERSION=9.0.0"),
    )
    assert demand is not None and len(demand.list_faults(proof)) == 1
    assert posing_demand is not None and posing_demand.list_faults(proof) == []


def test_no_gpu_and_a_served_gpu_are_let_pass() -> None:
    install_options.require_gpu_index(
        make_host({}, StatedMachine(("none",), "none", "3.12", "linux")), "stable"
    )
    for gfx in ("gfx1100", "gfx1032,gfx1100"):
        host = make_host({}, StatedMachine((gfx,), "none", "3.12", "linux"))
        assert index_pages.recommend_torch(host).kind == "rocm"


def test_a_torch_without_any_device_code_serves_no_gpu(tmp_path: Path, empty: Environment) -> None:
    draft = Draft("torch", "2.9.1", TAG)
    draft.members = {"torch/__init__.py": b"", "torch/version.py": f"__version__ = '2.9.1'\n{ROCM}".encode()}
    draft.write(tmp_path)
    assert "no: it has code for no GPU" in install(str(tmp_path), empty, "--gfx", "gfx1100", code=17).err


def test_a_cache_that_uv_cannot_make_names_the_variables_of_another(
    tmp_path: Path, empty: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    Draft("torch", "2.9.1", TAG).write(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "file" / "uv"))
    told = install(str(tmp_path), empty, "--gfx", "none", code=17).err
    assert "tip: XDG_CACHE_HOME or UV_CACHE_DIR names another folder" in told
