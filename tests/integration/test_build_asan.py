"""A set with AddressSanitizer, built of the miniature with the compiler that is here, and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import miniature
import pytest
from finished_demo import Demo

from rocm_wheels.binaries import asan
from rocm_wheels.core import errors, installation
from rocm_wheels.models import versions
from rocm_wheels.testing import installed_torch
from rocm_wheels.wheels import dist_info, scan

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the demo's wheels are of this system"),
]


def find_runtime() -> Path | None:
    """Return the runtime of the compiler that builds here; None where that lacks one."""
    words = ["c++", "-print-file-name=libasan.so"]
    answer = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return Path(answer) if Path(answer).is_absolute() else None


@pytest.fixture(scope="module")
def demo(released_demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Sources of a demo and its plain wheels, to be built elsewhere; another worker may be changing it."""
    if find_runtime() is None:
        pytest.skip("this compiler has no runtime of AddressSanitizer (Debian: libasan8)")
    folder, made = tmp_path_factory.mktemp("asan"), released_demo.folder
    (folder / "wheels").mkdir()
    for wheel in (made / "releases" / "store").rglob("*.whl"):
        shutil.copy(wheel, folder / "wheels")
    for name in ("sources.lock.json", "rocm-packages"):
        (folder / name).symlink_to(made / name)
    demo = Demo(folder, released_demo.env)
    words = ("--lock", folder / "sources.lock.json", "--source-dir", folder / "sources")
    demo.ours("checkout", "torch", "triton", "torchaudio", *words, code=0)
    return demo


@pytest.fixture(scope="module")
def built(demo: Demo) -> dict[str, Path]:
    """The wheels of a build with ``--packaging asan``, by project: of a torch whose loop goes one too far."""
    source = demo.torch / "aten/src/ATen/native/cpu/Activation.cpp"
    text = source.read_text()
    source.write_text(text.replace("i < x.size", "i <= x.size"))
    ended = demo.build(*packaging(demo), "--json", output="asan")
    assert ended.code == 0, ended.err
    return {row["project"]: demo.folder / "asan" / row["wheel"] for row in json.loads(ended.out)}


def packaging(demo: Demo) -> list[str]:
    extras = ",".join(f"device-{target}" for target in miniature.TARGETS)
    rocm = ["--install-rocm", "--rocm-extras", extras]
    return ["--packaging", "asan", *rocm, "--find-links", str(demo.folder / "rocm-packages" / "dist")]


def test_a_compiler_that_is_neither_is_refused(demo: Demo) -> None:
    ended = demo.build(*packaging(demo), output="asan", CXX="/bin/echo")
    assert ended.code == 12 and "are not both gcc, or both clang" in ended.err, ended.err
    with pytest.raises(errors.HostError, match=r"CXX='c\+\+ is no command: No closing"):
        asan.add_build_variables({"CXX": "'c++"}, imports=False)


def test_each_wheel_says_so_and_was_imported_with_the_runtime(demo: Demo, built: dict[str, Path]) -> None:
    for project, wheel in built.items():
        version = str(dist_info.parse_wheel_name(wheel.name).version)
        suffix = f"rocm{miniature.ROCM_VERSION.replace('+', '.')}.asan"
        assert f"{suffix}.gfx" in version if project == "pytorch" else version.endswith(suffix), version
        assert asan.list_runtimes(scan.scan_wheel(wheel).binaries.values()), project
    metadata = scan.scan_wheel(built["pytorch_audio"]).metadata
    assert metadata is not None and any(".asan" in line for line in metadata.requires_dist), "pins torch"
    again = demo.build(*packaging(demo), output="asan")
    assert again.code == 0 and "build-pytorch" not in again.err, again.err


