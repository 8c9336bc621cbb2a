"""The miniature: its sources as git repositories, its ROCm as artifacts, and PyTorch's own hipify.

Folders that are made from something are made once: whole or not at all, and not again from the same
input.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rocm_wheels.binaries import elf
from rocm_wheels.core import errors, process, shell
from rocm_wheels.core.files import hash_file, replace_folder
from rocm_wheels.device_code import code_objects, kpack
from rocm_wheels.index import reader

_MARK_NAME = ".made-from"


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by their relative path. What Python left there is left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def fingerprint_folders(folders: Iterable[Path], *facts: str) -> str:
    """Return a sha256 (hex) over names and contents of all files of ``folders`` and over ``facts``."""
    total = hashlib.sha256(repr(facts).encode())
    for folder in folders:
        for path in list_files(folder):
            total.update(f"{path.relative_to(folder).as_posix()}\0{hash_file(path)}\n".encode())
    return total.hexdigest()


def mark_folder(folder: Path, source: str) -> None:
    """Say that a folder is whole, and made from the fingerprint ``source``."""
    (folder / _MARK_NAME).write_text(f"{source}\n", encoding="utf-8")


def read_mark(folder: Path) -> str | None:
    """Return the fingerprint that a folder was made from, ``None`` when it was not made here."""
    mark = folder / _MARK_NAME
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else None


def make_folder(folder: Path, source: str, fill: Callable[[Path], None]) -> bool:
    """Make ``folder`` by ``fill(beside)``, unless it was made from the fingerprint ``source`` already.

    Returns whether it was made now. ``fill`` gets an empty folder beside the final one, which takes
    its place at the end; whatever stops us leaves the old one. Raises DataError rather than
    replace a folder with files that was not made here.
    """
    if read_mark(folder) == source:
        return False
    if read_mark(folder) is None and folder.is_dir() and any(folder.iterdir()):
        raise errors.DataError(
            f"{folder} holds files that were not made here",
            tip="move them away, or give another folder",
        )
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        fill(beside)
        mark_folder(beside, source)
        replace_folder(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


HIPIFY_VERSION = "2.13.0"
_DEFAULT_INDEX = "https://pypi.org/simple"
_TIMEOUT_SECONDS = 30.0
_CENTRAL_DIRECTORY = 2 << 20  # bytes; torch's has 13,000 members
_HIPIFY_FOLDER = "torch/utils/hipify/"

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
    folder = cache / f"hipify-{HIPIFY_VERSION}"
    make_folder(folder, " ".join(HIPIFY_DIGESTS.values()), lambda beside: _fill_folder(beside, env))
    return folder


def _fill_folder(folder: Path, env: Mapping[str, str]) -> None:
    local = find_local_wheel(env)
    open_wheel, location = (
        (lambda: zipfile.ZipFile(local), str(local)) if local else _open_published_wheel(env)
    )
    try:
        with open_wheel() as wheel:
            members = {name: wheel.read(_find_member(wheel, name)) for name in HIPIFY_DIGESTS}
    except errors.SourceError:
        raise
    except Exception as cause:  # of zipfile, remotezip, requests and urllib3: they share no class
        raise errors.SourceError(
            f"PyTorch's hipify cannot be read from {shell.hide_credentials(location)}",
            tip=_make_network_tip(env),
        ) from cause
    for name, member in members.items():
        content = member.replace(b"\r\n", b"\n")
        if hashlib.sha256(content).hexdigest() != HIPIFY_DIGESTS[name]:
            raise errors.SourceError(
                f"{name} of hipify in {shell.hide_credentials(location)} is not the one of torch "
                f"{HIPIFY_VERSION}",
                tip="the wheel was changed or damaged; take it from pypi.org",
            )
        (folder / name).write_bytes(content)


def _find_member(wheel: zipfile.ZipFile, name: str) -> str:
    """Return the name inside the wheel. The licence lies in ``….dist-info/licenses/``."""
    if name != "LICENSE":
        return f"{_HIPIFY_FOLDER}{name}"
    return next(n for n in wheel.namelist() if re.fullmatch(r"torch-[^/]+\.dist-info/licenses/LICENSE", n))


def find_local_wheel(env: Mapping[str, str]) -> Path | None:
    """Return a torch wheel of our version in a local folder that pip or uv are told to look in."""
    words = [*env.get("PIP_FIND_LINKS", "").split(), *re.split(r"[\s,]+", env.get("UV_FIND_LINKS", ""))]
    for word in words:
        folder = Path(unquote(urlsplit(word).path) if word.startswith("file:") else word)
        if word and folder.is_dir():
            wheels = sorted(
                [*folder.glob(f"torch-{HIPIFY_VERSION}-*.whl"), *folder.glob(f"torch-{HIPIFY_VERSION}+*.whl")]
            )
            if wheels:
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
    named = {link.url: reader.file_name_of_link(link) for link in links}
    ours = [
        url
        for url, name in named.items()
        if name.startswith(f"torch-{HIPIFY_VERSION}-") and name.endswith(".whl")
    ]
    return sorted(ours, key=lambda url: ("macosx" not in named[url], "win" in named[url], named[url]))


def _open_published_wheel(
    env: Mapping[str, str],
) -> tuple[Callable[[], AbstractContextManager[zipfile.ZipFile]], str]:
    """Return how to open the wheel on the index, and its URL."""
    import requests
    from remotezip import RemoteZip  # type: ignore[import-untyped]

    page_url = f"{find_index_url(env)}/torch/"
    if page_url.startswith("file:"):
        raise errors.SourceError(
            f"the index {page_url} is a folder, from which hipify is not read",
            tip=f"put a wheel of torch {HIPIFY_VERSION} into a folder and name that in PIP_FIND_LINKS",
        )
    for switch in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"):
        if env.get(switch, "").lower() in ("1", "true", "yes", "on", "y", "t"):
            raise errors.SourceError(
                f"PyTorch's hipify is needed, and {switch} forbids to ask the index",
                tip=_make_network_tip(env),
            )
    session = requests.Session()  # proxies, certificates and .netrc as requests finds them
    try:
        answer = session.get(page_url, headers={"Accept": reader.ACCEPT_PAGES}, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
    except requests.exceptions.SSLError as cause:
        raise errors.SourceError(
            f"the certificate of the package index is not trusted: {shell.hide_credentials(page_url)}",
            tip="where a proxy or an organisation signs it, name the file with its certificates in"
            " REQUESTS_CA_BUNDLE and SSL_CERT_FILE",
        ) from cause
    except requests.RequestException as cause:
        raise errors.SourceError(
            f"the package index cannot be asked for torch: {shell.hide_credentials(page_url)}",
            tip=_make_network_tip(env),
        ) from cause
    links = reader.parse_page(
        answer.content, answer.headers.get("Content-Type", ""), answer.url, project="torch"
    )
    urls = list_wheel_urls(links)
    if not urls:
        raise errors.SourceError(
            f"{shell.hide_credentials(page_url)} has no wheel of torch {HIPIFY_VERSION}",
            tip=_make_network_tip(env),
        )
    return lambda: RemoteZip(urls[0], _CENTRAL_DIRECTORY, session, timeout=_TIMEOUT_SECONDS), urls[0]


def _make_network_tip(env: Mapping[str, str]) -> str:
    return (
        f"the index is {shell.hide_credentials(find_index_url(env))} (PIP_INDEX_URL, UV_INDEX_URL); "
        "without a network, "
        f"put a wheel of torch {HIPIFY_VERSION} into a folder and name it in PIP_FIND_LINKS"
    )


_AUTHOR = "The miniature <miniature@rocm-wheels.invalid>"
_DATE = "1767225600 +0000"  # 2026-01-01
_RECORD = "repositories.json"
_SOURCES_LAYOUT = 2  # raise it when this module changes what it makes from the same sources
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
_SUBMODULE = "third_party/minigemm"
# Links, which cannot lie here: a checkout on Windows may write files instead.
_SOURCE_LINKS = {"apex": {"apex/csrc": "../csrc", "apex/op_builder": "../op_builder"}}
# What a public server allows: to ask for a commit by its name, and for a part of the history.
_SERVED = "[uploadpack]\n\tallowReachableSHA1InWant = true\n\tallowFilter = true\n"


@dataclass(frozen=True)
class DemoRepository:
    """A bare repository: its ``file://`` URL, its one branch, and the full SHA at its tip."""

    url: str
    branch: str
    commit: str


