"""Isolated build environments with ROCm inside, made whole or not at all, used again when nothing changed.

An environment is named after its Python and its ROCm version. ``environment.json`` in it says
from which inputs it was made and is written last: without that record, or with another
fingerprint, it is made anew, while the old one waits beside in case that fails.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from rocm_wheels.core import errors, log, shell
from rocm_wheels.core.files import lock_folder, write_atomically, write_json_file
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import lock, project_names, release_lines
from rocm_wheels.sdk import interpreters, resolve_packages, rocm_sdk

_FORMAT = 1
_NO_EXTRA = re.compile(r"`rocm[^`]*` does not have an extra named `(?P<extra>[^`]+)`")  # uv's warning
_SPECIFIER = re.compile(r"\s*(===?|~=|!=|[<>]=?)")
_EXTRA = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_VERSIONS: dict[Path, str] = {}  # of interpreters


@dataclass(frozen=True)
class EnvironmentSpec:
    """What a build environment is made from.

    ``rocm_spec`` is a version specifier with its operator (``==7.1.0``, ``>1.0``); ``extras``
    are those of ``rocm`` besides libraries and devel.

    ``rocm_path``: an installed ROCm; no package of ROCm is installed then.

    ``packages``: what the lock ``held_by`` has of ROCm, and ``backends`` what source distributions among them
    are built with: these and no others are installed, and whatever environment has them is current.
    """

    python: Path
    rocm_spec: str = project_names.DEFAULT_ROCM
    extras: tuple[str, ...] = ()
    index_url: str | None = None
    find_links: str | None = None
    pre: bool = True
    rocm_path: Path | None = None
    packages: Mapping[str, lock.LockedPackage] = field(default_factory=dict)
    backends: Mapping[str, lock.LockedPackage] = field(default_factory=dict)
    held_by: str = ""

    @property
    def all_extras(self) -> tuple[str, ...]:
        """Every extra of ``rocm`` that is installed."""
        return tuple(sorted({"libraries", "devel", *self.extras}))

    @property
    def requirement(self) -> str:
        """The requirement on ROCm, or in words where it is installed. SdkError when it cannot be one."""
        if self.rocm_path is not None:
            return f"ROCm in {self.rocm_path}"
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            if not _SPECIFIER.match(self.rocm_spec):
                raise InvalidSpecifier(self.rocm_spec)
            SpecifierSet(self.rocm_spec)
        except InvalidSpecifier as cause:
            raise errors.SdkError(
                f"--rocm {self.rocm_spec!r} is not a version specifier",
                tip="it begins with an operator: '==7.1.0', '>=7.0,<8'",
            ) from cause
        for extra in self.extras:
            if not _EXTRA.fullmatch(extra):
                raise errors.SdkError(
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
    def local_folder(self) -> Path | None:
        """The folder that ``find_links`` names, if it is one of this machine."""
        links = self.find_links or ""
        if match := re.fullmatch(r"file://[^/]*(/[^?#]*).*", links):
            return Path(unquote(match[1]))
        return Path(links) if links and ("://" not in links or links.startswith("file:")) else None

    @property
    def local_packages(self) -> tuple[str, ...]:
        """The names of the ROCm packages in that folder (``rocm-sdk-core``)."""
        files = self.local_folder.glob("rocm*.whl") if self.local_folder is not None else ()
        return tuple(sorted({path.name.split("-")[0].replace("_", "-") for path in files}))

    @property
    def source(self) -> interpreters.PackageSource:
        """Where ROCm comes from."""
        return interpreters.PackageSource(self.index_url, self.find_links, pre=self.pre)

    @property
    def tools_source(self) -> interpreters.PackageSource:
        """Where all else comes from: the user's indexes, which do not give out ROCm and torch beside it."""
        return interpreters.PackageSource(closed=bool(self.index_url or self.find_links))


