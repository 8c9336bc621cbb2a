"""Isolated build environments with ROCm inside, made whole or not at all, used again when nothing changed.

An environment is named after its Python and its ROCm version. ``environment.json`` in it says
from which inputs it was made and is written last: without that record, or with another
fingerprint, it is made anew, while the old one waits beside in case that fails.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels import log
from rocm_wheels.errors import SdkError
from rocm_wheels.model.lines import unusable_tools
from rocm_wheels.model.project import Platform
from rocm_wheels.process import capture
from rocm_wheels.sdk.environment_spec import (
    EnvironmentSpec,
    environment_inputs,
    environment_name,
    fingerprint,
    python_version,
    target_family,
)
from rocm_wheels.sdk.interpreter import python_in
from rocm_wheels.sdk.shared import SHARED, forget_shared
from rocm_wheels.sdk.uv import PackageSource, make_venv, pip_install, pip_uninstall
from rocm_wheels.workspace import Workspace, exclusive, write_json, write_whole

OnLine = Callable[[str], None] | None
RECORD = "environment.json"
_BELOW = "rocm-wheels-below.pth"


@dataclass(frozen=True)
class BuildEnvironment:
    """A Python environment to build in. ``created``: it was made by this call, not found."""

    python: Path
    bin: Path
    prefix: Path
    created: bool


def ensure_environment(
    spec: EnvironmentSpec,
    workspace: Workspace,
    env: Mapping[str, str],
    on_line: OnLine = None,
    *,
    upgrade: bool = False,
) -> BuildEnvironment:
    """Return the environment of ``spec``, making it when there is none with the same inputs.

    A complete one is used without touching the network, with ``upgrade`` only when the ROCm version
    is pinned (``==``): an open specifier may have a newer answer by now. SdkError when ROCm
    cannot be installed; the environment that was there before is there afterwards, too.
    """
    spec = spec.absolute()
    inputs = environment_inputs(spec, env)
    prefix = workspace.environments / environment_name(spec, str(inputs["python_version"]))
    with exclusive(
        workspace.environments / ".locks" / prefix.name, what=f"the build environment {prefix.name}"
    ):
        before = _recover(prefix)
        if before == fingerprint(inputs) and (spec.pinned or not upgrade):
            return _environment(prefix, created=False)
        _say_why(prefix, before, upgrade=upgrade)
        forget_shared(workspace.root / SHARED, prefix)
        _make(spec, prefix, inputs, env=env, on_line=on_line)
        return _environment(prefix, created=True)


@dataclass(frozen=True)
class Looked:
    """What there is of an environment, with nothing touched: its inputs now, and why it must be made.

    ``environment``: the complete one that is there, of whatever inputs. ``why`` is empty when it is current.
    """

    inputs: Mapping[str, str]
    environment: BuildEnvironment | None
    why: str


def look_for_environment(spec: EnvironmentSpec, workspace: Workspace, env: Mapping[str, str]) -> Looked:
    """Say whether the environment of ``spec`` would be made, and because of which input."""
    spec = spec.absolute()
    inputs = environment_inputs(spec, env)
    prefix = workspace.environments / environment_name(spec, str(inputs["python_version"]))
    shown = {name: value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()}
    before = _record(prefix)
    if before is None:
        return Looked(shown, None, "not made yet")
    environment = _environment(prefix, created=False)
    if before["fingerprint"] == fingerprint(inputs):
        return Looked(shown, environment, "")
    then = before.get("inputs", {})
    changed = [name for name in inputs if then.get(name) != json.loads(json.dumps(inputs[name]))]
    return Looked(shown, environment, f"{', '.join(changed) or 'its format'} changed")


def install_into(
    python: Path, spec: EnvironmentSpec, env: Mapping[str, str], on_line: OnLine = None
) -> BuildEnvironment:
    """Install ROCm and the build tools into an existing environment, replacing what is there of ROCm."""
    spec, python = spec.absolute(), python.absolute()
    python_version(python, env)
    names = {"rocm", "rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-devel", *spec.local_packages}
    names |= {f"rocm-sdk-{extra}" for extra in spec.extras if extra.startswith("device-gfx")}
    again = [word for name in sorted(names) for word in ("--reinstall-package", name)]
    _install(python, [*again, "--upgrade", spec.requirement], spec, env, on_line, cwd=python.parent)
    return _environment(_prefix_of(python, env), created=False)


def ensure_layer(
    base: BuildEnvironment,
    prefix: Path,
    below: Sequence[Path],
    env: Mapping[str, str],
    *,
    python_tag: str,
    on_line: OnLine = None,
) -> BuildEnvironment:
    """Return a virtual environment over another one, making it when it is not there as a whole.

    What is installed in it goes before what the packages ``below`` it have. Raises SdkError.
    """
    place = layer_packages(prefix, python_tag) / _BELOW  # written last
    text = "".join(f"{folder}\n" for folder in below)
    if not (python_in(prefix).exists() and place.is_file() and place.read_text(encoding="utf-8") == text):
        if prefix.exists():
            shutil.rmtree(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        make_venv(base.python, prefix, env, on_line=on_line)
        write_whole(place, text)
    return layer_at(prefix)


def layer_at(prefix: Path) -> BuildEnvironment:
    """Return a layer that is, or will be, at a place."""
    return _environment(prefix, created=False)


def layer_packages(prefix: Path, python_tag: str) -> Path:
    """Return the folder of packages of a layer for ``cp312`` or ``cp313t``."""
    if sys.platform == "win32":
        return prefix / "Lib" / "site-packages"
    return prefix / "lib" / f"python{python_tag[2]}.{python_tag[3:]}" / "site-packages"


def install_requirements(
    environment: BuildEnvironment,
    requirements: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    on_line: OnLine = None,
    source: PackageSource | None = None,
    again: Sequence[str] = (),
    platform: Platform = "windows" if sys.platform == "win32" else "linux",
) -> None:
    """Install requirements: a ``Path`` is a requirements file, a ``str`` a requirement.

    Packages named in ``again`` that belong to it are installed anew. Those that are no good on the platform
    are not installed, whoever requires them: ninja on Windows, which is the system's there.
    """
    if not requirements:
        return
    words = [word for name in again for word in ("--reinstall-package", name)]
    for one in requirements:
        words += ["--requirement", str(one.resolve())] if isinstance(one, Path) else [one]
    shown = ", ".join(one.name if isinstance(one, Path) else one for one in requirements)
    without = "".join(f"{name}; sys_platform == 'none'\n" for name in unusable_tools(platform))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        overrides = Path(folder, "overrides.txt")
        overrides.write_text(without, encoding="utf-8")
        pip_install(
            environment.python, [*words, *(["--overrides", str(overrides)] if without else [])],
            source or PackageSource(), env,
            what=f"installing {shown}", cwd=environment.prefix, on_line=on_line,
        )  # fmt: skip


def install_wheel(
    environment: BuildEnvironment,
    wheel: Path,
    *,
    env: Mapping[str, str],
    on_line: OnLine = None,
    dependencies: bool = False,
    source: PackageSource | None = None,
) -> None:
    """Install one wheel in place of what there is of that name, the same version included.

    Without ``dependencies`` no index is asked; with them, what is installed and fits stays.
    """
    name = wheel.name.split("-")[0].replace("_", "-")
    how = ["--reinstall-package", name] if dependencies else ["--reinstall", "--no-deps", "--no-index"]
    pip_install(
        environment.python, [*how, str(wheel.resolve())], source or PackageSource(), env,
        what=f"installing {wheel.name}", cwd=environment.prefix, on_line=on_line,
    )  # fmt: skip


def uninstall(environment: BuildEnvironment, distribution: str, *, env: Mapping[str, str]) -> None:
    """Remove a distribution from an environment; one that is not there does not matter."""
    pip_uninstall(environment.python, [distribution], env, cwd=environment.prefix)


def _make(
    spec: EnvironmentSpec,
    prefix: Path,
    inputs: Mapping[str, object],
    *,
    env: Mapping[str, str],
    on_line: OnLine,
) -> None:
    """Make the environment at its final place (scripts in it hold its path); the old one waits beside."""
    old = _beside(prefix)
    if prefix.exists():
        prefix.rename(old)
    try:
        make_venv(spec.python, prefix, env, on_line=on_line)
        _install(python_in(prefix), [spec.requirement], spec, env, on_line, cwd=prefix)
        write_json(prefix / RECORD, {"fingerprint": fingerprint(inputs), "inputs": inputs})
    except BaseException:
        _recover(prefix)
        raise
    if old.exists():
        shutil.rmtree(old)


def _install(
    python: Path,
    words: Sequence[str],
    spec: EnvironmentSpec,
    env: Mapping[str, str],
    on_line: OnLine,
    *,
    cwd: Path,
) -> None:
    # Packages made anew keep their names and versions: uv's cache must look at the files again.
    refresh = [word for name in spec.local_packages for word in ("--refresh-package", name)]
    # ROCm's own rocm is built where it is installed, for a target family. uv keeps that build, and
    # would give it out for every other family: it keeps one for each set of such settings.
    family = ["--config-settings-package", f"rocm:target-family={target_family(env)}"]
    what = f"installing {spec.requirement}"
    pip_install(python, [*refresh, *family, *words], spec.source, env, what=what, cwd=cwd, on_line=on_line)
    _check_extras(python, spec, env)
    if spec.extra_requirements:
        tools = PackageSource(cache_dir=spec.cache_dir)
        what = f"installing {', '.join(spec.extra_requirements)}"
        pip_install(python, spec.extra_requirements, tools, env, what=what, cwd=cwd, on_line=on_line)


def _check_extras(python: Path, spec: EnvironmentSpec, env: Mapping[str, str]) -> None:
    """Refuse an extra that the installed rocm has not: installers only warn, and install nothing for it."""
    program = "import importlib.metadata as m; print(*(m.metadata('rocm').get_all('Provides-Extra') or []))"
    said = capture(
        [python, "-c", program], env=env, cwd=python.parent, check=SdkError, what="reading rocm's extras"
    )
    there = said.lower().replace("_", "-").split()
    missing = [extra for extra in spec.all_extras if extra not in there]
    if missing:
        raise SdkError(
            f"the rocm that fits {spec.requirement} has no extra {', '.join(missing)}",
            tip=f"it has {', '.join(sorted(there)) or 'none: is it the ROCm of AMD? check --index-url'}",
        )


def _recover(prefix: Path) -> str | None:
    """Undo what a killed run left; returns the fingerprint of the complete environment, if there is one."""
    old = _beside(prefix)
    if prefix.exists() and _recorded(prefix) is None:
        shutil.rmtree(prefix)
    if old.exists():
        if prefix.exists():
            shutil.rmtree(old)
        else:
            old.rename(prefix)
    return _recorded(prefix)


def _recorded(prefix: Path) -> str | None:
    """Return the fingerprint that an environment was made with; ``None`` when it is not complete."""
    known = _record(prefix)
    return None if known is None else str(known["fingerprint"])


def _record(prefix: Path) -> dict[str, Any] | None:
    path = prefix / RECORD
    if not path.is_file() or not python_in(prefix).exists():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return known if isinstance(known, dict) and "fingerprint" in known else None


def _say_why(prefix: Path, before: str | None, *, upgrade: bool) -> None:
    if before is not None:
        why = "to look for a newer ROCm" if upgrade else "its inputs have changed"
        log.note(f"making the build environment {prefix.name} anew: {why}")


def _prefix_of(python: Path, env: Mapping[str, str]) -> Path:
    program = "import sys; print(sys.prefix)"
    return Path(
        capture([python, "-c", program], env=env, check=SdkError, what=f"asking {python} for its prefix")
    )


def _beside(prefix: Path) -> Path:
    return prefix.with_name(f".{prefix.name}.old")


def _environment(prefix: Path, *, created: bool) -> BuildEnvironment:
    python = python_in(prefix)
    return BuildEnvironment(python=python, bin=python.parent, prefix=prefix, created=created)
