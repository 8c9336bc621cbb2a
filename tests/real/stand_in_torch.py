"""Make a stand-in for a torch for ROCm: a torch for processors as a wheel that says it is for HIP.

What is compiled against torch can be built with it where no torch for ROCm is to be had, and nothing of that
computes on a GPU: its ``libtorch_hip.so`` holds one kernel that does nothing, its ``libc10_hip.so`` nothing.

    python3 stand_in_torch.py --rocm 7.2.4 --prefix /opt/rocm --gfx gfx90a,gfx1030 --output-dir dist

It runs where Debian's python3-torch, libtorch-dev and patchelf are (``real_root.py``). With ``--torch WHEEL``
(``torch-2.13.0+cpu-…``) that wheel is taken in place of Debian's packages.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

PACKAGES = Path("/usr/lib/python3/dist-packages")
CMAKE = Path("/usr/lib/x86_64-linux-gnu/cmake")
KERNEL = "#include <hip/hip_runtime.h>\n__global__ void does_nothing() {}\n"

START = """\
def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amdhip64"], check_version="{rocm}")
"""


def make_wheel(rocm: str, prefix: Path, targets: list[str], output: Path, given: Path | None) -> Path:
    """Make the wheel, of a ``given`` one or of Debian's torch for the running Python, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        if given is None:
            info, python = copy_debians(top), f"cp3{sys.version_info.minor}"
            tag = f"{python}-{python}-linux_x86_64"
        else:
            with zipfile.ZipFile(given) as archive:
                archive.extractall(top)
            (info,) = top.glob("torch-*.dist-info")
            tag = given.stem.split("-", 2)[2]
        metadata = (info / "METADATA").read_text(encoding="utf-8")
        version = f"{HeaderParser().parsestr(metadata)['Version'].partition('+')[0]}+rocm{rocm}"
        if given is not None:
            shutil.rmtree(info)
        say_hip(top / "torch", version, rocm)
        hipify_headers(top / "torch")
        compile_libraries(top / "torch/lib", prefix, targets)
        if given is None:
            name_libraries(top / "torch")
        new = top / f"torch-{version}.dist-info"
        new.mkdir()
        metadata = re.sub(r"(?m)^Version: .*", f"Version: {version}", metadata, count=1)
        required = f"Requires-Dist: rocm[libraries]=={rocm}\n"
        metadata = metadata.replace("Requires-Dist:", f"{required}Requires-Dist:", 1)
        (new / "METADATA").write_text(metadata, encoding="utf-8")
        text = f"Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: false\nTag: {tag}\n"
        (new / "WHEEL").write_text(text, encoding="utf-8")
        files = sorted(path for path in top.rglob("*") if path.is_file())
        record = new / "RECORD"
        rows = [describe_file(path, top) for path in files]
        rows.append(f"{record.relative_to(top).as_posix()},,")
        record.write_text("\n".join(rows) + "\n", encoding="utf-8")
        wheel = output / f"torch-{version}-{tag}.whl"
        output.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path in [*files, record]:
                archive.write(path, path.relative_to(top).as_posix())
    return wheel


def copy_debians(top: Path) -> Path:
    """Copy what Debian's packages have of torch to where a wheel has it; returns its dist-info."""
    (info,) = PACKAGES.glob("torch-*.dist-info")
    left_out = shutil.ignore_patterns("__pycache__", "bin", "test")
    shutil.copytree(PACKAGES / "torch", top / "torch", ignore=left_out)  # links are what they lead to
    shutil.copytree(PACKAGES / "torchgen", top / "torchgen", ignore=left_out)
    shutil.copytree(PACKAGES / "functorch", top / "functorch", ignore=left_out)
    (top / "torch/bin").mkdir()  # its other programs are tests
    shutil.copy2(PACKAGES / "torch/bin/torch_shm_manager", top / "torch/bin")
    for name in ("Torch", "Caffe2", "ATen"):
        if (CMAKE / name).is_dir():
            shutil.copytree(CMAKE / name, top / "torch/share/cmake" / name)
    for file in (top / "torch/share/cmake").rglob("*.cmake"):  # they count from /usr/lib/x86_64-linux-gnu
        text = re.sub(r"/x86_64-linux-gnu/(lib\w+\.so)[\d.]*", r"/lib/\1", file.read_text(encoding="utf-8"))
        text = text.replace("_IMPORT_PREFIX}/../", "_IMPORT_PREFIX}/")
        text = text.replace("CMAKE_CURRENT_LIST_DIR}/../../../../", "CMAKE_CURRENT_LIST_DIR}/../../../")
        file.write_text(text, encoding="utf-8")
    return info


