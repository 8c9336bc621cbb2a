"""The chain on a real ROCm and the real PyTorch: Debian's ROCm as Python packages, torch 2.6.0 for gfx1100.

By hand, and as root: ``python -m pytest tests/real -m real``. Everything is made once below
``ROCM_WHEELS_REAL_WORK`` (default: ``~/.cache/rocm-wheels-real``; about 30 GB) and taken up again. What
runs is the commit of this clone. ``README.md`` beside this file says what was seen.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import real_root

pytestmark = pytest.mark.real
CLONE = Path(__file__).resolve().parents[2]
WORK = Path(os.environ.get("ROCM_WHEELS_REAL_WORK", "~/.cache/rocm-wheels-real")).expanduser()
TARGETS = ("gfx1100", "gfx90a", "gfx1030")
TARGET = TARGETS[0]
KERNELS = ("ActivationGeluKernel", "FillKernel", "UnaryOpsKernel")
INSIDE = WORK / "inside"  # what the root sees; one mount, so that installers can link files from their cache

# Debian's sources come without third_party: its libraries are taken. What two cores have no time for is off.
SETTINGS = {
    "USE_SYSTEM_LIBS": "ON", "ONNX_NAMESPACE": "onnx", "BLAS": "Generic", "GENERIC_BLAS_LIBRARIES": "blas",
    **dict.fromkeys(
        ("USE_DISTRIBUTED", "USE_NCCL", "USE_RCCL", "USE_MKLDNN", "USE_XNNPACK", "USE_FBGEMM", "USE_KINETO",
         "USE_PYTORCH_QNNPACK", "USE_NNPACK", "USE_FLASH_ATTENTION", "USE_MEM_EFF_ATTENTION", "USE_VULKAN",
         "USE_ITT", "USE_NUMA", "USE_GLOO", "USE_TENSORPIPE"), "OFF"),
    "PYTORCH_VERSION": "2.6.0",
}  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """The root with the clone in it; commands run there as a user types them."""

    root: Path

    def run(self, line: str, env: str = "") -> str:
        """Run a shell line in the clone, inside the root; its output."""
        begin = time.monotonic()
        try:
            return real_root.run_inside(self.root, f"cd {INSIDE}/tool; {env} {line}", home=INSIDE / "home")
        finally:
            sys.stderr.write(f"{time.monotonic() - begin:7.1f} s  {line[:110]}\n")

    def build_words(self) -> str:
        """Return the words of ``build`` and ``plan``, but for where the wheels go."""
        settings = " ".join(f"--set-env pytorch:{name}={value}" for name, value in SETTINGS.items())
        return (
            f"pytorch --source-dir {INSIDE}/src --work-dir {INSIDE}/work --install-rocm"
            f" --find-links {INSIDE}/sdk/dist --gfx {TARGET} {settings}"
        )

    @property
    def tree(self) -> Path:
        """The source tree of torch."""
        return INSIDE / "src/pytorch"


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    if reason := real_root.missing_for_root():
        pytest.skip(reason)
    for name in ("home", "work", "sdk"):
        (INSIDE / name).mkdir(parents=True, exist_ok=True)
    root = real_root.make_root(WORK)
    real_root.make_sources(root, INSIDE / "src")
    with real_root.mounted(root, {INSIDE: str(INSIDE)}):
        take_commit(INSIDE / "tool")
        chain = Chain(root)
        chain.run("python3 build_tools/quickstart.py setup")
        yield chain


def take_commit(tool: Path) -> None:
    """Give the root a clone of its own: its Python makes its own environment there."""
    if not (tool / ".git").exists():
        real_root.run(["git", "init", "-q", str(tool)])
    real_root.run(["git", "-C", str(tool), "fetch", "-q", str(CLONE), "HEAD"])
    real_root.run(["git", "-C", str(tool), "checkout", "-q", "--force", "FETCH_HEAD"])


@pytest.fixture(scope="module")
def sdk(chain: Chain) -> Path:
    """Make ROCm's Python packages from the installed ROCm."""
    dist = INSIDE / "sdk/dist"
    if not dist.exists():
        words = f"--from-prefix {INSIDE}/opt-rocm --output-dir {INSIDE}/sdk --gfx {','.join(TARGETS)}"
        chain.run(f"python3 build_tools/build_python_packages.py {words}")
    return dist


@pytest.fixture(scope="module")
def hipified(chain: Chain) -> Path:
    """Check torch out and hipify it."""
    line = f"--origin file://{INSIDE}/src/upstream --ref release/2.6 --source-dir {INSIDE}/src"
    chain.run(f"python3 repos/pytorch_torch_repo.py checkout {line} --patch-dir tests/real/patches")
    return chain.tree


@pytest.fixture(scope="module")
def configured(chain: Chain, sdk: Path, hipified: Path) -> Path:
    """Install ROCm, and run CMake's configure step, by the steps of a plan."""
    door = ".venv/bin/rocm-wheels"
    chain.run(f"{door} plan {chain.build_words()} --output-dir {INSIDE}/work/dist -o {INSIDE}/work/plan.json")
    plan = json.loads((INSIDE / "work/plan.json").read_text())
    for step in plan["steps"]:
        if not step["id"].startswith(("build-", "repair-")):
            chain.run(f"{door} run-step {step['id']} --plan {INSIDE}/work/plan.json")
    return hipified / "build"


