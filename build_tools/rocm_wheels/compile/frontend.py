"""Front ends: run a project's own build, and take exactly the wheel that was asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from rocm_wheels.compile.failure import BuildFailed, explain_failure, first_failure, repeat_command
from rocm_wheels.compile.generated import leftovers_excluded
from rocm_wheels.compile.hooks import hooks_of
from rocm_wheels.compile.hooks.hook import Preparation
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.rocm_init import Preloads
from rocm_wheels.compile.trees import enter_tree, steady_cmake, tree_key, trees_of
from rocm_wheels.errors import BuildError
from rocm_wheels.model.versions import local_part
from rocm_wheels.process import Finished, run


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that a front end made; ``tree`` says what happened to the build tree."""

    path: Path
    distribution: str
    version: str
    tree: str
    seconds: float


def build_wheel(
    request: BuildRequest,
    *,
    base: Mapping[str, str],
    env: Mapping[str, str],
    python: Path,
    python_tag: str,
    out_dir: Path,
    log: Path,
    preloads: Preloads | None = None,
    clean: bool = False,
    on_line: Callable[[str], None] | None = None,
    ran: Callable[[list[str], Mapping[str, str], Finished], None] | None = None,
) -> BuiltWheel:
    """Build one wheel into ``out_dir``.

    ``env`` is the build's whole environment, in which all that the build requires is installed, and ``base``
    the one a user would repeat the command in. ``preloads`` is for torch. ``ran`` is told how it ended.
    Raises BuildFailed when the front end fails, BuildError when it does not make the right wheel.
    """
    folder = request.folder
    out_dir.mkdir(parents=True, exist_ok=True)
    for old in out_dir.glob(".fresh-*"):  # of a build that was killed
        shutil.rmtree(old)
    waiting = trees_of(request.source, base)
    marker = waiting / request.project.name / "running.json"
    with (
        leftovers_excluded(request.source, marker, log, base),
        tempfile.TemporaryDirectory(prefix=".fresh-", dir=out_dir) as name,
    ):
        key = tree_key(request, env, python=python, python_tag=python_tag)
        tree = enter_tree(request, key, waiting, env=base, clean=clean)
        env = steady_cmake(request, python, env)
        hooks_of(request.project.name).prepare(request, Preparation(base, preloads))
        fresh = Path(name).absolute()
        argv = front_end_command(request, folder, python=python, out_dir=fresh)
        shown = front_end_command(request, folder, python=python, out_dir=out_dir.absolute())
        begin = log.stat().st_size if log.is_file() else 0
        what = f"building {request.project.name}"
        finished = run(argv, env=env, cwd=folder, log=log, on_line=on_line, check=None, what=what)
        if ran is not None:
            ran(shown, env, finished)
        if finished.returncode:
            command = repeat_command(shown, cwd=folder, base=base, env=env)
            raise _failed(request, finished.returncode, log, begin, command)
        wheel, version = the_wheel(request, fresh)
        path = out_dir / wheel.name
        wheel.replace(path)
    return BuiltWheel(path, request.project.distribution, version, tree, finished.seconds)


def front_end_command(request: BuildRequest, folder: Path, *, python: Path, out_dir: Path) -> list[str]:
    """Return the command line that builds a wheel of the tree in ``folder`` into ``out_dir``."""
    build = request.project.build
    if build.front_end == "setup.py":
        return [str(python), "setup.py", "bdist_wheel", "--dist-dir", str(out_dir)]
    argv = [str(python), "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out_dir)]
    if request.platform == "windows":
        # ninja is the system's there (release_lines.yaml), which the check of requirements cannot see
        argv.append("--skip-dependency-check")
    settings = [*build.config_settings, *hooks_of(request.project.name).settings(request, folder)]
    return [*argv, *(f"-C{setting}" for setting in settings)]


def the_wheel(request: BuildRequest, folder: Path) -> tuple[Path, str]:
    """Return the only wheel in a folder and its version. Raises BuildError if it is not the one expected."""
    name = request.project.name
    files = sorted(path.name for path in folder.iterdir())
    wheels = [file for file in files if file.endswith(".whl")]
    if len(wheels) != 1 or len(files) != 1:
        raise BuildError(f"{name}: the build must leave one wheel, and left {', '.join(files) or 'nothing'}")
    try:
        distribution, version, _, _ = parse_wheel_filename(wheels[0])
    except InvalidWheelFilename as cause:
        raise BuildError(f"{name}: the build left {wheels[0]}, which is no wheel's name") from cause
    if distribution != canonicalize_name(request.project.distribution):
        raise BuildError(
            f"{name}: the build must make a wheel of {request.project.distribution}, and made {wheels[0]}"
        )
    if not _version_fits(request, version):
        wanted = request.version or f"…+{local_part(request.suffix)}"
        raise BuildError(
            f"{name}: the wheel must have version {wanted}, and is {wheels[0]}",
            tip="does its setup.py read " + " and ".join(_version_variables(request)) + "?",
        )
    return folder / wheels[0], str(version)


def _version_variables(request: BuildRequest) -> tuple[str, ...]:
    rules = request.project.version
    return rules.variables or ((rules.suffix_variable,) if rules.suffix_variable else ("a version variable",))


def _version_fits(request: BuildRequest, version: Version) -> bool:
    """Compare with what was asked for. torch adds ``.post<n>`` for a build number above 1."""
    if request.version is not None:
        again = f"{request.version}.post{request.build_number}"
        return version in (
            Version(request.version),
            *([Version(again)] if int(request.build_number) > 1 else []),
        )
    local = local_part(request.suffix)
    return not local or f".{version.local or ''}".endswith(f".{local}")


def _failed(request: BuildRequest, code: int, log: Path, begin: int, command: str) -> BuildFailed:
    with log.open("rb") as file:
        file.seek(begin)
        failure = first_failure(file.read().decode("utf-8", "replace").splitlines())
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    what = f"building {request.project.name} {how}"
    return BuildFailed(
        explain_failure(what, failure, log=log, command=command), failure=failure, log=log, command=command
    )
