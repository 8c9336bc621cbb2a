"""The build environment of a run, the SDK in it, and which of our own wheels are installed there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import BuildError, SdkError, UsageError
from rocm_wheels.pipeline.progress import LiveStep, step
from rocm_wheels.pipeline.request import SdkRequest
from rocm_wheels.pipeline.summary import human_time
from rocm_wheels.process import capture
from rocm_wheels.sdk.ask import RocmSdk, ask
from rocm_wheels.sdk.install import (
    BuildEnvironment,
    ensure_environment,
    existing_environment,
    install_into,
    install_wheel,
    uninstall,
)
from rocm_wheels.workspace import Workspace, write_json

_TAG = (
    "import sys, sysconfig, json; "
    "free = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''; "
    "print(json.dumps([sys.implementation.name, 'cp%d%d%s' % (*sys.version_info[:2], free), "
    "sysconfig.get_path('purelib'), sys.prefix]))"
)
_INSTALLED = "rocm-wheels-installed.json"


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


def install_rocm(
    request: SdkRequest, workspace: Workspace, env: Mapping[str, str], *, renew: bool = False
) -> Ready:
    """Install the ROCm packages where ``request`` says; nothing is done where they already are.

    ``renew``: an open version specifier is resolved again. Raises SdkError.
    """
    if request.current_env:
        with step(f"install-rocm into {request.python}") as shown:
            return _ask(install_into(request.python, request, env, shown.line), env)
    shown = LiveStep("install-rocm")
    shown.start()
    try:
        environment = ensure_environment(request, workspace, env, shown.line, upgrade=renew)
    finally:
        shown.stop()
    how = f"done in {human_time(shown.seconds)}" if environment.created else "up to date"
    log.note(f"install-rocm: {how} ({request.requirement})")
    return _ask(environment, env)


def find_rocm(request: SdkRequest, workspace: Workspace, env: Mapping[str, str]) -> Ready:
    """Return the environment that an earlier install-rocm made. Raises UsageError when there is none."""
    if request.current_env:
        place = request.python.parent
        return _ask(BuildEnvironment(request.python, place, place.parent, created=False), env)
    environment = existing_environment(request, workspace, env)
    if environment is None:
        raise UsageError(
            f"no build environment with rocm{request.rocm_spec} for {request.python} is in "
            f"{workspace.environments}",
            tip="add --install-rocm, or run install-rocm with the same --rocm-sdk-version first",
        )
    return _ask(environment, env)


def install_built(
    ready: Ready, wheel: Path, content: str, *, distribution: str, env: Mapping[str, str]
) -> None:
    """Bring a wheel that we built into the environment, unless that very ``content`` is there already."""
    record = ready.environment.prefix / _INSTALLED
    known = _read(record)
    mark = [content, _installed_when(ready, distribution)]
    if known.get(distribution) == mark and mark[1]:
        return
    if known.pop(distribution, None) is not None:
        write_json(record, known)  # half installed must not count as installed
    install_wheel(ready.environment, wheel, env=env)
    when = _installed_when(ready, distribution)
    if not when:
        raise BuildError(f"{wheel.name} was installed, but {ready.site_packages} has no {distribution}")
    write_json(record, {**known, distribution: [content, when]})


def digest_of_installed(ready: Ready, distribution: str) -> str | None:
    """Say which wheel of a distribution is installed; ``None`` when there is none.

    It is the wheel's content when it is ours, else a digest of what its RECORD lists.
    """
    known = _read(ready.environment.prefix / _INSTALLED).get(distribution)
    when = _installed_when(ready, distribution)
    if not when:
        return None
    if known and known[1] == when:
        return str(known[0])
    return _digest_of_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


def forget_built(ready: Ready, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    record = ready.environment.prefix / _INSTALLED
    known = _read(record)
    known.pop(distribution, None)
    write_json(record, known)
    uninstall(ready.environment, distribution, env=env)


def _ask(environment: BuildEnvironment, env: Mapping[str, str]) -> Ready:
    sdk = ask(environment.python, env)
    said = capture([environment.python, "-I", "-c", _TAG], env=env, check=SdkError)
    implementation, tag, purelib, _ = json.loads(said)
    if implementation != "cpython":
        raise SdkError(f"{environment.python} is {implementation}; wheels of torch are built for CPython")
    site_packages = Path(purelib)
    return Ready(environment, sdk, tag, site_packages, _digest_of_records(site_packages, "rocm*.dist-info"))


def _digest_of_records(site_packages: Path, pattern: str) -> str:
    """Digest the RECORD files of installed packages: they hold the hash of every file."""
    digest = hashlib.sha256()
    for record in sorted(site_packages.glob(f"{pattern}/RECORD")):
        lines = [
            line for line in record.read_text(encoding="utf-8").splitlines() if ".dist-info/" not in line
        ]
        digest.update(f"{record.parent.name}\n{chr(10).join(sorted(lines))}\n".encode())
    return digest.hexdigest()[:16]


def _installed_when(ready: Ready, distribution: str) -> int:
    """Return when the metadata of an installed distribution were written (ns); 0 when it is not there."""
    pattern = distribution.replace("-", "_")
    found = sorted(ready.site_packages.glob(f"{pattern}-*.dist-info"))
    return found[0].stat().st_mtime_ns if len(found) == 1 else 0


def _read(record: Path) -> dict[str, list[object]]:
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
