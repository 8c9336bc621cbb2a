"""An installed ROCm, such as /opt/rocm: what it is, what a build finds in it, and what it has not.

An installed tree does not say which build artifact a file came from; its place and name do. Kernels that
libraries load from files (``lib/rocblas/library/…_gfx90a.co``) go to their target's device package. Code that
is compiled into a library stays there: an installed ROCm is not split, so rocm-sdk-libraries holds the
code of every target that the tree was built for.

Its content is told apart by the names, sizes and times of its files: packages of a system, and archives,
bring the times of their files with them, so that the same ones give the same digest on another machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rocm_wheels.core import errors, process, tables
from rocm_wheels.models import gfx, torch_features
from rocm_wheels.models.libraries import get_rocm_libraries, is_rocm_library
from rocm_wheels.sdk.artifacts import GENERIC, Artifact, list_files, list_targets, sort_targets

_TIP = "name the folder that ROCm is installed in: the one with include/hip and bin/hipcc"
_SHARED_ROOTS = ("/", "/usr", "/usr/local")  # where ROCm cannot be told from all else
_DEVICE_LIBRARIES = (  # AMD's packages have the first ones, clang's own resource folder the others
    "lib/llvm/amdgcn/bitcode",
    "amdgcn/bitcode",
    "lib/llvm/lib/clang/*/lib/amdgcn/bitcode",
    "lib/llvm/lib/clang/*/amdgcn/bitcode",
)
_COMPILERS = ("lib/llvm/bin", "llvm/bin")
_ISA_FILE = re.compile(r"oclc_isa_version_(?P<isa>[0-9a-f]+)\.bc")
_RUNTIME = re.compile(r"libamdhip64\.so\.(?P<version>[0-9]+\.[0-9.]+)")
_INFO_FILE, _ROCM_HEADER = ".info/version", "include/rocm-core/rocm_version.h"
_HIP_HEADER, _HIP_FILE = "include/hip/hip_version.h", "share/hip/version"
_REQUIRED_PARTS = (
    ("include/hip", "ROCm", _TIP),
    ("bin/hipcc", "compiler", "install its development packages there"),
    ("lib/cmake", "CMake packages", "install its -dev packages"),
)
_CMAKE_FOLDERS = ("lib/cmake", "lib64/cmake", "lib/*/cmake", "share/cmake")
_TEMPLATE = Path(__file__).with_name("templates") / "rocm_sdk" / "_libraries.py"
_COMPILER_SECONDS = 30.0
_OFF = ("0", "OFF", "NO", "FALSE", "N")


@dataclass(frozen=True)
class MissingPart:
    """A part of ROCm that a torch looks for, and that is not there.

    ``name`` as people write it (``RCCL``); ``option`` of torch that leaves it out (""; none); ``without``:
    what torch does then (""; nothing is known). ``required``: its CMake ends without it.
    """

    package: str
    name: str
    required: bool
    option: str = ""
    without: str = ""

    def explain(self, version: str, root: Path) -> tuple[str, str]:
        """Return what is wrong with a build on that ROCm, and what to do."""
        install, has_no = f"install it into {root}", f"ROCm {version} in {root} has no {self.name}"
        without = f" ({self.without})" if self.without else ""
        if not self.required:
            return f"{has_no}: torch is built without it{without}", f"{install}, or do without"
        if not self.option:
            text = f"{has_no}, without which torch is not configured"
            return text, f"{install}: no option of torch leaves it out"
        tip = f"{install}, or leave it out: --set-env pytorch:{self.option}=0{without}"
        return f"{has_no}, which torch is built with", tip


@dataclass(frozen=True)
class RocmPrefix:
    """An installed ROCm. ``root`` is the folder as it was named.

    ``compiler``: the folder of clang (``None``: hipcc looks for it by itself). ``device_targets``: those that
    the device libraries are there for; ``kernels``: those of the kernel files of each library. ``content``:
    a digest, 16 hexadecimal digits.
    """

    root: Path
    version: str
    hip_version: str
    hipcc: Path
    compiler: Path | None
    device_libraries: Path
    device_targets: tuple[str, ...]
    kernels: Mapping[str, tuple[str, ...]]
    content: str

    @property
    def cmake(self) -> Path:
        """The folder of the CMake packages."""
        return self.root / "lib" / "cmake"

    def describe(self) -> list[tuple[str, str]]:
        """Return what is in it, as rows: what, and where or for which targets."""
        kernels = [(f"kernels of {name}", ", ".join(targets)) for name, targets in self.kernels.items()]
        clang = "" if self.compiler is None else f", {self.compiler}"
        libraries = f"{self.device_libraries}, for {tables.format_count(len(self.device_targets), 'target')}"
        return [
            ("ROCm", f"{self.version} in {self.root}"),
            ("HIP", self.hip_version or "of no stated version"),
            ("compilers", f"{self.hipcc}{clang}"),
            ("device libraries", libraries),
            *kernels,
            ("targets", ", ".join(self.targets) or "none: no library has kernels in files"),
        ]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that it serves: those of rocBLAS, else of any library, else of the device libraries."""
        served = self.kernels.get("rocblas") or tuple(t for targets in self.kernels.values() for t in targets)
        return tuple(t for t in sort_targets(served or self.device_targets) if t in gfx.get_gfx_targets())

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The file names of ROCm's libraries in it, links included."""
        folders = [path for name in ("lib", "lib64") if (path := self.root / name).is_dir()]
        names = (path.name for folder in folders for path in folder.iterdir())
        return frozenset(name for name in names if ".so" in name and is_rocm_library(name))

    def find_library(self, name: str) -> str | None:
        """Return the path of a library under its SONAME, by its short name in rocm_sdk (``miopen``)."""
        from rocm_wheels.binaries import elf  # planning does not load it

        # the table of the rocm_sdk package that is made here: short name → where the library is
        folder, pattern = runpy.run_path(str(_TEMPLATE))["LIBRARIES"][name].place("linux")
        files = sorted(path for path in (self.root / folder).glob(pattern) if path.is_file())
        if not files:
            return None
        loaded = elf.read_loader_info_of_file(files[0])
        named = [path for path in files if loaded is not None and path.name == loaded.soname]
        return f"{folder}/{(named or files)[0].name}"

    def find_missing(
        self, packages: Sequence[torch_features.HipPackage], env: Mapping[str, str]
    ) -> tuple[MissingPart, ...]:
        """Return which packages a torch looks for and does not find, here or in ``CMAKE_PREFIX_PATH``.

        ``env`` is that of the build: what an option there leaves out is not looked for.
        """
        others = [Path(word) for word in env.get("CMAKE_PREFIX_PATH", "").split(os.pathsep) if word]
        missing = []
        for package in packages:
            if any(has_cmake_package(root, package.name) for root in (self.root, *others)):
                continue
            name = next((name for name in get_rocm_libraries() if name.lower() == package.name), package.name)
            library = get_rocm_libraries().get(name)
            options = library.switch.options if library is not None and library.switch is not None else ()
            if any(env.get(option, "").upper() in _OFF for option in options):
                continue
            without = library.without.text if library is not None and name != package.name else ""
            required = package.required or bool(options)
            missing.append(MissingPart(package.name, name, required, options[0] if options else "", without))
        return tuple(missing)