def _collect_inputs(spec: EnvironmentSpec, env: Mapping[str, str]) -> dict[str, object]:
    """Return all that the content of an environment depends on; credentials are not among it."""
    _check_folder(spec)
    offered: list[object] = [shell.hide_credentials(spec.find_links)] if spec.find_links else []
    if (folder := spec.local_folder) is not None:
        states = [(path.name, path.stat()) for path in sorted(folder.glob("rocm*"))]
        offered = [[name, state.st_size, state.st_mtime_ns] for name, state in states]
        offered.insert(0, str(folder.resolve()))
    locked = {"packages": resolve_packages.digest_packages(spec.packages)} if spec.packages else {}
    return {
        "format": _FORMAT,
        "python": str(spec.python),
        "python_version": query_python_version(spec.python, env),
        "platform": sys.platform,
        "requirement": spec.requirement,
        "target_family": read_target_family(env),
        "index_url": shell.hide_credentials(spec.index_url or ""),
        "find_links": offered,
        "pre": spec.pre,
        **locked,
    }


def read_target_family(env: Mapping[str, str]) -> str:
    """Return the family that ROCm's source distribution ``rocm`` is told to require packages of ("": none).

    Source: ROCm/TheRock, ``determine_target_family`` in ``_dist_info.py`` of that distribution.
    """
    return env.get("ROCM_SDK_TARGET_FAMILY", "")


def _check_folder(spec: EnvironmentSpec) -> None:
    """Raise SdkError for a ``find_links`` folder that is none, or without ROCm where nothing else has it."""
    folder = spec.local_folder
    if folder is None or spec.rocm_path is not None:
        return
    if not folder.is_dir():
        raise errors.SdkError(
            f"--find-links {spec.find_links} is not a folder", tip="give a folder with rocm*.whl, or a URL"
        )
    if not (spec.packages or spec.index_url or any(folder.glob("rocm-[0-9]*"))):
        raise errors.SdkError(
            f"--find-links {folder} has no package rocm, to install {spec.requirement} from",
            tip="give the folder with rocm-*.whl or rocm-*.tar.gz in it, or an index with --rocm-index",
        )


def query_python_version(python: Path, env: Mapping[str, str]) -> str:
    """Ask an interpreter, once, for its version: ``3.11.7``, ``3.13.0t``. SdkError, UsageError."""
    if not python.is_file():
        raise errors.SdkError(f"there is no Python at {python}", tip="name a Python interpreter")
    if python not in _VERSIONS:
        _VERSIONS[python] = interpreters.query_interpreter(python, env).full_version
    return _VERSIONS[python]


def shorten_python_version(version: str) -> str:
    """Return what locks call a Python: ``3.12`` for 3.12.1, ``3.13t`` for 3.13.0t."""
    return ".".join(version.split(".")[:2]) + ("t" if version.endswith("t") else "")


def _locate_prefix(spec: EnvironmentSpec, workspace: Workspace, env: Mapping[str, str]) -> Path:
    """Return the folder of an environment, whose name is of Python's version and ROCm's specifier."""
    python = f"py{shorten_python_version(query_python_version(spec.python, env))}"
    text = f"in-{spec.rocm_path}" if spec.rocm_path is not None else spec.rocm_spec
    words = {">=": "ge", "<=": "le", "!=": "not", "~=": "about", ">": "gt", "<": "lt", "=": "", "*": "any"}
    for sign, word in words.items():
        text = text.replace(sign, word)
    return workspace.environments / f"{python}-rocm-{re.sub(r'[^A-Za-z0-9.+]+', '-', text).strip('-')}"


OnLine = Callable[[str], None] | None
ENVIRONMENT_RECORD = "environment.json"
_LAYER_PATHS = "rocm-wheels-below.pth"


@dataclass(frozen=True)
class BuildEnvironment:
    """A Python environment to build in. ``created``: it was made by this call, not found.

    ``asked``: what its Python said after ROCm was installed in it by this call.
    """

    python: Path
    bin: Path
    prefix: Path
    created: bool
    asked: rocm_sdk.PythonAnswers | None = field(default=None, compare=False)


