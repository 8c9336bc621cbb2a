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
from rocm_wheels.model.lines import list_unusable_tools
from rocm_wheels.model.project import Platform
from rocm_wheels.process import capture_output
from rocm_wheels.sdk.environment_spec import (
    EnvironmentSpec,
    collect_inputs,
    name_environment,
    compute_fingerprint,
    query_python_version,
    read_target_family,
)
from rocm_wheels.sdk.interpreter import locate_python
from rocm_wheels.sdk.shared import SHARED_FOLDER, forget_shared_sdk
from rocm_wheels.sdk.uv import PackageSource, make_venv, pip_install, pip_uninstall
from rocm_wheels.workspace import Workspace, lock_folder, write_json_file, write_atomically

OnLine = Callable[[str], None] | None
ENVIRONMENT_RECORD = "environment.json"
_LAYER_PATHS = "rocm-wheels-below.pth"


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
    spec = spec.with_absolute_paths()
    inputs = collect_inputs(spec, env)
    prefix = workspace.environments / name_environment(spec, str(inputs["query_python_version"]))
    with lock_folder(
        workspace.environments / ".locks" / prefix.name, purpose=f"the build environment {prefix.name}"
    ):
        before = _recover_environment(prefix)
        if before == compute_fingerprint(inputs) and (spec.pinned or not upgrade):
            return _describe_environment(prefix, created=False)
        _log_reason(prefix, before, upgrade=upgrade)
        forget_shared_sdk(workspace.root / SHARED_FOLDER, prefix)
        _make_environment(spec, prefix, inputs, env=env, on_line=on_line)
        return _describe_environment(prefix, created=True)


@dataclass(frozen=True)
class EnvironmentStatus:
    """What there is of an environment, with nothing touched: its inputs now, and why it must be made.

    ``environment``: the complete one that is there, of whatever inputs. ``why`` is empty when it is current.
    """

    inputs: Mapping[str, str]
    environment: BuildEnvironment | None
    why: str


def check_environment(
    spec: EnvironmentSpec, workspace: Workspace, env: Mapping[str, str]
) -> EnvironmentStatus:
    """Say whether the environment of ``spec`` would be made, and because of which input."""
    spec = spec.with_absolute_paths()
    inputs = collect_inputs(spec, env)
    prefix = workspace.environments / name_environment(spec, str(inputs["query_python_version"]))
    input_texts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()
    }
    before = _read_record(prefix)
    if before is None:
        return EnvironmentStatus(input_texts, None, "not made yet")
    environment = _describe_environment(prefix, created=False)
    if before["fingerprint"] == compute_fingerprint(inputs):
        return EnvironmentStatus(input_texts, environment, "")
    old_inputs = before.get("inputs", {})
    changed = [name for name in inputs if old_inputs.get(name) != json.loads(json.dumps(inputs[name]))]
    return EnvironmentStatus(input_texts, environment, f"{', '.join(changed) or 'its format'} changed")


def install_into(
    python: Path, spec: EnvironmentSpec, env: Mapping[str, str], on_line: OnLine = None
) -> BuildEnvironment:
    """Install ROCm and the build tools into an existing environment, replacing what is there of ROCm."""
    spec, python = spec.with_absolute_paths(), python.absolute()
    query_python_version(python, env)
    names = {"rocm", "rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-devel", *spec.local_packages}
    names |= {f"rocm-sdk-{extra}" for extra in spec.extras if extra.startswith("device-gfx")}
    options = [word for name in sorted(names) for word in ("--reinstall-package", name)]
    _install_rocm(python, [*options, "--upgrade", spec.requirement], spec, env, on_line, cwd=python.parent)
    return _describe_environment(_query_prefix(python, env), created=False)


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
    paths_file = locate_layer_packages(prefix, python_tag) / _LAYER_PATHS  # written last
    text = "".join(f"{folder}\n" for folder in below)
    if not (
        locate_python(prefix).exists()
        and paths_file.is_file()
        and paths_file.read_text(encoding="utf-8") == text
    ):
        if prefix.exists():
            shutil.rmtree(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        make_venv(base.python, prefix, env, on_line=on_line)
        write_atomically(paths_file, text)
    return locate_layer(prefix)


def locate_layer(prefix: Path) -> BuildEnvironment:
    """Return a layer that is, or will be, at a place."""
    return _describe_environment(prefix, created=False)


def locate_layer_packages(prefix: Path, python_tag: str) -> Path:
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
    reinstall: Sequence[str] = (),
    platform: Platform = "windows" if sys.platform == "win32" else "linux",
) -> None:
    """Install requirements: a ``Path`` is a requirements file, a ``str`` a requirement.

    Packages named in ``reinstall`` that belong to it are installed anew. Those that are no good on the platform
    are not installed, whoever requires them: ninja on Windows, which is the system's there.
    """
    if not requirements:
        return
    words = [word for name in reinstall for word in ("--reinstall-package", name)]
    for requirement in requirements:
        words += (
            ["--requirement", str(requirement.resolve())] if isinstance(requirement, Path) else [requirement]
        )
    names = ", ".join(
        requirement.name if isinstance(requirement, Path) else requirement for requirement in requirements
    )
    override_text = "".join(f"{name}; sys_platform == 'none'\n" for name in list_unusable_tools(platform))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
        overrides = Path(folder, "overrides.txt")
        overrides.write_text(override_text, encoding="utf-8")
        pip_install(
            environment.python, [*words, *(["--overrides", str(overrides)] if override_text else [])],
            source or PackageSource(), env,
            activity=f"installing {names}", cwd=environment.prefix, on_line=on_line,
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
        activity=f"installing {wheel.name}", cwd=environment.prefix, on_line=on_line,
    )  # fmt: skip


