"""What of ours is installed in a build environment: the wheels that others are built against."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.errors import BuildError
from rocm_wheels.pipeline.facts.ready import Ready, digest_of_records
from rocm_wheels.sdk.install import install_wheel, uninstall
from rocm_wheels.workspace import Workspace, exclusive, write_json

_INSTALLED = "rocm-wheels-installed.json"
_PATIENCE_SECONDS = 24 * 3600.0  # another step installs something, or imports a wheel


@contextmanager
def changing(ready: Ready, workspace: Workspace, *, what: str) -> Iterator[None]:
    """Hold an environment to change what is installed in it; other steps wait."""
    place = workspace.environments / ".locks" / f"{ready.environment.prefix.name}.packages"
    with exclusive(place, what=what, patience=_PATIENCE_SECONDS):
        yield


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
    return digest_of_records(ready.site_packages, f"{distribution.replace('-', '_')}-*.dist-info")


def forget_built(ready: Ready, *, distribution: str, env: Mapping[str, str]) -> None:
    """Take a wheel out of the environment again: nothing must be built against one that failed."""
    record = ready.environment.prefix / _INSTALLED
    known = _read(record)
    known.pop(distribution, None)
    write_json(record, known)
    uninstall(ready.environment, distribution, env=env)


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
