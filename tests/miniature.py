"""Makes the miniature: git repositories and a small ROCm from ``tests/miniature``, and PyTorch's own hipify.

The tests and ``build_tools/demo.py`` begin with it. What is made from something is made once: whole or not at
all, and not again from the same input.

The repositories can be cloned over ``file://``. Author, dates, modes and line ends are fixed: the same
input gives the same commits on any machine and any day. (PyTorch's ``related_commits`` names the other
repositories by URL, so its commit also depends on the folder that they are in.)

hipify is PyTorch's, so it is not copied into this repository: its five modules and PyTorch's licence are
read from a published torch wheel on the package index, by range requests (2 MB of a file of 80 to 900
MB), and checked against the digests below.

ROCm is as a TheRock build leaves it in ``build/artifacts``:
``<name>_<component>_<family>/artifact_manifest.txt`` lists places in the build tree, one a line; each is a
folder beside it that holds files as they are installed. Sources and the rules for them:
``tests/miniature/rocm/README.md``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rocm_wheels.binaries import elf
from rocm_wheels.core import errors, files, process, shell
from rocm_wheels.device_code import code_objects, kpack
from rocm_wheels.index import reader

SOURCE = Path(__file__).with_name("miniature")
# what the demo makes of it
ROCM_VERSION = "7.1.0+miniature"
EARLIER_ROCM_VERSION = "7.0.2+miniature"
TARGETS = ("gfx942", "gfx1100")

MARK_NAME = ".made-from"  # in what was made here, with the fingerprint of what it was made from


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by their relative path. What Python left there is left out."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def fingerprint_folders(folders: Iterable[Path], *facts: str) -> str:
    """Return a sha256 (hex) over names and contents of all files of ``folders`` and over ``facts``."""
    total = hashlib.sha256(repr(facts).encode())
    for folder in folders:
        for path in list_files(folder):
            total.update(f"{path.relative_to(folder).as_posix()}\0{files.hash_file(path)}\n".encode())
    return total.hexdigest()


def mark_folder(folder: Path, source: str) -> None:
    """Say that a folder is whole, and made from the fingerprint ``source``."""
    (folder / MARK_NAME).write_text(f"{source}\n", encoding="utf-8")


def read_mark(folder: Path) -> str | None:
    """Return the fingerprint that a folder was made from, ``None`` when it was not made here."""
    mark = folder / MARK_NAME
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else None


def make_folder(folder: Path, source: str, fill: Callable[[Path], object]) -> None:
    """Make ``folder`` by ``fill(beside)``, unless it was made from the fingerprint ``source`` already.

    ``fill`` gets an empty folder beside the final one, which takes its place at the end; whatever stops us
    leaves the old one. Raises DataError rather than replace a folder with files that was not made here.
    """
    if read_mark(folder) == source:
        return
    if read_mark(folder) is None and folder.is_dir() and any(folder.iterdir()):
        raise errors.DataError(
            f"{folder} holds files that were not made here", tip="move them away, or give another folder"
        )
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        fill(beside)
        mark_folder(beside, source)
        files.replace_folder(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


HIPIFY_VERSION = "2.13.0"
_DEFAULT_INDEX = "https://pypi.org/simple"

# sha256 of the members with "\n" at the end of lines. Read on 2026-11-21 from torch 2.13.0 on
# pypi.org: cp310 and cp311 macosx_14_0_arm64, cp311 manylinux_2_28_x86_64, cp313
# manylinux_2_28_aarch64, cp312 win_amd64 (whose members have "\r\n"), and from the CPU build
# 2.13.0+cpu cp311 manylinux_2_28_x86_64. All are the same.
HIPIFY_DIGESTS = {
    "__init__.py": "2736ff45f82f5c2ae6fd243801f786562d4ddfa6326f19cce66a72c6b9e28602",
    "constants.py": "ad3ddb415a1ded5f85dd173a7e4f62c7d644c19f26b84bdbf3d3af445f5718af",
    "cuda_to_hip_mappings.py": "f70f4ccf0e264ab34d87cd63cbc1f87698f17305b2a3a88f18b0d961c3d837e6",
    "hipify_python.py": "2a14a4c1d81e1dcc3d37483cc36af346a4d518eaff3f5f98469585a355c7a0a6",
    "version.py": "870389b855042adb2088eb7897aa29f6cfa1be2a2f33a4cad6e09db513566381",
    "LICENSE": "bd018feef8825e88181c84eb7e3aa4eafb8f08a20d9fd6ef948569610c4a3e43",
}


def fetch_hipify(cache: Path, *, env: Mapping[str, str]) -> Path:
    """Return a folder with hipify's five modules and ``LICENSE``, below ``cache``.

    Looked for, in this order: there already; a torch wheel in a folder of ``PIP_FIND_LINKS`` or
    ``UV_FIND_LINKS``; the index (``UV_DEFAULT_INDEX``, ``UV_INDEX_URL``, ``PIP_INDEX_URL``, else
    pypi.org). Raises SourceError when it cannot be had, or is not what the digests say.
    """
    local, page = find_local_wheel(env), f"{find_index_url(env)}/torch/"

    def fill(folder: Path) -> None:
        with zipfile.ZipFile(local) if local else _open_published_wheel(page, env) as wheel:
            for name, digest in HIPIFY_DIGESTS.items():
                places = re.compile(rf"torch/utils/hipify/{name}|torch-[^/]+\.dist-info/licenses/{name}")
                content = wheel.read(next(filter(places.fullmatch, wheel.namelist()), name))
                content = content.replace(b"\r\n", b"\n")
                if hashlib.sha256(content).hexdigest() != digest:
                    raise errors.DataError(f"{name} is not the one of torch {HIPIFY_VERSION}")
                (folder / name).write_bytes(content)

    hipify = cache / f"hipify-{HIPIFY_VERSION}"
    try:
        make_folder(hipify, " ".join(HIPIFY_DIGESTS.values()), fill)
    except (errors.RocmWheelsError, KeyError, zipfile.BadZipFile) as cause:
        raise errors.SourceError(
            f"PyTorch's hipify cannot be read from {local or shell.hide_credentials(page)}",
            tip="PIP_INDEX_URL or UV_INDEX_URL names another index; without a network, put a wheel of torch "
            f"{HIPIFY_VERSION} into a folder and name that in PIP_FIND_LINKS",
        ) from cause
    return hipify


@contextmanager
def _open_published_wheel(page: str, env: Mapping[str, str]) -> Iterator[zipfile.ZipFile]:
    for switch in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"):
        if env.get(switch, "").lower() in ("1", "true", "yes", "on", "y", "t"):
            raise errors.SourceError(f"{switch} forbids to ask the index")
    index = reader.IndexReader(timeout=30)
    urls = list_wheel_urls(index.read_page(page, page, project="torch") or ())
    if not urls:
        raise errors.SourceError(f"it has no wheel of torch {HIPIFY_VERSION}")
    with index.open_archive(urls[0], "torch", None) as wheel:
        yield wheel


def find_local_wheel(env: Mapping[str, str]) -> Path | None:
    """Return a torch wheel of our version in a local folder that pip or uv are told to look in."""
    words = [*env.get("PIP_FIND_LINKS", "").split(), *re.split(r"[\s,]+", env.get("UV_FIND_LINKS", ""))]
    for word in filter(None, words):
        folder = Path(unquote(urlsplit(word).path) if word.startswith("file:") else word)
        if wheels := sorted(folder.glob(f"torch-{HIPIFY_VERSION}[-+]*.whl")):
            return wheels[0]
    return None


def find_index_url(env: Mapping[str, str]) -> str:
    """Return the index that pip and uv are told to use, else pypi.org's."""
    candidates = (env.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    return next((url for url in candidates if url), _DEFAULT_INDEX).rstrip("/")


def list_wheel_urls(links: Iterable[reader.IndexLink]) -> list[str]:
    """Return the wheels of our version on an index page, best first.

    Any platform will do, for the members are the same; those for macOS are the smallest files.
    """
    named = ((reader.file_name_of_link(link), link.url) for link in links)
    wheels = [(name, url) for name, url in named if re.match(rf"torch-{HIPIFY_VERSION}-.*\.whl$", name)]
    return [url for name, url in sorted(wheels, key=lambda w: ("macosx" not in w[0], "win" in w[0], w[0]))]


_PERSON = "The miniature <miniature@rocm-wheels.invalid> 1767225600 +0000"  # 2026-01-01
_SOURCES_LAYOUT = 3  # raise it when this module changes what it makes from the same sources
# In the order in which they are made: PyTorch names the commits of all others.
_BRANCHES = {
    "minigemm": "main",
    "triton": "main",
    "audio": "nightly",
    "vision": "nightly",
    "apex": "master",
    "pytorch": "nightly",
}
_RELATED = {"apex": "apex", "vision": "torchvision", "audio": "torchaudio"}
# Links, which cannot lie here: a checkout on Windows may write files instead.
_SOURCE_LINKS = {"apex": {"apex/csrc": "../csrc", "apex/op_builder": "../op_builder"}}
# What a public server allows: to ask for a commit by its name, and for a part of the history.
_SERVED = "[uploadpack]\n\tallowReachableSHA1InWant = true\n\tallowFilter = true\n"


class Repository(NamedTuple):
    """A bare repository: its ``file://`` URL, its one branch, and the full SHA at its tip."""

    url: str
    branch: str
    commit: str


def make_repositories(
    source: Path, dest: Path, *, hipify: Path, env: Mapping[str, str]
) -> dict[str, Repository]:
    """Make ``dest/<name>.git`` for each source tree and return them by name.

    ``source`` is ``tests/miniature``; ``hipify`` the folder of ``fetch_hipify``, which becomes
    ``torch/utils/hipify`` of pytorch. Made whole or not at all, and not again from the same
    input. Raises SourceError when git fails.
    """
    dest = dest.resolve()
    repositories: dict[str, Repository] = {}

    def fill(folder: Path) -> None:
        for name, branch in _BRANCHES.items():
            entries = _read_entries(source / name)
            for path, target in _SOURCE_LINKS.get(name, {}).items():
                entries[path] = ("120000", target.encode())
            if name == "pytorch":
                for path, entry in _read_entries(hipify).items():
                    entries[f"torch/utils/hipify/{path}"] = entry
                rows = (
                    f"ubuntu|pytorch|{project}|{related.branch}|{related.commit}|{related.url}\n"
                    for project, related in ((_RELATED[name], repositories[name]) for name in _RELATED)
                )
                entries["related_commits"] = ("100644", "".join(rows).encode())
                pin = f"{repositories['triton'].commit}\n".encode()
                entries[".ci/docker/ci_commit_pins/triton.txt"] = ("100644", pin)
                entries["third_party/minigemm"] = ("160000", repositories["minigemm"].commit.encode())
            _import_commit(folder / f"{name}.git", branch, entries, env)
            repositories[name] = _read_repository(dest, folder, name)

    trees = [*(source / name for name in _BRANCHES), hipify]
    make_folder(dest, fingerprint_folders(trees, str(_SOURCES_LAYOUT), dest.as_uri()), fill)
    return {name: _read_repository(dest, dest, name) for name in _BRANCHES}


def _read_repository(dest: Path, folder: Path, name: str) -> Repository:
    """Return what is in ``folder`` now and will be in ``dest``."""
    branch = _BRANCHES[name]
    commit = (folder / f"{name}.git/refs/heads" / branch).read_text(encoding="utf-8").strip()
    return Repository(f"{dest.as_uri()}/{name}.git", branch, commit)


def _read_entries(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Return path → git's mode and content of a tree of text files.

    Ends of lines are as on Linux, and scripts can be run, whatever git made of them here.
    """
    entries = {}
    for path in list_files(folder):
        if path != folder / MARK_NAME:
            content = path.read_bytes().replace(b"\r\n", b"\n")
            mode = "100755" if content.startswith(b"#!") else "100644"
            entries[path.relative_to(folder).as_posix()] = (mode, content)
    return entries


def _import_commit(
    folder: Path, branch: str, entries: Mapping[str, tuple[str, bytes]], env: Mapping[str, str]
) -> None:
    """Make a bare repository with one commit. Of a submodule (160000) the content is its commit."""

    def format_block(content: bytes) -> bytes:
        return b"data %d\n%b\n" % (len(content), content)

    head = f"commit refs/heads/{branch}\nauthor {_PERSON}\ncommitter {_PERSON}\n"
    stream = [head.encode(), format_block(f"The small {folder.stem}\n".encode())]
    for path, (mode, content) in sorted(entries.items()):
        if mode == "160000":
            stream.append(f"M {mode} {content.decode()} {path}\n".encode())
        else:
            stream += [f"M {mode} inline {path}\n".encode(), format_block(content)]

    clean = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    init = ["git", "init", "--quiet", "--bare", "--template=", str(folder)]
    load = ["git", "-C", str(folder), "fast-import", "--quiet", "--done"]
    for words, stdin in ((init, None), (load, b"".join([*stream, b"done\n"]))):
        process.capture_output(words, env=clean, stdin=stdin, check=errors.SourceError)
    (folder / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="utf-8")
    with (folder / "config").open("a", encoding="utf-8") as config:
        config.write(_SERVED)


_CODE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_ET_DYN, _PT_LOAD, _READ_AND_RUN = 3, 1, 5
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[.a-z+][\w.+]*)?")
_ARTIFACTS_LAYOUT = 3  # raise it when this module changes what it makes from the same sources


class Library(NamedTuple):
    """A shared library. The name of its one function begins with its own: ``hipblas_get_version``."""

    name: str
    major: int
    artifact: str
    stage: str
    folder: str = "lib"

    @property
    def soname(self) -> str:
        """The name by which programs ask for it."""
        return f"lib{self.name}.so.{self.major}"


_BLAS, _SDK, _TRACER = "math-libs/BLAS", "profiler/rocprofiler-sdk/stage", "profiler/roctracer/stage"
_SYSDEPS = "third-party/sysdeps/linux/liblzma/build/stage"
_RUNTIME = Library("amdhip64", 7, "core-hip", "core/clr/stage")
# All that torch preloads on Linux. The majors are those of ROCm 7; nothing here depends on them.
LIBRARIES = (
    _RUNTIME,
    Library("hiprtc", 7, "core-hip", "core/clr/stage"),
    Library("amd_comgr", 3, "amd-llvm", "compiler/amd-comgr/stage"),
    Library("amd_smi", 26, "core-amdsmi", "core/amdsmi/stage"),
    Library("rocm_smi64", 1, "base", "base/rocm_smi_lib/stage"),
    Library("hipblas", 3, "blas", f"{_BLAS}/hipBLAS/stage"),
    Library("hipblaslt", 1, "blas", f"{_BLAS}/hipBLASLt/stage"),
    Library("hipsparse", 4, "blas", f"{_BLAS}/hipSPARSE/stage"),
    Library("hipsparselt", 0, "blas", f"{_BLAS}/hipSPARSELt/stage"),
    Library("hipsolver", 1, "blas", f"{_BLAS}/hipSOLVER/stage"),
    Library("hipfft", 0, "fft", "math-libs/hipFFT/stage"),
    Library("hiprand", 1, "rand", "math-libs/hipRAND/stage"),
    Library("MIOpen", 1, "miopen", "ml-libs/MIOpen/stage"),
    Library("hipdnn_backend", 0, "hipdnn", "ml-libs/hipDNN/stage"),
    Library("rccl", 1, "rccl", "comm-libs/rccl/stage"),
    Library("hipfile", 0, "hipfile", "storage-libs/hipFile/stage"),
    Library("rocprofiler-sdk", 1, "rocprofiler-sdk", _SDK),
    Library("rocprofiler-sdk-roctx", 1, "rocprofiler-sdk", _SDK),
    Library("roctracer64", 4, "rocprofiler-sdk", _TRACER),
    Library("roctx64", 4, "rocprofiler-sdk", _TRACER),
    Library("rocm-openblas", 0, "host-blas", "third-party/host-blas/stage", "lib/host-math/lib"),
    Library("rocm_sysdeps_liblzma", 5, "sysdeps", _SYSDEPS, "lib/rocm_sysdeps/lib"),
)
_LLVM_BIN = "amd-llvm_run_generic/compiler/amd-llvm/stage/lib/llvm/bin"
_ROCM_LINKS = (
    *((f"{_LLVM_BIN}/{name}", "clang") for name in ("clang++", "amdclang", "amdclang++", "lld", "ld.lld")),
    ("amd-llvm_run_generic/compiler/amd-llvm/stage/llvm", "lib/llvm"),
)


def make_artifacts(
    source: Path, dest: Path, *, version: str, targets: Sequence[str], env: Mapping[str, str]
) -> Path:
    """Lay out the artifacts of ROCm ``version`` for GPU ``targets`` in ``dest`` and return it.

    ``source`` is ``tests/miniature/rocm``. Libraries are compiled by ``$CC`` (default ``cc``) for
    this machine. Made whole or not at all, and not again from the same input. Raises DataError
    for a version without three numbers, SdkError when the compiler fails.
    """
    numbers = _VERSION.fullmatch(version)
    if numbers is None:
        raise errors.DataError(
            f"{version} is not a ROCm version", tip="three numbers and a suffix: 7.1.0, 7.1.0rc1"
        )
    # what stands for each @NAME@ in a file that ends in .in
    words = {
        "ROCM_VERSION": version,
        "HIP_VERSION": ".".join(numbers.groups()),
        "HIP_VERSION_MAJOR": numbers[1],
        "HIP_VERSION_MINOR": numbers[2],
        "HIP_VERSION_PATCH": numbers[3],
        "TARGETS": ";".join(sorted(targets)),
        "HOST_TRIPLE": f"{platform.machine()}-unknown-linux-gnu",
    }

    def fill(folder: Path) -> None:
        for path in list_files(source / "artifacts"):
            relative = path.relative_to(source / "artifacts").as_posix()
            for target in targets if "@TARGET@" in relative else ("",):
                copy = folder / relative.replace("@TARGET@", target).removesuffix(".in")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(_make_content(path, copy, {**words, "TARGET": target}))
                copy.chmod(0o755 if copy.parent.name == "bin" else 0o644)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda library: _compile_library(library, source, folder, words, env), LIBRARIES))
        for link, aim in _ROCM_LINKS:
            (folder / link).symlink_to(aim)
        for artifact in folder.iterdir():
            stages = sorted(path.relative_to(artifact).as_posix() for path in artifact.rglob("stage"))
            manifest = "".join(f"{stage}\n" for stage in stages)
            (artifact / "artifact_manifest.txt").write_text(manifest, encoding="utf-8", newline="\n")

    facts = (str(_ARTIFACTS_LAYOUT), repr(sorted(words.items())), env.get("CC", ""))
    make_folder(dest, fingerprint_folders([source], *facts), fill)
    return dest


def _make_content(path: Path, copy: Path, words: Mapping[str, str]) -> bytes:
    """Return what a file of the sources becomes in an artifact."""
    if copy.suffix in (".co", ".hsaco"):
        return _make_code_object(words["TARGET"])
    if path.suffix != ".in":
        return path.read_bytes()
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"@([A-Z_]+)@", lambda match: words[match.group(1)], text)
    return kpack.pack_messagepack(json.loads(text)) if copy.suffix == ".dat" else text.encode()


def _make_code_object(target: str) -> bytes:
    """Return a code object of version 5 with one instruction: it ends the program.

    Sources: LLVM, "User Guide for AMDGPU Backend" (header); the ISA documents of CDNA and RDNA (s_endpgm).
    """
    numbers = {name: number for number, name in code_objects.ELF_MACHINES.items()}
    code = (0xBFB00000 if target.startswith(("gfx11", "gfx12")) else 0xBF810000).to_bytes(4, "little")
    start = elf.HEADER_FORM.size + _PROGRAM_HEADER.size
    ident = b"\x7fELF\x02\x01\x01\x40\x03".ljust(16, b"\0")
    sizes = (elf.HEADER_FORM.size, _PROGRAM_HEADER.size, 1, 0, 0, 0)
    header = _CODE_HEADER.pack(
        ident, _ET_DYN, elf.EM_AMDGPU, 1, start, elf.HEADER_FORM.size, 0, numbers[target], *sizes
    )
    program = _PROGRAM_HEADER.pack(_PT_LOAD, _READ_AND_RUN, 0, 0, 0, start + 4, start + 4, 4096)
    return header + program + code


def _compile_library(
    library: Library, source: Path, folder: Path, words: Mapping[str, str], env: Mapping[str, str]
) -> None:
    """Compile a library; its name without a version belongs to the ``dev`` component.

    Nothing of this machine's folders may get into it.
    """
    runtime, development = (
        folder / f"{library.artifact}_{component}_generic" / library.stage / library.folder
        for component in ("lib", "dev")
    )
    for place in (runtime, development):
        place.mkdir(parents=True, exist_ok=True)
    if library is _RUNTIME:
        major, minor, patch = (int(words[f"HIP_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
        macros = [f"-DHIP_VERSION={major * 10_000_000 + minor * 100_000 + patch}"]
        macros.append(f"-Wl,--version-script={source / 'stubs' / 'hip.map'}")
    else:
        macros = [f"-DLIBRARY={library.name.replace('-', '_')}"]
        macros.append(f'-DLIBRARY_VERSION="{words["ROCM_VERSION"]}"')
    stub = source / "stubs" / ("hip.c" if library is _RUNTIME else "library.c")
    shared = ["-shared", "-fPIC", "-O1", "-g0", f"-Wl,-soname,{library.soname}", "-Wl,--build-id=none"]
    process.capture_output(
        [env.get("CC") or "cc", *shared, *macros, stub, "-o", runtime / library.soname],
        env=env,
        check=errors.SdkError,
        description=f"compiling {library.soname}",
        tip="a C compiler is needed: install gcc",
    )
    (development / f"lib{library.name}.so").symlink_to(library.soname)