def make_repositories(
    source: Path, dest: Path, *, hipify: Path, env: Mapping[str, str]
) -> dict[str, DemoRepository]:
    """Make ``dest/<name>.git`` for each source tree and return them by name.

    ``source`` is ``tests/miniature``; ``hipify`` the folder of ``fetch_hipify``, which becomes
    ``torch/utils/hipify`` of pytorch. Made whole or not at all, and not again from the same
    input. Raises SourceError when git fails.
    """
    dest = dest.resolve()
    made_of = fingerprint_folders(
        [*(source / name for name in _BRANCHES), hipify], str(_SOURCES_LAYOUT), dest.as_uri()
    )

    def fill(folder: Path) -> None:
        repositories: dict[str, DemoRepository] = {}
        for name, branch in _BRANCHES.items():
            files = _read_files(source / name)
            modules = {}
            if name == "pytorch":
                files |= {f"torch/utils/hipify/{path}": text for path, text in _read_files(hipify).items()}
                files |= _make_pin_files(repositories)
                modules = {_SUBMODULE: repositories["minigemm"].commit}
            tree = _CommitTree(files, _SOURCE_LINKS.get(name, {}), modules)
            commit = _import_commit(folder / f"{name}.git", branch, tree, env)
            repositories[name] = DemoRepository(f"{dest.as_uri()}/{name}.git", branch, commit)
        record = {name: asdict(repository) for name, repository in repositories.items()}
        (folder / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    make_folder(dest, made_of, fill)
    record = json.loads((dest / _RECORD).read_text(encoding="utf-8"))
    return {name: DemoRepository(**fields) for name, fields in record.items()}


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return path → content of a tree of text files; ends of lines as on Linux, whatever git made of them."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(b"\r\n", b"\n")
        for path in list_files(folder)
        if path.parent != folder or path.name != ".made-from"
    }