def read_compiler_version(prefix: RocmPrefix, env: Mapping[str, str]) -> str:
    """Ask the clang of an installed ROCm for its version: its first line, or why it does not say it."""
    if prefix.compiler is None:
        return "not in the tree: hipcc looks for it"
    try:
        text = process.capture_output(
            [prefix.compiler / "clang++", "--version"],
            env=env,
            timeout=_COMPILER_SECONDS,
            check=errors.SdkError,
            description="clang++",
        )
    except errors.RocmWheelsError as failure:
        return f"does not run: {failure}".partition("\n")[0]
    return text.partition("\n")[0].strip()


def has_cmake_package(root: Path, name: str) -> bool:
    """Tell whether CMake finds a package below a folder, as find_package looks for it in config mode."""
    files = {f"{name}-config.cmake", f"{name}config.cmake"}
    for pattern in _CMAKE_FOLDERS:
        for folder in root.glob(f"{pattern}/*"):
            is_candidate = folder.name.lower().startswith(name) and folder.is_dir()
            if is_candidate and any(file.name.lower() in files for file in folder.iterdir()):
                return True
    return False


def inspect_prefix(root: Path, env: Mapping[str, str]) -> RocmPrefix:
    """Look at an installed ROCm.

    UsageError where the folder is none, or one of the whole system; SdkError for what is no ROCm, or not all
    of one release, and for what cannot be read.
    """
    if not root.is_dir():
        raise errors.UsageError(f"there is no folder {root} with a ROCm", tip=_TIP)
    if str(root.resolve()) in _SHARED_ROOTS:
        raise errors.UsageError(
            f"{root} holds the whole system: what of it is ROCm, and whether that changed, cannot be told",
            tip="lay ROCm out in a folder of its own, or install it into one, such as /opt/rocm",
        )
    for folder in (root, *(root / name for name in ("bin", "include", "lib"))):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise errors.SdkError(f"{folder} cannot be read", tip="its owner, or root, must let you read it")
    for name, what, tip in _REQUIRED_PARTS:
        if not (root / name).exists():
            raise errors.SdkError(f"{root} holds no {what}: there is no {name}", tip=tip)
    stated = _read_versions(root)
    version = read_rocm_version(root)
    first = next(name for name in stated if stated[name])
    for name, text in stated.items():  # HIP has the first two numbers of its ROCm
        if text and text.split(".")[:2] != stated[first].split(".")[:2]:
            raise errors.SdkError(
                f"{root} is a mixture of two releases: {stated[first]} by {first}, {text} by {name}",
                tip="install the packages of one release, into an empty folder",
            )
    named = [Path(env["HIP_DEVICE_LIB_PATH"])] if env.get("HIP_DEVICE_LIB_PATH") else []
    folders = [*(path for pattern in _DEVICE_LIBRARIES for path in sorted(root.glob(pattern))), *named]
    libraries = next((path for path in folders if path.is_dir()), None)
    if libraries is None:
        first, second, *_ = _DEVICE_LIBRARIES
        raise errors.SdkError(
            f"{root} holds no device libraries: there is no {first}, nor {second}",
            tip="install rocm-device-libs there, or let HIP_DEVICE_LIB_PATH name their folder",
        )
    # documentation, and what Python leaves there, is no part of what a build may read
    files = [name for name in list_files(root) if not name.startswith(_LEFT_OUT[:2])]
    files = sorted(name for name in files if "__pycache__/" not in name)
    kernels: dict[str, set[str]] = defaultdict(set)
    for name in files:
        if (target := find_target(name)) is not None:
            kernels[name.split("/")[1]].add(target)
    compilers = [root / name for name in _COMPILERS if (root / name).is_dir()]
    isas = (match["isa"] for path in libraries.iterdir() if (match := _ISA_FILE.fullmatch(path.name)))
    return RocmPrefix(
        root=root,
        version=version,
        hip_version=stated[_HIP_HEADER] or stated[_HIP_FILE],
        hipcc=root / "bin" / "hipcc",
        compiler=compilers[0] if compilers else None,
        device_libraries=libraries,
        device_targets=sort_targets(f"gfx{isa}" for isa in isas),
        kernels={library: sort_targets(targets) for library, targets in sorted(kernels.items())},
        content=_digest_files(root, files),
    )


