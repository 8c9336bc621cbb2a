"""Types of what ``__init__`` loads when it is first used."""

from rocm_wheels.api import TorchPlatform as TorchPlatform
from rocm_wheels.api import choose as choose
from rocm_wheels.api import configure as configure
from rocm_wheels.api import doctor as doctor
from rocm_wheels.api import get_device as get_device
from rocm_wheels.api import get_gpus as get_gpus
from rocm_wheels.api import get_hardware as get_hardware
from rocm_wheels.api import get_install_commands as get_install_commands
from rocm_wheels.api import get_installed_platform as get_installed_platform
from rocm_wheels.api import get_platform as get_platform
from rocm_wheels.api import install as install
from rocm_wheels.api import test as test

__version__: str
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