def test_packages_hold_the_kernels_of_their_target(sdk: Path) -> None:
    for target in TARGETS:
        (wheel,) = sdk.glob(f"rocm_sdk_device_{target}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if "/library/" in name]
        assert len(names) > 50
        assert all(re.search(rf"{target}(?![0-9a-f])", name) for name in names)


def test_hipify_again_changes_nothing(chain: Chain, hipified: Path) -> None:
    head = (hipified / ".git/HEAD").read_text()
    before = real_root.run(["git", "-C", str(hipified), "rev-parse", "HEAD"])
    chain.run(f"python3 repos/pytorch_torch_repo.py hipify --source-dir {INSIDE}/src")
    assert (hipified / ".git/HEAD").read_text() == head
    assert real_root.run(["git", "-C", str(hipified), "rev-parse", "HEAD"]) == before


def test_configures_with_rocm(configured: Path) -> None:
    cache = (configured / "CMakeCache.txt").read_text()
    assert re.search(r"^USE_ROCM:\w+=(ON|1|TRUE)$", cache, re.MULTILINE)
    assert (configured / "build.ninja").is_file()


def test_c10_hip_and_kernels_for_three_targets(chain: Chain, configured: Path) -> None:
    (environment,) = (INSIDE / "work/environments").glob("py*")
    python = environment / "tools/pytorch/bin/python"  # a link to one of the root
    rocm = chain.run(f"{python} -m rocm_sdk path --root").strip().splitlines()[-1]
    bitcode = f"{rocm}/lib/llvm/amdgcn/bitcode"
    path = f"{python.parent}:{environment}/bin:$PATH"
    env = f"export ROCM_PATH={rocm} HIP_DEVICE_LIB_PATH={bitcode} PATH={path};"
    chain.run(f"ninja -C {configured} c10 c10_hip generate-torch-sources ATEN_CPU_FILES_GEN_TARGET", env)
    assert (configured / "lib/libc10_hip.so").is_file()
    scripts = configured / "caffe2/CMakeFiles/torch_hip.dir/__/aten/src/ATen/native/hip"
    architectures = "".join(f"--offload-arch={target} " for target in TARGETS)
    for kernel in KERNELS:
        script = (scripts / f"torch_hip_generated_{kernel}.hip.o.cmake").read_text()
        own = INSIDE / "work" / f"{kernel}.cmake"
        own.write_text(script.replace(f"--offload-arch={TARGET}", architectures.strip().replace(" ", ";")))
        made = INSIDE / "work" / f"{kernel}.o"
        words = f"-D build_configuration:STRING=RELEASE -D generated_file:STRING={made}"
        chain.run(f"cd {scripts} && cmake {words} -P {own}", env)
        listed = json.loads(chain.run(f".venv/bin/rocm-wheels targets --json {made}"))
        assert all(target in json.dumps(listed) for target in TARGETS)


@pytest.mark.parametrize("name", ["bitsandbytes", "lightgbm"])
def test_a_project_by_a_recipe_of_its_own(chain: Chain, sdk: Path, name: str) -> None:
    output = INSIDE / "wheels" / name
    if name == "lightgbm":
        if not (INSIDE / "src/lightgbm").exists():
            (INSIDE / "lightgbm.txt").write_text(real_root.LIGHTGBM)
            words = "--no-deps --no-binary lightgbm --require-hashes -r"
            chain.run(f".venv/bin/python -m pip download -q {words} {INSIDE}/lightgbm.txt -d {INSIDE}")
            (sdist,) = INSIDE.glob("lightgbm-*.tar.gz")
            real_root.make_lightgbm(sdist, INSIDE / "src")
    else:
        chain.run(f".venv/bin/rocm-wheels checkout {name} --source-dir {INSIDE}/src")
    words = f"--work-dir {INSIDE}/work --install-rocm --find-links {sdk} --gfx {','.join(TARGETS[:2])}"
    words += f" --source-dir {INSIDE}/src --output-dir {output}"
    chain.run(f".venv/bin/rocm-wheels build {name} {words}")
    (wheel,) = output.glob(f"{name}-*+rocm*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        assert "Requires-Dist: rocm[libraries]==" in archive.read(metadata).decode()
    listed = chain.run(f".venv/bin/rocm-wheels targets --json {wheel}")
    assert all(target in listed for target in TARGETS[:2])


def test_targets_of_the_real_libraries(chain: Chain) -> None:
    libraries = " ".join(f"{INSIDE}/opt-rocm/lib/{name}" for name in ("librocrand.so.1", "librocfft.so.0"))
    listed = chain.run(f".venv/bin/rocm-wheels targets {libraries}")
    assert "gfx90a" in listed
    assert "gfx1100" in listed