def _digest_files(root: Path, files: Iterable[str]) -> str:
    """Digest names, sizes and times (whole seconds) of files; of links what they name, and lead to."""
    digest = hashlib.sha256()
    for relative in files:
        path = root / relative
        state = path.lstat()
        line = f"{relative}\0{state.st_size}\0{int(state.st_mtime)}"
        if path.is_symlink():
            line = f"{relative}\0{path.readlink()}"
            if path.exists() and not path.resolve().is_relative_to(root.resolve()):
                followed = path.stat()
                line += f"\0{followed.st_size}\0{int(followed.st_mtime)}"
        digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _read_versions(root: Path) -> dict[str, str]:
    """Return which version files of a tree state, ROCm's first; "" where a file is not there, or does not."""
    info = root / _INFO_FILE
    number = re.match(rb"\d+\.\d+(\.\d+)?", info.read_bytes()) if info.is_file() else None
    stated = {_INFO_FILE: number[0].decode("ascii") if number is not None else ""}
    for name, macro in ((_ROCM_HEADER, "ROCM"), (_HIP_HEADER, "HIP"), (_HIP_FILE, "HIP")):
        path, stated[name] = root / name, ""
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        numbers = dict(re.findall(rf"\b{macro}_VERSION_(MAJOR|MINOR|PATCH)[ =]+(\d+)", text))
        if len(numbers) == 3:
            stated[name] = f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCH']}"
    for path in sorted((root / "lib").glob("libamdhip64.so.*")):
        if path.is_file() and not path.is_symlink() and (match := _RUNTIME.fullmatch(path.name)):
            stated[f"lib/{path.name}"] = match["version"]
    return stated


_LEFT_OUT = ("share/doc/", "share/man/", "share/therock/")

# As LLVM numbers them: the major version, one digit for the minor one, one for the stepping. What follows is
# no part of it: MIOpen appends compute units, in decimals after a `_` or hexadecimal after nothing.
_KERNEL_TARGET = re.compile(r"gfx(?:[6-9]|[1-9][0-9])[0-9a-f]{2}")