def describe_file(path: Path, top: Path) -> str:
    """Return the row of RECORD of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return f"{path.relative_to(top).as_posix()},sha256={text},{path.stat().st_size}"


def say_hip(package: Path, version: str, rocm: str) -> None:
    """Write what a build for ROCm has in version.py, and what starts ROCm's packages."""
    file = package / "version.py"
    text = re.sub(r"(?m)^__version__ = .*", f"__version__ = '{version}'", file.read_text(encoding="utf-8"))
    text = re.sub(r"(?m)^(hip|rocm): Optional\[str\] = None", rf"\1: Optional[str] = '{rocm}'", text)
    file.write_text(text, encoding="utf-8")
    (package / "_rocm_init.py").write_text(START.format(rocm=rocm), encoding="utf-8")
    file = package / "utils/cpp_extension.py"
    text = file.read_text(encoding="utf-8").replace("torch.cuda._is_compiled()", "True")
    file.write_text(text, encoding="utf-8")
    file = package / "__init__.py"
    begin = "from . import _rocm_init\n_rocm_init.initialize()\nimport "
    text = re.sub(r"(?m)^import ", begin, file.read_text(encoding="utf-8"), count=1)
    file.write_text(text, encoding="utf-8")


def hipify_headers(package: Path) -> None:
    """Write c10/hip and ATen/hip, which a build for ROCm makes of the headers for CUDA."""
    sys.path.insert(0, str(package / "utils"))
    from hipify import hipify_python

    include = package / "include"
    hipify_python.hipify(
        project_directory=str(include),
        output_directory=str(include),
        header_include_dirs=[str(include)],
        includes=[str(include / "c10/cuda/*"), str(include / "ATen/cuda/*")],
        extensions=(".h", ".cuh"),
    )
    macros = include / "c10/hip/impl/hip_cmake_macros.h"  # which CMake makes
    macros.write_text("#pragma once\n#define C10_HIP_BUILD_SHARED_LIBS\n", encoding="utf-8")


def compile_libraries(folder: Path, prefix: Path, targets: list[str]) -> None:
    """Compile the two libraries that only a torch for ROCm has."""
    # Debian's clang looks for its own libraries where Debian has them
    clang = f"LD_LIBRARY_PATH={prefix}/lib/llvm/lib", f"{prefix}/lib/llvm/bin/clang++"
    words = [f"--rocm-path={prefix}", "-fPIC", "-shared", "-O1", *(f"--offload-arch={t}" for t in targets)]
    bitcode = f"--rocm-device-lib-path={prefix}/lib/llvm/amdgcn/bitcode"
    source = folder / "kernel.hip"
    source.write_text(KERNEL, encoding="utf-8")
    run(["env", *clang, "-x", "hip", *words, bitcode, str(source), "-o", str(folder / "libtorch_hip.so"),
         f"-L{prefix}/lib", "-lamdhip64", "-Wl,--allow-shlib-undefined"])  # fmt: skip
    source.write_text("", encoding="utf-8")
    run(["env", *clang, "-x", "c++", "-shared", "-fPIC", str(source), "-o", str(folder / "libc10_hip.so")])
    source.unlink()


def name_libraries(package: Path) -> None:
    """Call libraries as wheels do (libtorch.so, not libtorch.so.2.14), and let them find each other."""
    libraries = sorted((package / "lib").glob("lib*.so"))
    renamed = []
    for library in libraries:
        asked = ["patchelf", "--print-soname", str(library)]
        old = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        renamed += ["--replace-needed", old, library.name] if old and old != library.name else []
    for library in libraries:
        run(["patchelf", "--set-soname", library.name, *renamed, "--set-rpath", "$ORIGIN", str(library)])
    for module in package.glob("_C*.so"):
        run(["patchelf", *renamed, "--set-rpath", "$ORIGIN/lib", str(module)])


def run(command: list[str]) -> None:
    """Run a command whose failure ends the script."""
    subprocess.run(command, check=True)


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rocm", required=True, help="version that the wheel says it was built with")
    parser.add_argument("--prefix", type=Path, required=True, help="that ROCm, laid out as /opt/rocm")
    parser.add_argument("--gfx", required=True, help="targets, by commas")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--torch", type=Path, help="a wheel of torch for processors, in place of Debian's")
    words = parser.parse_args()
    print(make_wheel(words.rocm, words.prefix, words.gfx.split(","), words.output_dir, words.torch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
