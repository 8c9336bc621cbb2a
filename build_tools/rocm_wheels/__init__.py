"""rocm-wheels: from pinned PyTorch sources to tested ROCm wheels that a machine can choose from.

For programs: the functions of ``rocm_wheels.api`` are here, loaded when one is first used. Their types are in
``__init__.pyi``.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = [
    "TorchPlatform",
    "__version__",
    "choose",
    "configure",
    "doctor",
    "get_device",
    "get_gpus",
    "get_hardware",
    "get_install_commands",
    "get_installed_platform",
    "get_platform",
    "install",
    "test",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("rocm_wheels.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
