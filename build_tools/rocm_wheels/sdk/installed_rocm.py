"""Read an installed ROCm (``/opt/rocm``) as artifacts, so that packages can be made from it.

An installed tree does not say which build artifact a file came from; its place and name do. Kernels that
libraries load from files (``lib/rocblas/library/…_gfx90a.co``) go to their target's device package. Code that
is compiled into a library stays there: an installed ROCm is not split, so rocm-sdk-libraries holds the
code of every target that the tree was built for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import SdkError
from rocm_wheels.models import get_gfx_targets
from rocm_wheels.sdk.artifacts import GENERIC, Artifact, list_files, list_targets

_VERSION_FILES = (".info/version", "include/rocm-core/rocm_version.h")
_LEFT_OUT = ("share/doc/", "share/man/", "share/therock/")

# As LLVM numbers them: the major version, one digit for the minor one, one for the stepping. What follows is
# no part of it: MIOpen appends compute units, in decimals after a `_` or hexadecimal after nothing.
_TARGET = re.compile(r"gfx(?:[6-9]|[1-9][0-9])[0-9a-f]{2}")

# The first rule that matches a path decides; artifacts are named as in ROCm's own build.
_DEVELOPMENT = re.compile(
    r"(include|lib/llvm/include|lib/cmake|lib/llvm/lib/cmake|share/cmake|lib/pkgconfig)/|.*\.(a|hpp?|cmake|inl)$"
)
_CLANG_RESOURCES = re.compile(r"lib/llvm/lib/clang/")
_LIBRARIES = (
    ("blas", re.compile(r"lib/(lib)?(roc|hip)(blas|sparse|solver)|lib/liborigami")),
    ("fft", re.compile(r"lib/(lib)?(roc|hip)fft")),
    ("rand", re.compile(r"lib/lib(roc|hip)rand")),
    ("miopen", re.compile(r"lib/libMIOpen|share/miopen/")),
    ("rccl", re.compile(r"lib/librccl|share/rccl/")),
    ("hipdnn", re.compile(r"lib/libhipdnn")),
    ("rpp", re.compile(r"lib/librpp")),
)
_CORE = (
    ("amd-llvm", re.compile(r"(lib/)?llvm|amdgcn|lib/libamd_comgr")),
    ("core-runtime", re.compile(r"lib/libhsa")),
    ("rocprofiler-sdk", re.compile(r"lib/lib(roc(tx|tracer|profiler))")),
    ("core-amdsmi", re.compile(r"lib/lib(amd_smi|rocm_smi)|.*(amd|rocm)[-_]smi")),
)
_REST = "core-hip"


def read_rocm_version(prefix: Path) -> str:
    """Return the version of the ROCm in ``prefix``; SdkError where no file says it."""
    info, header = (prefix / name for name in _VERSION_FILES)
    if info.is_file() and (match := re.match(r"\d+\.\d+(\.\d+)?", info.read_text(encoding="utf-8"))):
        return match[0]
    if header.is_file():
        text = header.read_text(encoding="utf-8")
        numbers = dict(re.findall(r"ROCM_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
        if len(numbers) == 3:
            return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    raise SdkError(
        f"{prefix} does not say which ROCm it is: no {' and no '.join(_VERSION_FILES)}",
        tip="give --from-prefix the folder of an installed ROCm, such as /opt/rocm, or add --version",
    )


def read_installed_rocm(prefix: Path) -> tuple[Artifact, ...]:
    """Sort the files of an installed ROCm into artifacts, sorted by name.

    SdkError: not a ROCm, or a folder that cannot be read.
    """
    if not (prefix / "include/hip").is_dir():
        raise SdkError(
            f"{prefix} holds no ROCm: there is no include/hip",
            tip="give --from-prefix the folder of an installed ROCm, such as /opt/rocm",
        )
    prefix = prefix.resolve()
    paths: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for relative in list_files(prefix):
        if relative.startswith(_LEFT_OUT):
            continue
        target = find_target(relative)
        if target is None:
            paths[(*_find_artifact(relative), GENERIC)].append(relative)
        else:
            paths[(_find_artifact(relative)[0], "lib", target)].append(relative)
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
    match = _TARGET.match(names[-1]) if names else None
    return match[0] if match else None


def refuse_unknown_targets(artifacts: Sequence[Artifact], prefix: Path, wanted: Sequence[str]) -> None:
    """Raise SdkError for kernels of a target that is not in the table, and among ``wanted`` (none: all)."""
    targets = wanted or list_targets(artifacts)
    known = [target for target in targets if target in get_gfx_targets()]
    faults = []
    for target in targets:
        files = sorted(path for a in artifacts if a.target == target for path in a.paths or ())
        if files and target not in known:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            faults.append(f"{target} ({prefix / files[0]}{more})")
    if faults:
        leave_out = f"package others, with --targets {','.join(known)}, or " if known else ""
        raise SdkError(
            f"kernels of what is no target of data/gfx_families.yaml: {', '.join(faults)}",
            tip=f"{leave_out}give each an entry there",
        )


def _find_artifact(relative: str) -> tuple[str, str]:
    """Return name and component of the artifact that ROCm's own build would have the file in."""
    library = next((name for name, rule in _LIBRARIES if rule.match(relative)), None)
    if _DEVELOPMENT.match(relative) and not _CLANG_RESOURCES.match(relative):
        # rocm-sdk-core has the headers of HIP, for hiprtc; all others are in rocm-sdk-devel alone
        return library or (_REST if relative.startswith("include/hip/") else "prim"), "dev"
    name = library or next((name for name, rule in _CORE if rule.match(relative)), _REST)
    return name, "lib" if library else "run"