def locate_environment(prefix: Path) -> BuildEnvironment:
    """Return an environment that is, or will be, at a place."""
    python = interpreters.locate_python(prefix)
    return BuildEnvironment(python=python, bin=python.parent, prefix=prefix, created=False)


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
    inputs, prefix = _collect_inputs(spec, env), _locate_prefix(spec, workspace, env)
    old = prefix.with_name(f".{prefix.name}.old")
    with lock_folder(
        workspace.environments / ".locks" / prefix.name, purpose=f"the build environment {prefix.name}"
    ):
        _recover_environment(prefix, old)
        before = _read_inputs(prefix)
        if not _explain_remake(before, prefix, spec, inputs) and (spec.pinned or not upgrade):
            return locate_environment(prefix)
        if before is not None:
            why = "to look for a newer ROCm" if upgrade else "inputs changed"
            log.log_note(f"recreating the build environment {prefix.name} ({why})")
        rocm_sdk.forget_shared_sdk(workspace.root / rocm_sdk.SHARED_FOLDER, prefix)
        # at its final place, which scripts in it hold; the old one waits beside
        if prefix.exists():
            prefix.rename(old)
        try:
            interpreters.make_venv(spec.python, prefix, env, on_line=on_line)
            made = locate_environment(prefix)
            asked = _install_rocm(made.python, [], spec, env, on_line, cwd=prefix)
            write_json_file(prefix / ENVIRONMENT_RECORD, {"inputs": inputs})
        except BaseException:
            _recover_environment(prefix, old)
            raise
        if old.exists():
            shutil.rmtree(old)
        return replace(made, created=True, asked=asked)


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
    inputs, prefix = _collect_inputs(spec, env), _locate_prefix(spec, workspace, env)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in inputs.items()}
    before = _read_inputs(prefix)
    environment = locate_environment(prefix) if before is not None else None
    return EnvironmentStatus(texts, environment, _explain_remake(before, prefix, spec, inputs))


def _explain_remake(
    before: Mapping[str, object] | None, prefix: Path, spec: EnvironmentSpec, inputs: Mapping[str, object]
) -> str:
    """Say why an environment, made with the inputs ``before``, is not that of ``spec``; "" where it is.

    Under a lock it is one by what is installed in it, wherever that came from; and one that was made under a
    lock, of the same inputs else, is one without.
    """
    if before is None:
        return "no earlier result"
    compared = tuple(inputs)
    if spec.packages:
        compared = ("format", "python", "python_version", "platform", "target_family")
        installed = resolve_packages.read_installed(prefix / resolve_packages.PACKAGES_NOTE)
        if names := resolve_packages.list_misfits(spec.packages, installed):
            return f"not what {spec.held_by} has: {', '.join(names)}"
    changed = [name for name in compared if before.get(name) != inputs[name]]
    return f"inputs changed: {', '.join(changed)}" if changed else ""


def install_into(
    python: Path, spec: EnvironmentSpec, env: Mapping[str, str], on_line: OnLine = None
) -> BuildEnvironment:
    """Install ROCm and the build tools into an existing environment, replacing what is there of ROCm."""
    spec, python = spec.with_absolute_paths(), python.absolute()
    query_python_version(python, env)
    if spec.rocm_path is not None:
        asked = rocm_sdk.ask_python(python, env)
    else:
        names = {"rocm", "rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-devel", *spec.local_packages}
        names |= {f"rocm-sdk-{extra}" for extra in spec.extras if extra.startswith("device-gfx")}
        options = [word for name in sorted(names) for word in ("--reinstall-package", name)]
        asked = _install_rocm(python, options, spec, env, on_line, cwd=python.parent)
    return replace(locate_environment(asked.prefix), asked=asked)


