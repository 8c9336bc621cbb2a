"""What a build environment is made from, and a fingerprint of it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.errors import SdkError
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.uv import PackageSource
from rocm_wheels.shell import hide_credentials

_FORMAT = 1
_SPECIFIER = re.compile(r"\s*(===?|~=|!=|[<>]=?)")
_EXTRA = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSIONS: dict[
    tuple[str, int, int], str
] = {}  # what interpreters said: by path, inode and time of their files


@dataclass(frozen=True)
class EnvironmentSpec:
    """What a build environment is made from.

    ``rocm_spec`` is a version specifier with its operator (``==7.1.0``, ``>1.0``); ``extras``
    are those of ``rocm`` besides libraries and devel; ``extra_requirements`` are build tools
    (``cmake==3.27.*``) and come from the user's own index, never as pre-releases.
    """

    python: Path
    rocm_spec: str = ">1.0"
    extras: tuple[str, ...] = ()
    index_url: str | None = None
    find_links: str | None = None
    cache_dir: Path | None = None
    pre: bool = True
    extra_requirements: tuple[str, ...] = ()

    @property
    def all_extras(self) -> tuple[str, ...]:
        """Every extra of ``rocm`` that is installed."""
        return tuple(sorted({"libraries", "devel", *self.extras}))

    @property
    def requirement(self) -> str:
        """The requirement on ROCm. SdkError when specifier or an extra cannot be one."""
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            if not _SPECIFIER.match(self.rocm_spec):
                raise InvalidSpecifier(self.rocm_spec)
            SpecifierSet(self.rocm_spec)
        except InvalidSpecifier as cause:
            raise SdkError(
                f"--rocm-sdk-version {self.rocm_spec!r} is not a version specifier",
                tip="it begins with an operator: '==7.1.0', '>=7.0,<8'",
            ) from cause
        for extra in self.extras:
            if not _EXTRA.fullmatch(extra):
                raise SdkError(
                    f"--rocm-extras: {extra!r} is not the name of an extra", tip="such as device-gfx942"
                )
        return f"rocm[{','.join(self.all_extras)}]{self.rocm_spec.replace(' ', '')}"

    @property
    def pinned(self) -> bool:
        """Whether the specifier can mean one version only."""
        return bool(re.fullmatch(r"\s*={2,3}\s*[^,*\s]+\s*", self.rocm_spec))

    def with_absolute_paths(self) -> EnvironmentSpec:
        """Return the same with absolute paths: the installer runs in another folder."""
        links = self.find_links
        if links and "://" not in links:
            links = str(Path(links).absolute())
        # absolute(), not resolve(): a link is how a virtual environment has its Python
        return replace(self, python=self.python.absolute(), find_links=links)

    @property
    def local_packages(self) -> tuple[str, ...]:
        """The names of the ROCm packages in a ``find_links`` folder (``rocm-sdk-core``)."""
        folder = _find_local_folder(self.find_links)
        files = folder.glob("rocm*.whl") if folder is not None else ()
        return tuple(sorted({path.name.split("-")[0].replace("_", "-") for path in files}))

    @property
    def source(self) -> PackageSource:
        """Where ROCm comes from."""
        return PackageSource(self.index_url, self.find_links, self.cache_dir, self.pre)


def collect_inputs(spec: EnvironmentSpec, env: Mapping[str, str]) -> dict[str, object]:
    """Return all that the content of an environment depends on; credentials are not among it."""
    return {
        "format": _FORMAT,
        "python": str(spec.python),
        "python_version": query_python_version(spec.python, env),
        "platform": sys.platform,
        "requirement": spec.requirement,
        "target_family": read_target_family(env),
        "index_url": hide_credentials(spec.index_url or ""),
        "find_links": _list_offered(spec.find_links),
        "pre": spec.pre,
        "extra_requirements": sorted(spec.extra_requirements),
    }


def read_target_family(env: Mapping[str, str]) -> str:
    """Return the family that ROCm's source distribution ``rocm`` is told to require packages of ("": none).

    Source: ROCm/TheRock, ``determine_target_family`` in ``_dist_info.py`` of that distribution.
    """
    return env.get("ROCM_SDK_TARGET_FAMILY", "")


def _list_offered(find_links: str | None) -> list[object]:
    """Return what ``--find-links`` offers: in a folder, name, size and time of the ROCm packages."""
    folder = _find_local_folder(find_links)
    if folder is None:
        return [hide_credentials(find_links)] if find_links else []
    if not folder.is_dir():
        raise SdkError(
            f"--find-links {find_links} is not a folder", tip="give a folder with rocm*.whl, or a URL"
        )
    states = [(path.name, path.stat()) for path in sorted(folder.glob("rocm*"))]
    return [str(folder.resolve()), *([name, state.st_size, state.st_mtime_ns] for name, state in states)]


def _find_local_folder(find_links: str | None) -> Path | None:
    if not find_links:
        return None
    if find_links.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        return Path(unquote(urlsplit(find_links).path))
    return None if "://" in find_links else Path(find_links)


def query_python_version(python: Path, env: Mapping[str, str]) -> str:
    """Ask an interpreter for its version, ``3.11.7`` or ``3.13.0t``, once; SdkError when it does not run."""
    if not python.is_file():
        raise SdkError(f"there is no Python at {python}", tip="give --python a Python interpreter")
    state = python.stat()
    file = (str(python), state.st_ino, state.st_mtime_ns)
    if file in _VERSIONS:
        return _VERSIONS[file]
    program = (
        "import sys, sysconfig; free = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '';"
        "print('.'.join(map(str, sys.version_info[:3])) + free)"
    )
    _VERSIONS[file] = capture_output(
        [python, "-I", "-S", "-c", program], env=env, check=SdkError, description=f"asking {python} for its version",
        tip="give --python a Python interpreter",
    )  # fmt: skip
    return _VERSIONS[file]


def name_environment(spec: EnvironmentSpec, version: str) -> str:
    """Return the folder name of an environment: Python ``version`` and ROCm specifier, readable."""
    text = spec.rocm_spec
    words = {">=": "ge", "<=": "le", "!=": "not", "~=": "about", ">": "gt", "<": "lt", "=": "", "*": "any"}
    for sign, word in words.items():
        text = text.replace(sign, word)
    short = ".".join(version.split(".")[:2]) + ("t" if version.endswith("t") else "")
    return f"py{short}-rocm-{re.sub(r'[^A-Za-z0-9.+]+', '-', text).strip('-')}"


def compute_fingerprint(inputs: Mapping[str, object]) -> str:
    """Return a digest of the inputs: the same for the same environment."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