def _make_pin_files(repositories: Mapping[str, DemoRepository]) -> dict[str, bytes]:
    """Return the files of pytorch that name commits: ``related_commits`` and Triton's pin."""
    rows = (
        f"ubuntu|pytorch|{project}|{repositories[name].branch}|{repositories[name].commit}|{repositories[name].url}\n"
        for name, project in _RELATED.items()
    )
    return {
        "related_commits": "".join(rows).encode(),
        ".ci/docker/ci_commit_pins/triton.txt": f"{repositories['triton'].commit}\n".encode(),
    }


@dataclass(frozen=True)
class _CommitTree:
    """What a commit has: contents of files, targets of links, commits of submodules."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    modules: Mapping[str, str]


def _import_commit(folder: Path, branch: str, tree: _CommitTree, env: Mapping[str, str]) -> str:
    """Make a bare repository with one commit; return its SHA."""
    clean = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    description, tip = f"making the repository {folder.name}", "git 2.28 or newer is needed"
    start = ["git", "init", "--quiet", "--bare", "--template=", f"--initial-branch={branch}", str(folder)]
    process.capture_output(start, env=clean, check=errors.SourceError, description=description, tip=tip)
    with (folder / "config").open("a", encoding="utf-8") as config:
        config.write(_SERVED)
    person = f"{_AUTHOR} {_DATE}"
    stream = [
        f"commit refs/heads/{branch}\nmark :1\nauthor {person}\ncommitter {person}\n".encode(),
        _format_data(f"The small {folder.stem}\n".encode()),
    ]
    for path, content in sorted(tree.files.items()):
        mode = "100755" if content.startswith(b"#!") else "100644"
        stream += [f"M {mode} inline {path}\n".encode(), _format_data(content)]
    for path, target in sorted(tree.links.items()):
        stream += [f"M 120000 inline {path}\n".encode(), _format_data(target.encode())]
    stream += [f"M 160000 {commit} {path}\n".encode() for path, commit in sorted(tree.modules.items())]
    stream.append(b"get-mark :1\ndone\n")
    load = ["git", "-C", str(folder), "fast-import", "--quiet", "--done"]
    return process.capture_output(
        load, env=clean, stdin=b"".join(stream), check=errors.SourceError, description=description, tip=tip
    )


def _format_data(content: bytes) -> bytes:
    """Write a block as ``git fast-import`` reads it."""
    return b"data %d\n%b\n" % (len(content), content)


_CODE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_ET_DYN, _PT_LOAD, _READ_AND_RUN = 3, 1, 5
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[.a-z+][\w.+]*)?")
_ARTIFACTS_LAYOUT = 2  # raise it when this module changes what it makes from the same sources


@dataclass(frozen=True)
class MiniatureLibrary:
    """A shared library: its SONAME is ``lib<name>.so.<major>``; ``symbol`` begins its one function."""

    name: str
    major: int
    artifact: str
    stage: str
    symbol: str
    folder: str = "lib"

    @property
    def soname(self) -> str:
        """The name by which programs ask for it."""
        return f"lib{self.name}.so.{self.major}"


_BLAS, _PROFILER = "math-libs/BLAS", "profiler"
_RUNTIME = MiniatureLibrary("amdhip64", 7, "core-hip", "core/clr/stage", "hip")
# All that torch preloads on Linux. The majors are those of ROCm 7; nothing here depends on them.
MINIATURE_LIBRARIES = (
    _RUNTIME,
    MiniatureLibrary("hiprtc", 7, "core-hip", "core/clr/stage", "hiprtc"),
    MiniatureLibrary("amd_comgr", 3, "amd-llvm", "compiler/amd-comgr/stage", "amd_comgr"),
    MiniatureLibrary("amd_smi", 26, "core-amdsmi", "core/amdsmi/stage", "amdsmi"),
    MiniatureLibrary("rocm_smi64", 1, "base", "base/rocm_smi_lib/stage", "rsmi"),
    MiniatureLibrary("hipblas", 3, "blas", f"{_BLAS}/hipBLAS/stage", "hipblas"),
    MiniatureLibrary("hipblaslt", 1, "blas", f"{_BLAS}/hipBLASLt/stage", "hipblaslt"),
    MiniatureLibrary("hipsparse", 4, "blas", f"{_BLAS}/hipSPARSE/stage", "hipsparse"),
    MiniatureLibrary("hipsparselt", 0, "blas", f"{_BLAS}/hipSPARSELt/stage", "hipsparselt"),
    MiniatureLibrary("hipsolver", 1, "blas", f"{_BLAS}/hipSOLVER/stage", "hipsolver"),
    MiniatureLibrary("hipfft", 0, "fft", "math-libs/hipFFT/stage", "hipfft"),
    MiniatureLibrary("hiprand", 1, "rand", "math-libs/hipRAND/stage", "hiprand"),
    MiniatureLibrary("MIOpen", 1, "miopen", "ml-libs/MIOpen/stage", "miopen"),
    MiniatureLibrary("hipdnn_backend", 0, "hipdnn", "ml-libs/hipDNN/stage", "hipdnn"),
    MiniatureLibrary("rccl", 1, "rccl", "comm-libs/rccl/stage", "rccl"),
    MiniatureLibrary("hipfile", 0, "hipfile", "storage-libs/hipFile/stage", "hipfile"),
    MiniatureLibrary(
        "rocprofiler-sdk", 1, "rocprofiler-sdk", f"{_PROFILER}/rocprofiler-sdk/stage", "rocprofiler"
    ),
    MiniatureLibrary(
        "rocprofiler-sdk-roctx", 1, "rocprofiler-sdk", f"{_PROFILER}/rocprofiler-sdk/stage", "roctxsdk"
    ),
    MiniatureLibrary("roctracer64", 4, "rocprofiler-sdk", f"{_PROFILER}/roctracer/stage", "roctracer"),
    MiniatureLibrary("roctx64", 4, "rocprofiler-sdk", f"{_PROFILER}/roctracer/stage", "roctx"),
    MiniatureLibrary(
        "rocm-openblas", 0, "host-blas", "third-party/host-blas/stage", "openblas", "lib/host-math/lib"
    ),
    MiniatureLibrary(
        "rocm_sysdeps_liblzma",
        5,
        "sysdeps",
        "third-party/sysdeps/linux/liblzma/build/stage",
        "lzma",
        "lib/rocm_sysdeps/lib",
    ),
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
    words = _make_fill_words(version, targets)
    source_print = fingerprint_folders(
        [source], str(_ARTIFACTS_LAYOUT), repr(sorted(words.items())), env.get("CC", "")
    )

    def fill(folder: Path) -> None:
        for path in list_files(source / "artifacts"):
            _copy_file(path, path.relative_to(source / "artifacts").as_posix(), folder, words, targets)
        _compile_libraries(source / "stubs", folder, words, env)
        for link, aim in _ROCM_LINKS:
            (folder / link).symlink_to(aim)
        for artifact in sorted(folder.iterdir()):
            _write_manifest(artifact)

    make_folder(dest, source_print, fill)
    return dest


def _make_fill_words(version: str, targets: Sequence[str]) -> dict[str, str]:
    """Return what stands for each ``@NAME@`` in a file that ends in ``.in``."""
    numbers = _VERSION.fullmatch(version)
    if numbers is None:
        raise errors.DataError(
            f"{version} is not a ROCm version", tip="three numbers and a suffix: 7.1.0, 7.1.0rc1"
        )
    major, minor, patch = numbers.groups()
    return {
        "ROCM_VERSION": version,
        "HIP_VERSION": f"{major}.{minor}.{patch}",
        "HIP_VERSION_MAJOR": major,
        "HIP_VERSION_MINOR": minor,
        "HIP_VERSION_PATCH": patch,
        "TARGETS": ";".join(sorted(targets)),
        "HOST_TRIPLE": f"{platform.machine()}-unknown-linux-gnu",
    }


def _copy_file(
    path: Path, relative: str, folder: Path, words: Mapping[str, str], targets: Sequence[str]
) -> None:
    """Copy one file; once for each target when its name holds ``@TARGET@``."""
    for target in targets if "@TARGET@" in relative else ("",):
        copy = folder / relative.replace("@TARGET@", target).removesuffix(".in")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if relative.endswith(".in"):
            text = _replace_words(path.read_text(encoding="utf-8"), {**words, "TARGET": target})
            if copy.suffix == ".dat":
                copy.write_bytes(kpack.pack_messagepack(json.loads(text)))
            else:
                copy.write_text(text, encoding="utf-8", newline="\n")
        elif copy.suffix in (".co", ".hsaco"):
            copy.write_bytes(_make_code_object(target))
        else:
            shutil.copyfile(path, copy)
        copy.chmod(0o755 if copy.parent.name == "bin" else 0o644)


def _make_code_object(target: str) -> bytes:
    """Return a code object of version 5 with one instruction: it ends the program.

    Sources: LLVM, "User Guide for AMDGPU Backend" (header); the ISA documents of CDNA and RDNA (s_endpgm).
    """
    numbers = {name: number for number, name in code_objects.ELF_MACHINES.items()}
    code = (0xBFB00000 if target.startswith(("gfx11", "gfx12")) else 0xBF810000).to_bytes(4, "little")
    start = elf.ELF_HEADER_SIZE + _PROGRAM_HEADER.size
    ident = b"\x7fELF\x02\x01\x01\x40\x03".ljust(16, b"\0")
    sizes = (elf.ELF_HEADER_SIZE, _PROGRAM_HEADER.size, 1, 0, 0, 0)
    header = _CODE_HEADER.pack(
        ident, _ET_DYN, elf.EM_AMDGPU, 1, start, elf.ELF_HEADER_SIZE, 0, numbers[target], *sizes
    )
    program = _PROGRAM_HEADER.pack(_PT_LOAD, _READ_AND_RUN, 0, 0, 0, start + 4, start + 4, 4096)
    return header + program + code


def _replace_words(text: str, words: Mapping[str, str]) -> str:
    """Replace each ``@NAME@``."""
    return re.sub(r"@([A-Z_]+)@", lambda match: words[match.group(1)], text)


def _compile_libraries(stubs: Path, folder: Path, words: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Compile the libraries side by side; the name without a version belongs to the ``dev`` component."""

    def compile_library(library: MiniatureLibrary) -> None:
        runtime_folder = folder / f"{library.artifact}_lib_generic" / library.stage / library.folder
        development = folder / f"{library.artifact}_dev_generic" / library.stage / library.folder
        for library_folder in (runtime_folder, development):
            library_folder.mkdir(parents=True, exist_ok=True)
        process.capture_output(
            _make_compiler_command(stubs, runtime_folder / library.soname, library, words, env),
            env=env,
            check=errors.SdkError,
            description=f"compiling {library.soname}",
            tip="a C compiler is needed: install gcc",
        )
        (development / f"lib{library.name}.so").symlink_to(library.soname)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_library, MINIATURE_LIBRARIES))


