"""The shared libraries that can be asked for by a short name."""

from __future__ import annotations

from typing import NamedTuple


class Library(NamedTuple):
    """Where a shared library is: its package, file patterns (``""``: not on that platform)."""

    package: str
    linux: str
    windows: str
    folder: str = "lib"
    optional: bool = False

    def place(self, platform: str) -> tuple[str, str]:
        """Return folder and file pattern for a ``sys.platform``."""
        return ("bin", self.windows) if platform == "win32" else (self.folder, self.linux)


LIBRARIES: dict[str, Library] = {
    "amd_comgr": Library("core", "libamd_comgr.so*", "amd_comgr*.dll"),
    "amd_smi": Library("core", "libamd_smi.so*", ""),
    "amdhip64": Library("core", "libamdhip64.so*", "amdhip64*.dll"),
    "hipfile": Library("core", "libhipfile.so*", ""),
    # The digit keeps hiprtc-builtins out.
    "hiprtc": Library("core", "libhiprtc.so*", "hiprtc0*.dll"),
    "rocdecode": Library("core", "librocdecode.so*", ""),
    # For the Windows Subsystem for Linux only.
    "rocdxg": Library("core", "librocdxg*.so*", "", optional=True),
    "rocjpeg": Library("core", "librocjpeg.so*", ""),
    "rocm-openblas": Library("core", "librocm-openblas.so.*", "rocm-openblas*.dll", "lib/host-math/lib"),
    "rocm_kpack": Library("core", "librocm_kpack.so*", "rocm_kpack*.dll"),
    "rocm_smi64": Library("core", "librocm_smi64.so*", ""),
    "rocm_sysdeps_liblzma": Library("core", "librocm_sysdeps_liblzma.so.*", "", "lib/rocm_sysdeps/lib"),
    "rocprofiler-sdk": Library("core", "librocprofiler-sdk.so*", ""),
    "rocprofiler-sdk-roctx": Library("core", "librocprofiler-sdk-roctx.so*", ""),
    "roctracer64": Library("core", "libroctracer64.so*", ""),
    "roctx64": Library("core", "libroctx64.so*", ""),
    "hipblas": Library("libraries", "libhipblas.so*", "*hipblas*.dll"),
    "hipblaslt": Library("libraries", "libhipblaslt.so*", "*hipblaslt*.dll"),
    "hipdnn": Library("libraries", "libhipdnn_backend.so*", "hipdnn_backend*.dll"),
    "hipfft": Library("libraries", "libhipfft.so*", "hipfft*.dll"),
    "hiprand": Library("libraries", "libhiprand.so*", "hiprand*.dll"),
    "hipsolver": Library("libraries", "libhipsolver.so*", "hipsolver*.dll"),
    "hipsparse": Library("libraries", "libhipsparse.so*", "hipsparse*.dll"),
    "hipsparselt": Library("libraries", "libhipsparselt.so*", ""),
    "miopen": Library("libraries", "libMIOpen.so*", "MIOpen*.dll"),
    "origami": Library("libraries", "liborigami.so*", "origami*.dll"),
    "rccl": Library("libraries", "librccl.so*", ""),
    "rpp": Library("libraries", "librpp.so*", ""),
}