def ensure_layer(
    base: BuildEnvironment,
    prefix: Path,
    below: Sequence[Path],
    env: Mapping[str, str],
    *,
    python_tag: str,
    fresh: bool = False,
    on_line: OnLine = None,
) -> BuildEnvironment:
    """Return a virtual environment over another one, making it when it is not there as a whole, or ``fresh``.

    What is installed in it goes before what the packages ``below`` it have. Raises SdkError.
    """
    paths_file = locate_layer_packages(prefix, python_tag) / _LAYER_PATHS  # written last
    text = "".join(f"{folder}\n" for folder in below)
    if fresh or not (
        interpreters.locate_python(prefix).exists()
        and paths_file.is_file()
        and paths_file.read_text(encoding="utf-8") == text
    ):
        if prefix.exists():
            shutil.rmtree(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        interpreters.make_venv(base.python, prefix, env, on_line=on_line)
        write_atomically(paths_file, text)
    return locate_environment(prefix)


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
    source: interpreters.PackageSource | None = None,
    reinstall: Sequence[str] = (),
    folder: Path | None = None,
    without: Sequence[str] = (),
    platform: project_names.Platform = "windows" if sys.platform == "win32" else "linux",
) -> None:
    """Install what is required: a ``Path`` is a requirements file, a ``str`` a requirement.

    With ``folder`` they go there, beside the environment, which stays as it is. Packages named in
    ``reinstall`` that belong to it are installed anew. Those named in ``without`` are not installed, whoever
    requires them, nor those that are no good on the platform: ninja on Windows, which is the system's there.
    Raises SdkError.
    """
    if not requirements:
        return
    words = ["--target", str(folder)] if folder is not None else []
    words += [word for name in reinstall for word in ("--reinstall-package", name)]
    names = ", ".join(item.name if isinstance(item, Path) else item for item in requirements)
    for item in requirements:
        words += ["--requirement", str(item.resolve())] if isinstance(item, Path) else [item]
    unwanted = (*without, *release_lines.list_unusable_tools(platform))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as place:
        if unwanted:
            lines = [f"{name}; sys_platform == 'none'" for name in unwanted]
            words += ["--overrides", resolve_packages.write_lines(Path(place, "overrides.txt"), lines)]
        interpreters.pip_install(
            environment.python, words, source or interpreters.PackageSource(), env,
            activity=f"installing {names}", cwd=environment.prefix, on_line=on_line,
        )  # fmt: skip


def install_wheel(
    environment: BuildEnvironment, wheel: Path, *, env: Mapping[str, str], on_line: OnLine = None
) -> None:
    """Install one wheel in place of what there is of that name, the same version included; no index is asked.

    The installer's cache is for this once, in the environment: it would keep an unpacked copy of each wheel
    that was ever built, gigabytes of a torch.
    """
    cache = environment.prefix / ".wheel-cache"
    shutil.rmtree(cache, ignore_errors=True)  # of an installer that was killed
    try:
        interpreters.pip_install(
            environment.python, ["--reinstall", "--no-deps", "--no-index", str(wheel.resolve())],
            interpreters.PackageSource(cache_dir=cache), env,
            activity=f"installing {wheel.name}", cwd=environment.prefix, on_line=on_line,
        )  # fmt: skip
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def uninstall_distribution(
    environment: BuildEnvironment, distribution: str, *, env: Mapping[str, str]
) -> None:
    """Remove a distribution from an environment; one that is not there does not matter."""
    words = ["pip", "uninstall", "--python", str(environment.python), distribution]
    interpreters.run_uv(words, env, cwd=environment.prefix, activity=f"removing {distribution}")


