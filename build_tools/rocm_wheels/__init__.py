"""rocm-wheels: from pinned PyTorch sources to tested ROCm wheels that a machine can choose from.

For programs: the functions of ``rocm_wheels.api`` are here, loaded when one is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # checkers take it for true; `typing` would be what an import costs

if TYPE_CHECKING:
    from rocm_wheels.api import (
        TorchPlatform,
        choose,
        configure,
        doctor,
        get_device,
        get_gpus,
        get_hardware,
        get_install_commands,
        get_installed_platform,
        get_platform,
        install,
        test,
    )

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


if not TYPE_CHECKING:  # a checker knows the names from above, and no others

    def __getattr__(name: str) -> object:
        if name in __all__:
            from importlib import import_module

            return getattr(import_module("rocm_wheels.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
