"""What ``import rocm_wheels`` gives to programs. Cards are stated by variables, torch is constructed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from pythons import install_torch

import rocm_wheels
from rocm_wheels import api
from rocm_wheels.core import errors, installation
from rocm_wheels.gpus.gpu import Gpu

pytestmark = pytest.mark.contract

FORCE = "ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH"
VARIABLES = ("HSA_", "HIP_", "ROCR_", "CUDA_", "ROCM_", "AMD_", "UV_AMD", "NV_", "PYTORCH_ENABLE")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of this machine counts; what a test sets is gone afterwards; torch is not imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    monkeypatch.setattr(os, "environ", kept)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_torch(tmp_path, "gfx90a", "gfx1100")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def test_all_names_are_there_and_typed() -> None:
    face = ast.parse(Path(rocm_wheels.__file__).read_text(encoding="utf-8"))
    for_checkers = [node for node in ast.walk(face) if isinstance(node, ast.ImportFrom)]
    typed = {alias.name for node in for_checkers if node.module == "rocm_wheels.api" for alias in node.names}
    assert {*api.__all__} == typed == {*rocm_wheels.__all__} - {"__version__"}
    assert {*rocm_wheels.__all__} <= {*dir(rocm_wheels)}
    for name in api.__all__:
        assert getattr(rocm_wheels, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    assert Path(rocm_wheels.__file__).with_name("py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'instal'"):
        rocm_wheels.instal  # type: ignore[attr-defined]  # noqa: B018


def test_what_programs_import_is_light() -> None:
    """Neither pydantic nor what an extra brings is loaded with the functions, only with what they need."""
    program = "import sys; from rocm_wheels import configure, get_device, install; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in ended.stdout.split()}
    heavy = {"pydantic", "yaml", "rich", *(name for rows in installation.EXTRAS.values() for name in rows)}
    assert not modules & heavy


@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
@pytest.mark.usefixtures("torch")
def test_configure_sets_what_a_card_needs(recwarn: pytest.WarningsRecorder) -> None:
    os.environ[FORCE] = "gfx1102"
    assert rocm_wheels.configure() == {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    assert os.environ["HSA_OVERRIDE_GFX_VERSION"] == "11.0.0"
    assert rocm_wheels.configure() == {}, "the second time it is there already"
    assert len(recwarn) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="overrides are read on Linux")
@pytest.mark.usefixtures("torch")
def test_configure_says_when_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    os.environ[FORCE] = "gfx1100"
    assert rocm_wheels.configure() == {}
    os.environ[FORCE] = "gfx1102"
    with pytest.warns(RuntimeWarning, match="torch is imported already: HSA_OVERRIDE_GFX_VERSION may come"):
        rocm_wheels.configure()


@pytest.mark.skipif(sys.platform != "linux", reason="on a Mac no torch is needed for it")
def test_configure_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not Path(place, "torch").exists()])
    os.environ[FORCE] = "gfx1102"
    with pytest.raises(errors.HostError, match="torch is not installed in"):
        rocm_wheels.configure()
    assert rocm_wheels.get_installed_platform() is None
    assert "HSA_OVERRIDE_GFX_VERSION" not in os.environ


@pytest.mark.usefixtures("torch")
def test_what_is_here() -> None:
    os.environ[FORCE] = "gfx942,gfx942"
    gpus = rocm_wheels.get_gpus()
    assert [(gpu.gfx, gpu.confidence) for gpu in gpus] == [("gfx942", "forced")] * 2
    assert rocm_wheels.get_hardware().gpus == gpus
    assert rocm_wheels.get_installed_platform() == "rocm"
    found = [one for one in rocm_wheels.doctor() if "gfx942" in one.message and one.severity == "error"]
    assert found, "torch has no kernels for these"
    os.environ[FORCE] = "navi"
    for ask in (rocm_wheels.get_gpus, rocm_wheels.doctor):
        with pytest.raises(errors.UsageError, match=FORCE):
            ask()


@pytest.mark.parametrize(
    ("gpus", "name", "index"),
    [
        ([Gpu("amd", gfx="gfx942", native="gfx942", index=0)], "rocm", "amd.com"),  # and not cpu
        ([Gpu("nvidia", capability="8.9")], "cu", "https://download.pytorch.org/whl/cu"),
        ([Gpu("intel", name="Arc B580")], "xpu", "https://download.pytorch.org/whl/xpu"),
        ([], "cpu", "https://download.pytorch.org/whl/cpu"),
        # as torchruntime: a card before graphics inside a processor, in any order
        ([Gpu("amd", gfx="gfx1036", index=0, integrated=True), Gpu("nvidia", capability="8.9")], "cu",
         "https://download.pytorch.org/whl/cu"),
        ([Gpu("intel", integrated=True), Gpu("amd", gfx="gfx1100", index=0)], "rocm", "amd.com"),
    ],
)  # fmt: skip
@pytest.mark.skipif(sys.platform != "linux", reason="what Linux gets")
def test_platforms(gpus: list[Gpu], name: str, index: str) -> None:
    platform = rocm_wheels.get_platform(gpus)
    assert str(platform).startswith(name) and index in platform.index and platform.reason


def test_errors_are_the_commands_own(tmp_path: Path) -> None:
    with pytest.raises(errors.RocmWheelsError):
        rocm_wheels.choose(["torch"], index=str(tmp_path / "nowhere"), gfx=["gfx942"], rocm="7.2")
    with pytest.raises(errors.UsageError, match="did you mean math"):
        rocm_wheels.test(["maths"])


def test_a_device_is_one_that_torch_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.HostError, match="torch cannot be imported"):
        rocm_wheels.get_device()
    fake = ModuleType("torch")
    fake.cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)  # type: ignore[attr-defined]
    fake.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False))  # type: ignore[attr-defined]
    fake.device = lambda kind, index: f"{kind}:{index}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", fake)
    devices: dict[int | str, str] = {0: "cuda:0", 1: "cuda:1", "cuda:1": "cuda:1"}
    devices |= {"cuda": "cuda:0", "cpu": "cpu:0"}
    assert {name: rocm_wheels.get_device(name) for name in devices} == devices
    for wrong in (2, -1, "xpu:0", "cuda:x", "vulkan"):
        with pytest.raises(errors.UsageError, match="torch sees no device"):
            rocm_wheels.get_device(wrong)
    fake.cuda.is_available = lambda: False  # type: ignore[attr-defined]
    assert rocm_wheels.get_device(0) == "cpu:0"