def _install_rocm(
    python: Path,
    words: Sequence[str],
    spec: EnvironmentSpec,
    env: Mapping[str, str],
    on_line: OnLine,
    *,
    cwd: Path,
) -> rocm_sdk.PythonAnswers:
    """Resolve ROCm's packages, unless a lock has them, install them, and note from which files.

    Of an installed ROCm there are none. Refuses an extra that the installed rocm has not: installers only
    warn, and install nothing for it.
    """
    resolution = resolve_packages.Resolution(spec.packages)
    if spec.rocm_path is None:
        options = [*_select_family_build(env), *words]
        if spec.packages:
            options += _refresh_local_packages(spec, env, cwd=cwd)
        else:  # they are looked at now
            resolution = resolve_rocm(spec, resolve_packages.PackageTarget(python), env, cwd=cwd)
        resolve_packages.install_packages(
            python, resolution, spec.source, env,
            activity=f"installing {spec.requirement}", cwd=cwd, on_line=on_line,
            backends=spec.backends, words=options, held_by=spec.held_by,
        )  # fmt: skip
    asked = rocm_sdk.ask_python(python, env)
    note = asked.prefix / resolve_packages.PACKAGES_NOTE
    resolve_packages.note_installed(note, asked.site_packages, resolution)
    missing = [extra for extra in spec.all_extras if extra not in asked.rocm_extras]
    if missing and spec.rocm_path is None:
        has = ", ".join(sorted(asked.rocm_extras)) or "none: is it the ROCm of AMD? check --rocm-index"
        raise errors.SdkError(
            f"the rocm that fits {spec.requirement} has no extra {', '.join(missing)}", tip=f"it has {has}"
        )
    return asked


def _recover_environment(prefix: Path, old: Path) -> None:
    """Undo what a run left that was killed, or failed, while it made an environment."""
    if prefix.exists() and _read_inputs(prefix) is None:
        shutil.rmtree(prefix)
    if old.exists():
        if prefix.exists():
            shutil.rmtree(old)
        else:
            old.rename(prefix)


def _read_inputs(prefix: Path) -> dict[str, object] | None:
    """Return the inputs that an environment was made with; ``None`` when it is not complete."""
    if not interpreters.locate_python(prefix).exists():
        return None
    try:
        inputs = json.loads((prefix / ENVIRONMENT_RECORD).read_text(encoding="utf-8"))["inputs"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return inputs if isinstance(inputs, dict) else None


def resolve_rocm(
    spec: EnvironmentSpec, target: resolve_packages.PackageTarget, env: Mapping[str, str], *, cwd: Path
) -> resolve_packages.Resolution:
    """Return the packages of ROCm that a spec comes to. SdkError for an extra that its rocm has not."""
    missing: list[str] = []

    def listen(line: str) -> None:
        if (match := _NO_EXTRA.search(line)) is not None:
            missing.append(match["extra"])

    _check_folder(spec)
    options = [*_refresh_local_packages(spec, env, cwd=cwd), *_select_family_build(env)]
    resolution = resolve_packages.resolve_packages(
        [spec.requirement], target, spec.source, env, cwd=cwd, options=options, on_line=listen
    )
    if missing:
        raise errors.SdkError(
            f"the rocm that fits {spec.requirement} has no extra {', '.join(missing)}",
            tip="check --rocm-extras and --rocm-index",
        )
    return resolution


def _refresh_local_packages(spec: EnvironmentSpec, env: Mapping[str, str], *, cwd: Path) -> list[str]:
    """Return the options by which packages that were made anew are looked at again.

    They keep their names and versions, by which uv's cache knows them.
    """
    refresh = [word for name in spec.local_packages for word in ("--refresh-package", name)]
    if refresh and interpreters.is_offline(env):  # which uv does not take together
        activity = f"removing {', '.join(spec.local_packages)} from uv's cache"
        interpreters.run_uv(["cache", "clean", *spec.local_packages], env, cwd=cwd, activity=activity)
        return []
    return refresh


def _select_family_build(env: Mapping[str, str]) -> list[str]:
    """Return the options by which uv keeps a build of ROCm's own rocm for each target family.

    That is built where it is installed, and would be given out for every other family.
    """
    return ["--config-settings-package", f"rocm:target-family={read_target_family(env)}"]