def uninstall_distribution(
    environment: BuildEnvironment, distribution: str, *, env: Mapping[str, str]
) -> None:
    """Remove a distribution from an environment; one that is not there does not matter."""
    pip_uninstall(environment.python, [distribution], env, cwd=environment.prefix)


def _make_environment(
    spec: EnvironmentSpec,
    prefix: Path,
    inputs: Mapping[str, object],
    *,
    env: Mapping[str, str],
    on_line: OnLine,
) -> None:
    """Make the environment at its final place (scripts in it hold its path); the old one waits beside."""
    old = _locate_old(prefix)
    if prefix.exists():
        prefix.rename(old)
    try:
        make_venv(spec.python, prefix, env, on_line=on_line)
        _install_rocm(locate_python(prefix), [spec.requirement], spec, env, on_line, cwd=prefix)
        write_json_file(
            prefix / ENVIRONMENT_RECORD, {"fingerprint": compute_fingerprint(inputs), "inputs": inputs}
        )
    except BaseException:
        _recover_environment(prefix)
        raise
    if old.exists():
        shutil.rmtree(old)


def _install_rocm(
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
    family = ["--config-settings-package", f"rocm:target-family={read_target_family(env)}"]
    activity = f"installing {spec.requirement}"
    pip_install(
        python, [*refresh, *family, *words], spec.source, env, activity=activity, cwd=cwd, on_line=on_line
    )
    _check_extras(python, spec, env)
    if spec.extra_requirements:
        tools = PackageSource(cache_dir=spec.cache_dir)
        activity = f"installing {', '.join(spec.extra_requirements)}"
        pip_install(python, spec.extra_requirements, tools, env, activity=activity, cwd=cwd, on_line=on_line)


def _check_extras(python: Path, spec: EnvironmentSpec, env: Mapping[str, str]) -> None:
    """Refuse an extra that the installed rocm has not: installers only warn, and install nothing for it."""
    program = "import importlib.metadata as m; print(*(m.metadata('rocm').get_all('Provides-Extra') or []))"
    output = capture_output(
        [python, "-c", program],
        env=env,
        cwd=python.parent,
        check=SdkError,
        description="reading rocm's extras",
    )
    available = output.lower().replace("_", "-").split()
    missing = [extra for extra in spec.all_extras if extra not in available]
    if missing:
        raise SdkError(
            f"the rocm that fits {spec.requirement} has no extra {', '.join(missing)}",
            tip=f"it has {', '.join(sorted(available)) or 'none: is it the ROCm of AMD? check --index-url'}",
        )


def _recover_environment(prefix: Path) -> str | None:
    """Undo what a killed run left; returns the fingerprint of the complete environment, if there is one."""
    old = _locate_old(prefix)
    if prefix.exists() and _read_fingerprint(prefix) is None:
        shutil.rmtree(prefix)
    if old.exists():
        if prefix.exists():
            shutil.rmtree(old)
        else:
            old.rename(prefix)
    return _read_fingerprint(prefix)


def _read_fingerprint(prefix: Path) -> str | None:
    """Return the fingerprint that an environment was made with; ``None`` when it is not complete."""
    record = _read_record(prefix)
    return None if record is None else str(record["fingerprint"])


def _read_record(prefix: Path) -> dict[str, Any] | None:
    path = prefix / ENVIRONMENT_RECORD
    if not path.is_file() or not locate_python(prefix).exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and "fingerprint" in record else None


def _log_reason(prefix: Path, before: str | None, *, upgrade: bool) -> None:
    if before is not None:
        why = "to look for a newer ROCm" if upgrade else "its inputs have changed"
        log.log_note(f"making the build environment {prefix.name} anew: {why}")


def _query_prefix(python: Path, env: Mapping[str, str]) -> Path:
    program = "import sys; print(sys.prefix)"
    return Path(
        capture_output(
            [python, "-c", program], env=env, check=SdkError, description=f"asking {python} for its prefix"
        )
    )


def _locate_old(prefix: Path) -> Path:
    return prefix.with_name(f".{prefix.name}.old")


def _describe_environment(prefix: Path, *, created: bool) -> BuildEnvironment:
    python = locate_python(prefix)
    return BuildEnvironment(python=python, bin=python.parent, prefix=prefix, created=created)
