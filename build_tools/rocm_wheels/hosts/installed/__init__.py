"""What torch and its companions are in an environment, and which GPUs their files have kernels for.

Everything is read from files, nothing is imported: a torch that cannot start is the one that people ask
about.

| module | what it does |
|---|---|
| ``look`` | ``read_installed_packages``: everything at once |
| ``environment`` | where a Python looks for packages |
| ``distributions`` | what is installed there: names, versions, requirements, who installed it |
| ``builds`` | what torch was built for: ROCm, CUDA, XPU, CPU |
| ``kernels`` | the device code of installed libraries |
| ``serving`` | does code for some targets run on a GPU, and how |
"""

from rocm_wheels.hosts.installed.kernels import list_kernel_targets
from rocm_wheels.hosts.installed.look import InstalledSet, read_installed_packages

__all__ = ["InstalledSet", "read_installed_packages", "list_kernel_targets"]
