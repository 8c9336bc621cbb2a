"""A build environment with ROCm in it, and what its ROCm says: asked once, then remembered beside it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from rocm_wheels.compile.sdk_tree import SdkTree, inspect_sdk
from rocm_wheels.errors import SdkError
from rocm_wheels.pipeline.facts.packages import read_record_lines
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.ask import RocmSdk, query_sdk
from rocm_wheels.sdk.environment_spec import read_target_family
from rocm_wheels.sdk.install import BuildEnvironment
from rocm_wheels.sdk.shared import SHARED_FOLDER, share_sdk
from rocm_wheels.workspace import Workspace, write_json_file

_ANSWERS_NAME = "rocm-wheels-answers.json"
_ANSWERS_FORMAT = 2
_TAG_SCRIPT = (
    "import sys, sysconfig, json; "
    "free = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''; "
    "print(json.dumps([sys.implementation.name, 'cp%d%d%s' % (*sys.version_info[:2], free), "
    "sysconfig.get_path('purelib'), sys.prefix]))"
)


@dataclass(frozen=True)
class ReadyEnvironment:
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
    def sdk_tree(self) -> SdkTree:
        """The parts of the SDK."""
        sdk = self.sdk
        return inspect_sdk(version=sdk.version, root=sdk.root, cmake=sdk.cmake, bin=sdk.bin)


def inspect_environment(
    environment: BuildEnvironment, request: SdkRequest, workspace: Workspace, env: Mapping[str, str]
) -> ReadyEnvironment:
    """Ask what an environment has, or take what it said before of the very same packages. Raises SdkError.

    ROCm is reached by a path that all environments with the same packages share.
    """
    if request.current_env:  # somebody else's: nothing is written there
        return _ask_environment(environment, env)
    answers_path = environment.prefix / _ANSWERS_NAME
    if (cached := _read_answers(answers_path, environment, env)) is not None:
        return cached
    ready = _ask_environment(environment, env)
    shared = share_sdk(ready.sdk, ready.content, workspace.root / SHARED_FOLDER, _digest_rocm_packages)
    ready = replace(ready, sdk=shared)
    write_json_file(
        answers_path,
        {
            "format": _ANSWERS_FORMAT,
            "packages": _list_rocm_packages(ready.site_packages),
            "family": read_target_family(env),
            "sdk": {name: str(v) if isinstance(v, Path) else v for name, v in asdict(ready.sdk).items()},
            "python_tag": ready.python_tag,
            "site_packages": str(ready.site_packages),
            "content": ready.content,
        },
    )
    return ready


def digest_records(site_packages: Path, pattern: str) -> str:
    """Digest the RECORD files of installed packages: they hold the hash of every file."""
    digest = hashlib.sha256()
    for record in sorted(site_packages.glob(f"{pattern}/RECORD")):
        digest.update(b"%s\n%s\n" % (os.fsencode(record.parent.name), read_record_lines(record)))
    return digest.hexdigest()[:16]


def _ask_environment(environment: BuildEnvironment, env: Mapping[str, str]) -> ReadyEnvironment:
    sdk = query_sdk(environment.python, env)
    answer = capture_output([environment.python, "-I", "-c", _TAG_SCRIPT], env=env, check=SdkError)
    implementation, tag, purelib, _ = json.loads(answer)
    if implementation != "cpython":
        raise SdkError(f"{environment.python} is {implementation}; wheels of torch are built for CPython")
    site_packages = Path(purelib)
    return ReadyEnvironment(environment, sdk, tag, site_packages, _digest_rocm_packages(site_packages))


def _digest_rocm_packages(site_packages: Path) -> str:
    return digest_records(site_packages, "rocm*.dist-info")


def _read_answers(
    answers_path: Path, environment: BuildEnvironment, env: Mapping[str, str]
) -> ReadyEnvironment | None:
    """Return what an environment said, unless its ROCm packages were touched since."""
    try:
        answers = json.loads(answers_path.read_text(encoding="utf-8"))
        sdk_answers = answers["sdk"]
        sdk = RocmSdk(
            version=sdk_answers["version"],
            root=Path(sdk_answers["root"]),
            cmake=Path(sdk_answers["cmake"]),
            bin=Path(sdk_answers["bin"]),
            targets=tuple(sdk_answers["targets"]),
            installed=sdk_answers["installed"],
        )
        site_packages = Path(answers["site_packages"])
        same = (answers["format"], answers["family"]) == (_ANSWERS_FORMAT, read_target_family(env))
        same = same and answers["packages"] == _list_rocm_packages(site_packages)
        same = same and all(folder.is_dir() for folder in (sdk.root, sdk.cmake, sdk.bin))
        return (
            ReadyEnvironment(environment, sdk, answers["python_tag"], site_packages, answers["content"])
            if same
            else None
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _list_rocm_packages(site_packages: Path) -> list[list[object]]:
    """Return the ROCm packages as they lie there: name, size and time of each RECORD."""
    records = [(r.parent.name, r.stat()) for r in sorted(site_packages.glob("rocm*.dist-info/RECORD"))]
    return [[name, state.st_size, state.st_mtime_ns] for name, state in records]