def _make_compiler_command(
    stubs: Path, output: Path, library: MiniatureLibrary, words: Mapping[str, str], env: Mapping[str, str]
) -> list[str]:
    """Return the call of the compiler. Nothing of this machine's folders may get into the library."""
    if library is _RUNTIME:
        numbers = [int(words[f"HIP_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")]
        macros = [f"-DHIP_VERSION={numbers[0] * 10_000_000 + numbers[1] * 100_000 + numbers[2]}"]
        macros.append(f"-Wl,--version-script={stubs / 'hip.map'}")
    else:
        macros = [f"-DLIBRARY={library.symbol}", f'-DLIBRARY_VERSION="{words["ROCM_VERSION"]}"']
    stub = stubs / ("hip.c" if library is _RUNTIME else "library.c")
    shared = ["-shared", "-fPIC", "-O1", "-g0", f"-Wl,-soname,{library.soname}", "-Wl,--build-id=none"]
    return [env.get("CC") or "cc", *shared, *macros, os.fspath(stub), "-o", os.fspath(output)]


def _write_manifest(artifact: Path) -> None:
    """List the places in the build tree that an artifact holds: its folders called ``stage``."""
    stages = sorted(path.relative_to(artifact).as_posix() for path in artifact.rglob("stage"))
    text = "".join(f"{stage}\n" for stage in stages)
    (artifact / "artifact_manifest.txt").write_text(text, encoding="utf-8", newline="\n")
