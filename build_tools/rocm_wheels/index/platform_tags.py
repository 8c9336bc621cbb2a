"""The platform tags of the machines that wheels are asked for on behalf of others, best first."""

from __future__ import annotations

_GLIBC_MINORS = range(39, 16, -1)  # of manylinux tags: the machine that we ask for is a new one
_OLDER_TAGS = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")
PLATFORM_TAGS = {
    "linux": (*(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS), *_OLDER_TAGS),
    "windows": ("win_amd64",),
}
