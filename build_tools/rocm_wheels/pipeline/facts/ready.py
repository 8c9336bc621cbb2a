"""A build environment with ROCm in it, and what its ROCm says: asked once, then remembered beside it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from rocm_wheels.compile.sdk_tree import SdkTree, look_at_sdk
from rocm_wheels.errors import SdkError
from rocm_wheels.pipeline.facts.packages import content_of
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.process import capture
from rocm_wheels.sdk.ask import RocmSdk, ask
from rocm_wheels.sdk.environment_spec import target_family
from rocm_wheels.sdk.install import BuildEnvironment
from rocm_wheels.sdk.shared import SHARED, shared_sdk
from rocm_wheels.workspace import Workspace, write_json

_ANSWERS = "rocm-wheels-answers.json"
_FORMAT = 2
_TAG = (
    "import sys, sysconfig, json; "
    "free = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''; "
    "print(json.dumps([sys.implementation.name, 'cp%d%d%s' % (*sys.version_info[:2], free), "
    "sysconfig.get_path('purelib'), sys.prefix]))"
)


@dataclass(frozen=True)
class Ready:
    """An environment with ROCm in it: ``python_tag`` is its ABI (``cp312``, ``cp313t``).

    ``content`` is a digest over the files of the installed ROCm packages: the version alone
    does not tell two builds of it apart.
    """

    environment: BuildEnvironment
    sdk: RocmSdk
    python_tag: str
    site_packages: Path
    content: str

    @cached_property
    def tree(self) -> SdkTree:
        """The parts of the SDK."""
        said = self.sdk
        return look_at_sdk(version=said.version, root=said.root, cmake=said.cmake, bin=said.bin)


def make_ready(
    environment: BuildEnvironment, request: SdkRequest, workspace: Workspace, env: Mapping[str, str]
) -> Ready:
    """Ask what an environment has, or take what it said before of the very same packages. Raises SdkError.

    ROCm is reached by a path that all environments with the same packages share.
    """
    if request.current_env:  # somebody else's: nothing is written there
        return _asked(environment, env)
    place = environment.prefix / _ANSWERS
    if (known := _remembered(place, environment, env)) is not None:
        return known
    ready = _asked(environment, env)
    shared = shared_sdk(ready.sdk, ready.content, workspace.root / SHARED, _content)
    ready = replace(ready, sdk=shared)
    write_json(
        place,
        {
            "format": _FORMAT,
            "packages": _packages(ready.site_packages),
            "family": target_family(env),
            "sdk": {name: str(v) if isinstance(v, Path) else v for name, v in asdict(ready.sdk).items()},
            "python_tag": ready.python_tag,
            "site_packages": str(ready.site_packages),
            "content": ready.content,
        },
    )
    return ready


def digest_of_records(site_packages: Path, pattern: str) -> str:
    """Digest the RECORD files of installed packages: they hold the hash of every file."""
    digest = hashlib.sha256()
    for record in sorted(site_packages.glob(f"{pattern}/RECORD")):
        digest.update(b"%s\n%s\n" % (os.fsencode(record.parent.name), content_of(record)))
    return digest.hexdigest()[:16]


def _asked(environment: BuildEnvironment, env: Mapping[str, str]) -> Ready:
    sdk = ask(environment.python, env)
    said = capture([environment.python, "-I", "-c", _TAG], env=env, check=SdkError)
    implementation, tag, purelib, _ = json.loads(said)
    if implementation != "cpython":
        raise SdkError(f"{environment.python} is {implementation}; wheels of torch are built for CPython")
    site_packages = Path(purelib)
    return Ready(environment, sdk, tag, site_packages, _content(site_packages))


def _content(site_packages: Path) -> str:
    return digest_of_records(site_packages, "rocm*.dist-info")


def _remembered(place: Path, environment: BuildEnvironment, env: Mapping[str, str]) -> Ready | None:
    """Return what an environment said, unless its ROCm packages were touched since."""
    try:
        known = json.loads(place.read_text(encoding="utf-8"))
        said = known["sdk"]
        sdk = RocmSdk(
            version=said["version"],
            root=Path(said["root"]),
            cmake=Path(said["cmake"]),
            bin=Path(said["bin"]),
            targets=tuple(said["targets"]),
            installed=said["installed"],
        )
        site_packages = Path(known["site_packages"])
        same = (known["format"], known["family"]) == (_FORMAT, target_family(env))
        same = same and known["packages"] == _packages(site_packages)
        same = same and all(folder.is_dir() for folder in (sdk.root, sdk.cmake, sdk.bin))
        return Ready(environment, sdk, known["python_tag"], site_packages, known["content"]) if same else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _packages(site_packages: Path) -> list[list[object]]:
    """Return the ROCm packages as they lie there: name, size and time of each RECORD."""
    found = [(r.parent.name, r.stat()) for r in sorted(site_packages.glob("rocm*.dist-info/RECORD"))]
    return [[name, state.st_size, state.st_mtime_ns] for name, state in found]
