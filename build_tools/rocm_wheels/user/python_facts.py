"""What a Python is: its folders, markers, and whether it is the system's.

This text is also run by the Python that is asked, of any 3.x, with ``-c``: nothing but the standard library,
and nothing of this program. PEP 668: an environment is managed when the file is beside the standard library
and it is not a virtual one.
"""

import json
import os
import platform
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any


def describe_python() -> "dict[str, Any]":
    """Return the facts of the Python that runs this, as JSON can have them."""
    release = sys.implementation.version
    implementation_version = ".".join(map(str, release[:3]))
    if release[3] != "final":
        implementation_version += release[3][0] + str(release[4])
    managed_file = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "platform": sysconfig.get_platform(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": [entry for entry in sys.path if entry],  # -c puts "" (the current folder) in front
        "purelib": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "user_site": site.getusersitepackages() if site.ENABLE_USER_SITE else None,
        "is_managed": sys.prefix == sys.base_prefix and managed_file.is_file(),
        "markers": {  # PEP 508
            "implementation_name": sys.implementation.name,
            "implementation_version": implementation_version,
            "os_name": os.name,
            "platform_machine": platform.machine(),
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": platform.python_version(),
            "platform_python_implementation": platform.python_implementation(),
            "python_version": ".".join(platform.python_version_tuple()[:2]),
            "sys_platform": sys.platform,
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe_python()))