# The first rule that matches a path decides; artifacts are named as in ROCm's own build.
_DEVELOPMENT = re.compile(
    r"(?!lib/llvm/lib/clang/)"  # the compiler's own resources
    r"((include|lib/llvm/include|lib/cmake|lib/llvm/lib/cmake|share/cmake|lib/pkgconfig)/|.*\.(a|hpp?|cmake|inl)$)"
)
_LIBRARIES = {
    "blas": r"lib/(lib)?(roc|hip)(blas|sparse|solver)|lib/liborigami",
    "fft": r"lib/(lib)?(roc|hip)fft",
    "rand": r"lib/lib(roc|hip)rand",
    "miopen": r"lib/libMIOpen|share/miopen/",
    "rccl": r"lib/librccl|share/rccl/",
    "hipdnn": r"lib/libhipdnn",
    "rpp": r"lib/librpp",
}
_CORE = {
    "amd-llvm": r"(lib/)?llvm|amdgcn|lib/libamd_comgr",
    "core-runtime": r"lib/libhsa",
    "rocprofiler-sdk": r"lib/lib(roc(tx|tracer|profiler))",
    "core-amdsmi": r"lib/lib(amd_smi|rocm_smi)|.*(amd|rocm)[-_]smi",
    "core-hip": r"",  # all else
}


def read_rocm_version(prefix: Path) -> str:
    """Return the version of the ROCm in ``prefix``; SdkError where no file says it."""
    stated = _read_versions(prefix)
    if version := stated[_INFO_FILE] or stated[_ROCM_HEADER]:
        return version
    raise errors.SdkError(
        f"{prefix} does not say which ROCm it is: no {_INFO_FILE} and no {_ROCM_HEADER}",
        tip=f"{_TIP}; for packages of it, --version may say the version",
    )


def read_installed_rocm(prefix: Path) -> tuple[Artifact, ...]:
    """Sort the files of an installed ROCm into artifacts, sorted by name.

    SdkError: not a ROCm, or a folder that cannot be read.
    """
    if not (prefix / "include/hip").is_dir():
        raise errors.SdkError(f"{prefix} holds no ROCm: there is no include/hip", tip=_TIP)
    prefix = prefix.resolve()
    paths: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for relative in list_files(prefix):
        if relative.startswith(_LEFT_OUT):
            continue
        library = next((name for name, rule in _LIBRARIES.items() if re.match(rule, relative)), None)
        name = library or next(name for name, rule in _CORE.items() if re.match(rule, relative))
        component, target = "lib" if library else "run", find_target(relative)
        if _DEVELOPMENT.match(relative):
            # rocm-sdk-core has the headers of HIP, for hiprtc; all others are in rocm-sdk-devel alone
            name = library or ("core-hip" if relative.startswith("include/hip/") else "prim")
            component = "dev"
        paths[name, "lib" if target else component, target or GENERIC].append(relative)
    artifacts = []
    for (name, component, family), files in sorted(paths.items()):
        folder = prefix / f"{name}_{component}_{family}"  # names it in messages; there is none
        artifacts.append(Artifact(name, component, family, folder, (prefix,), tuple(sorted(files))))
    return tuple(artifacts)


def find_target(relative: str) -> str | None:
    """Return the target whose kernels a file holds by its name; ``None``: it serves several, or none.

    ``…_gfx90a-xnack+.hsaco`` → ``gfx90a``; MIOpen's ``gfx90a68.db`` (0x68 compute units) → ``gfx90a``;
    ``…_gfx9-4-generic.co`` → ``None``. The target need not be one of the table.
    """
    if not re.match(r"(lib|share)/(rocblas|hipblaslt|hipsparselt|miopen|rocfft)/", relative):
        return None
    names = re.findall(r"gfx[0-9a-f]+", relative.rsplit("/", 1)[-1])
    match = _KERNEL_TARGET.match(names[-1]) if names else None
    return match[0] if match else None


def refuse_unknown_targets(artifacts: Sequence[Artifact], prefix: Path, requested: Sequence[str]) -> None:
    """Raise SdkError for kernels of a target outside the table, and among ``requested`` (none: all)."""
    targets = requested or list_targets(artifacts)
    faults = []
    for target in targets:
        files = sorted(path for a in artifacts if a.target == target for path in a.paths or ())
        if files and target not in gfx.get_gfx_targets():
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            faults.append(f"{target} ({prefix / files[0]}{more})")
    if faults:
        others = ",".join(target for target in targets if target in gfx.get_gfx_targets())
        leave_out = f"package others, with --gfx {others}, or " if others else ""
        raise errors.SdkError(
            f"kernels of what is no target of data/gfx_families.yaml: {', '.join(faults)}",
            tip=f"{leave_out}give each an entry there",
        )
