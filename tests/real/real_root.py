"""A root of Debian unstable with a C++ compiler, PyTorch's system libraries, and ROCm laid out as AMD does.

Made once in a work folder (``root/`` and ``inside/opt-rocm/``, 10 GB) and kept. It takes root rights,
mmdebstrap and the Debian archive. ROCm is installed there, laid out as ``opt-rocm`` by ``lay_out_rocm.py``,
and removed from the root again, so that a build finds ROCm in its Python packages or nowhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lay_out_rocm

BASE = (
    "python3", "python3-dev", "python3-venv", "ca-certificates", "git", "g++", "cmake", "ninja-build",
    "patch", "patchelf", "pkgconf", "dpkg-dev", "xz-utils",
)  # fmt: skip
ROCM = (
    "hipcc", "rocminfo", "rocm-smi", "rocm-cmake", "libamdhip64-dev", "libhsa-runtime-dev",
    "libamd-comgr-dev", "librocm-smi-dev", "libroctx-dev", "librocblas-dev", "libhipblas-dev",
    "libhipblaslt-dev", "libmiopen-dev", "librocrand-dev", "libhiprand-dev", "librocfft-dev",
    "libhipfft-dev", "librocsparse-dev",
    "libhipsparse-dev", "librocsolver-dev", "libhipsolver-dev", "librocprim-dev", "libhipcub-dev",
    "librocthrust-dev",
)  # fmt: skip
TORCH_LIBRARIES = (  # what a build with USE_SYSTEM_LIBS takes; after debian/control of Debian's pytorch 2.6.0
    "libblas-dev", "liblapack-dev", "libcpuinfo-dev", "libcpp-httplib-dev", "libeigen3-dev", "libfmt-dev",
    "libfp16-dev", "libflatbuffers-dev", "flatbuffers-compiler-dev", "libfxdiv-dev", "libnuma-dev",
    "libonnx-dev", "libprotobuf-dev", "libprotoc-dev", "protobuf-compiler", "libpsimd-dev",
    "libpthreadpool-dev", "libsleef-dev", "libsnappy-dev", "libzstd-dev", "nlohmann-json3-dev",
    "pybind11-dev", "libgemmlowp-dev", "libconcurrentqueue-dev", "libxnnpack-dev",
)  # fmt: skip
SOURCES = ("trixie", "pytorch", "2.6.0+dfsg-7")
"""Suite, source package and version of the PyTorch that is built."""


def missing_for_root() -> str | None:
    """Say why no root can be made here; ``None`` when one can."""
    if os.geteuid() != 0:
        return "a root of Debian takes root"
    return None if shutil.which("mmdebstrap") else "there is no mmdebstrap: apt-get install mmdebstrap"


def make_root(work: Path) -> Path:
    """Make ``root`` and ``inside/opt-rocm`` in a work folder, unless they are there; returns the root."""
    root, rocm = work / "root", work / "inside/opt-rocm"
    if not (root / "etc/debian_version").exists():
        part = work / "root.part"
        shutil.rmtree(part, ignore_errors=True)
        lagging = 'Acquire::Check-Valid-Until "false"'  # mirrors may be some weeks behind
        words = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(BASE)}"]
        words.append(f"--aptopt={lagging}")
        run([*words, "unstable", str(part)])
        part.rename(root)
    if not rocm.exists():
        with mounted(root, {}):
            run_inside(root, "apt-get update")
            run_inside(root, install_line(ROCM))
            part = rocm.with_name("opt-rocm.part")
            shutil.rmtree(part, ignore_errors=True)
            lay_out_rocm.lay_out(root, part)
            run_inside(root, f"dpkg --purge --force-depends {' '.join(lay_out_rocm.list_packages(root))}")
            run_inside(root, install_line(TORCH_LIBRARIES))
            part.rename(rocm)
    return root


def make_sources(root: Path, folder: Path) -> Path:
    """Make a git repository of PyTorch's sources as Debian patches them; returns it."""
    repository = folder / "upstream"
    if repository.exists():
        return repository
    suite, package, version = SOURCES
    listed = (root / "etc/apt/sources.list").read_text().split()
    mirror = next(word for word in listed if "://" in word)
    sources = root / "etc/apt/sources.list.d/pytorch.list"
    sources.write_text(f"deb-src {mirror} {suite} main\n")
    shutil.rmtree(root / "tmp/pytorch", ignore_errors=True)
    (root / "tmp/pytorch").mkdir()
    with mounted(root, {}):
        run_inside(root, "apt-get update")
        run_inside(root, f"cd /tmp/pytorch && apt-get source -q {package}={version}")
    tree = next(path for path in (root / "tmp/pytorch").iterdir() if path.is_dir())
    for name in ("kineto", "pocketfft"):  # its CMake files look there; Debian has links
        link = tree / "debian" / name
        real = link.resolve()
        link.unlink()
        real.rename(link)
    for name in ("debian/patches", ".pc"):
        shutil.rmtree(tree / name)
    commit_tree(tree, "release/2.6", f"PyTorch {version} as Debian patches it")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.move(tree, repository)
    return repository


LIGHTGBM = "lightgbm==4.7.0 --hash=sha256:f8e20f682c9aabd000bcf4a7ed8aa6f473c1adfecccae34ec24e823d156f4af0\n"
"""The sdist that is built, as a line of requirements: pip finds it in the index that it is set to."""


def make_lightgbm(sdist: Path, folder: Path) -> Path:
    """Make a git repository of LightGBM's sdist; returns it."""
    tree, part = folder / "lightgbm", folder / "lightgbm.part"
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(part, filter="data")
    (unpacked,) = part.iterdir()
    commit_tree(unpacked, "main", "LightGBM 4.7.0")
    unpacked.rename(tree)
    part.rmdir()
    return tree


def commit_tree(tree: Path, branch: str, message: str) -> None:
    """Make a git repository of all files of a folder."""
    git = ["git", "-C", str(tree), "-c", "user.name=Debian", "-c", "user.email=debian@example.invalid"]
    run([*git, "init", "-q", "-b", branch])
    run([*git, "add", "-A", "-f"])
    run([*git, "commit", "-q", "-m", message])


def install_line(packages: Sequence[str]) -> str:
    """Return the shell line that installs Debian packages."""
    return f"apt-get install -y -q --no-install-recommends {' '.join(packages)} && apt-get clean"


@contextmanager
def mounted(root: Path, folders: dict[Path, str]) -> Iterator[None]:
    """Mount proc, dev and more folders (folder → place in the root) for a while."""
    with ExitStack() as stack:
        for source, place in {Path("/proc"): "proc", Path("/dev"): "dev", **folders}.items():
            target = root / place.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            run(["mount", "--bind", str(source), str(target)])
            stack.callback(run, ["umount", "--lazy", str(target)])
        for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):  # this machine's network
            shutil.copyfile(f"/{name}", root / name)
        yield


def run_inside(root: Path, line: str, home: Path = Path("/root")) -> str:
    """Run a shell line in the root and return what it prints; RuntimeError with its last lines."""
    env = {
        "HOME": str(home), "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    }  # fmt: skip
    return run(["chroot", str(root), "bash", "-ec", line], env=env)


def run(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; its last lines are shown when it fails."""
    ended = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        lines = "\n".join(ended.stdout.splitlines()[-40:])
        raise RuntimeError(f"{' '.join(command)} failed with exit code {ended.returncode}:\n{lines}")
    return ended.stdout
