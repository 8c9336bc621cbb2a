"""The extensions: which sources each has, and how one is compiled where it is used."""

import importlib
from pathlib import Path

OPS = {
    "amp_C": ["csrc/amp_frontend.cpp", "csrc/multi_tensor_sgd.cu"],
    "apex_C": ["csrc/flatten.cpp"],
}


def load(name):
    """Return an extension: the wheel's own where it brings it compiled, else compile it now."""
    from apex.git_version_info_installed import installed_ops

    if installed_ops[name]:
        return importlib.import_module(f"apex.{name}")
    from torch.utils import cpp_extension

    package = Path(__file__).resolve().parent.parent
    return cpp_extension.load(name, [str(package / source) for source in OPS[name]])