def test_it_runs_with_the_runtime_alone_and_finds_what_is_wrong(
    demo: Demo, built: dict[str, Path], tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    demo.start(installation.find_uv(), "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    rocm = demo.folder / "rocm-packages" / "dist"
    words = [installation.find_uv(), "pip", "install", "--quiet", "--python", python, "--find-links", rocm]
    demo.start(*words, built["pytorch"], built["triton"])
    script = "import torch; print(torch.__version__)"
    alone = demo.start(python, "-c", script, code=None)
    assert alone.code != 0 and "ASan runtime does not come first" in alone.err, alone.err
    looked = demo.ours("doctor", "--python", environment)
    assert "whose runtime is not preloaded" in looked.out + looked.err
    env = dict(demo.env)
    target = installed_torch.inspect_target_python(python, env, device="cpu")
    assert versions.is_asan_version(target.version) and "libasan" in env["LD_PRELOAD"], target.ended
    assert demo.start(python, "-c", script, **env).out.strip() == target.version
    found = demo.start(python, "-c", "import torch; torch.relu_cpu([1.0, -1.0])", code=None, **env)
    assert found.code != 0 and "AddressSanitizer: heap-buffer-overflow" in found.err, found.err
    assert "at::relu_cpu" in found.err, found.err


def test_plain_wheels_are_never_beside_it(demo: Demo, built: dict[str, Path], tmp_path: Path) -> None:
    plain = demo.wheels()["torchaudio"]
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for wheel in (built["pytorch"], built["triton"], plain):
        shutil.copy(wheel, mixed)
    audited = demo.ours("audit", "--set", mixed, code=14)
    assert "RW095" in audited.out and "has no AddressSanitizer" in audited.out
    assert "RW094" not in demo.ours("audit", "--set", demo.folder / "asan").out
    index = tmp_path / "index"
    demo.ours("index", "build", index, demo.wheels()["torch"], code=0)
    refused = demo.ours("index", "build", index, built["pytorch"], code=2)
    assert "has AddressSanitizer" in refused.err and "an index of their own" in refused.err
    kind = ("--family", "multi-arch", "--layout", "multi-arch", "--lock", demo.folder / "sources.lock.json")
    staged = demo.ours("set", "stage", tmp_path / "store", *mixed.glob("*.whl"), *kind, code=15)
    assert "it has AddressSanitizer" in staged.err and not (tmp_path / "store").exists()


def test_a_variant_of_it_is_for_those_who_ask(demo: Demo, built: dict[str, Path], tmp_path: Path) -> None:
    """Its version stays another one, so that it is no variant of the plain release."""
    variants, index = tmp_path / "variants", tmp_path / "index"
    words = ["wheel", "stamp", built["pytorch"], "-o", variants]
    refused = demo.ours(*words, code=2)
    assert "--provider own" in refused.err and not variants.exists()
    demo.ours(*words, "--provider", "own", code=0)
    (stamped,) = variants.glob("*.whl")
    assert "+asan-" in stamped.name and stamped.name.endswith("_asan.whl")
    demo.ours("index", "build", index, stamped, code=0)
    gpu = {"ROCM_VARIANT_PROVIDER_FORCE_GFX_ARCH": miniature.TARGETS[0]}
    choose = ("choose", "torch", "--index", index)
    assert "has AddressSanitizer: taken where" in demo.ours(*choose, code=17, **gpu).err
    asked = demo.ours(*choose, code=0, **gpu, ROCM_VARIANT_PROVIDER_SANITIZER="address")
    assert stamped.name in asked.out
    wrong = demo.ours(*choose, code=2, **gpu, ROCM_VARIANT_PROVIDER_SANITIZER="thread")
    assert "ROCM_VARIANT_PROVIDER_SANITIZER='thread'" in wrong.err, wrong.err


def test_nothing_plain_is_built_against_it(demo: Demo, built: dict[str, Path]) -> None:
    words = ["--source-dir", demo.folder / "sources", "--output-dir", demo.folder / "plain"]
    words += ["--gfx", "gfx942", "--rocm", f"=={miniature.ROCM_VERSION}"]
    ended = demo.ours("build", "pytorch_audio", "--pytorch-wheel", built["pytorch"], *words, code=2)
    assert "compiled with AddressSanitizer, unlike this run" in ended.err, ended.err
