"""Answer for the namespaces of wheel variants beside ``amd``: no plugin of anybody's is run.

Sources: ``nvidia_variant_provider/plugin.py`` of wheelnext/nvidia-variant-provider at
2ab96595c1696ef13c14e34757231d4e2ea4397d; provider-variant-x86-64 0.0.1.post2 of PyPI, with its table of
processors (archspec); PEP 850 for ``abi_dependency``, which variantlib 0.2.2 answers from what is installed.
What these providers would say is said here, for the machine that wheels are chosen for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.variants import document

if TYPE_CHECKING:
    from rocm_wheels.user.host import TargetHost

Features = dict[str, tuple[str, ...]]

_CUDA_MAJORS = range(11, 16)  # the provider knows no other drivers
_CUDA_MINORS = range(21)
_FIRST_CAPABILITY = (5, 0)

# flags of the processor as Linux names them, from the second level on; each level has those before it
_X86_64_LEVELS = {
    "v2": "cx16 lahf_lm mmx sse sse2 ssse3 sse4_1 sse4_2 popcnt",
    "v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
_X86_64_FLAGS = (  # those that the provider knows, in its order
    "avx_vnni cppc ibrs_enhanced tsc_adjust flush_l1d movdir64b movdiri avx512_bf16 avx512_bitalg "
    "avx512_vbmi2 avx512_vnni avx512_vp2intersect avx512_vpopcntdq avx512ifma avx512vbmi rdpid sha_ni "
    "vaes vpclmulqdq clwb clzero avx512bw avx512cd avx512dq avx512f avx512vl clflushopt gfni rdseed "
    "xsavec xsaveopt adx avx2 avx bmi2 bmi1 abm f16c fma movbe xsave rdrand aes pclmulqdq sse4a "
    "fsgsbase sse4_2 sse4_1 ssse3 sse3 cx16 lahf_lm popcnt sse2 sse mmx"
)
_PROCESSOR_FILE = Path("/proc/cpuinfo")


def list_namespace_features(
    namespaces: Iterable[str], host: TargetHost, *, processor_file: Path = _PROCESSOR_FILE
) -> dict[str, Features]:
    """Return what a machine supports of those of ``namespaces`` that are answered for, best values first.

    ``amd`` is in ``host.supported`` already. Of the processor of a machine that is not this one only what
    every x86_64 has is known.
    """
    supported = {}
    for namespace in namespaces:
        if namespace == "nvidia":
            supported[namespace] = list_nvidia_features(host)
        elif namespace == "x86_64" and host.machine in ("x86_64", "amd64"):
            flags = _read_processor_flags(processor_file) if _is_this_machine(host) else frozenset()
            supported[namespace] = list_x86_64_features(flags)
        elif namespace == document.ABI_NAMESPACE:
            supported[namespace] = list_abi_features(host.versions)
    return supported


def list_nvidia_features(host: TargetHost) -> Features:
    """Return which CUDA the driver is new enough for, which it is older than, and ``sm_arch``."""
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", host.hardware.cuda or "")
    if not match:
        return {}
    driver = int(match[1]), int(match[2])
    if driver[0] not in _CUDA_MAJORS:
        return {}
    lower: list[str] = []
    upper: list[str] = []
    for major in reversed(_CUDA_MAJORS):
        for minor in reversed(_CUDA_MINORS):
            (lower if (major, minor) <= driver else upper).append(f"{major}.{minor}")
        (lower if major <= driver[0] else upper).append(f"{major}")
    features = {"cuda_version_lower_bound": tuple(lower), "cuda_version_upper_bound": tuple(upper)}
    capabilities = [
        tuple(map(int, gpu.capability.split(".")))
        for gpu in host.hardware.gpus
        if gpu.vendor == "nvidia" and gpu.visible and gpu.capability
    ]
    best = max(capabilities, default=(0, 0))
    if best >= _FIRST_CAPABILITY:
        major, minor = best
        code = [f"{major}{number}_real" for number in range(minor, -1, -1)]
        features["sm_arch"] = (*code, f"{major}0_virtual")
    return features


def list_x86_64_features(flags: frozenset[str]) -> Features:
    """Return the levels and flags that a processor with these flags has; without any: the first level."""
    levels = ["v1"]
    for level, needed in _X86_64_LEVELS.items():
        if not flags.issuperset(needed.split()):
            break
        levels.insert(0, level)
    return {"level": tuple(levels)} | {flag: ("on",) for flag in _X86_64_FLAGS.split() if flag in flags}


def list_abi_features(versions: Mapping[str, str]) -> Features:
    """Return for each project the versions that its ABI goes by, longest first: 2.9.1, 2.9, 2."""
    return {
        canonicalize_name(name).replace("-", "_"): tuple(_list_release_prefixes(version))
        for name, version in versions.items()
    }


def _list_release_prefixes(text: str) -> Iterator[str]:
    try:
        release = Version(text).release
    except InvalidVersion:
        return
    for length in range(len(release), 0, -1):
        yield ".".join(map(str, release[:length]))


def _is_this_machine(host: TargetHost) -> bool:
    from rocm_wheels.user.host import detect_platform

    return (host.platform, host.machine) == detect_platform()


def _read_processor_flags(path: Path) -> frozenset[str]:
    """Return the flags of the first processor as Linux lists them; none where no such list is."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    flags = frozenset(match[1].split()) if match else frozenset()
    return flags | {"sse3"} if flags & {"pni", "ssse3"} else flags
