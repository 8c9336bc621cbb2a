"""Front ends: run a project's own build with the options asked for, and take exactly the wheel asked for.

The wheel names upstream's commit, though commits of ours lie on top. setup.py and CMake of torch
(tools/generate_torch_version.py, cmake/Codegen.cmake), of torchvision and of torchaudio ask ``git
rev-parse HEAD``, and write the answer into Python files, headers and libraries; no variable changes that.
So builds have a git on their PATH that answers this one question about this one tree with another commit,
and hands everything else to git. On Windows, where only an .exe would be started, there is none.

While a front end runs, CMake's cache is compared with the options that were asked for. CMake goes on
without a part that it does not find, and ends with success. torch's CMake then writes
``USE_ROCM:BOOL=OFF`` into its cache (``caffe2_update_option`` in cmake/Dependencies.cmake), and hours
later there is a wheel for the CPU. So the cache is compared as soon as it is written, and the build ends
there.

An option that depends on others (``cmake_dependent_option``) keeps in the cache what it was given, with
the type INTERNAL, while the others are off: that is CMake's right, and costs a warning. USE_ROCM is never
lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from rocm_wheels.compile import build_request, build_trees, generated_files, hooks, sdk_tree, variables
from rocm_wheels.compile.failure import (
    BuildFailed,
    BuildFailure,
    explain_failure,
    find_first_failure,
    format_repeat_command,
    join_paragraph,
)
from rocm_wheels.core import errors, process
from rocm_wheels.core.files import write_atomically
from rocm_wheels.core.log import log_warning
from rocm_wheels.models import versions

_GIT_SCRIPT = """\
#!/bin/sh
# Made by rocm-wheels for builds: HEAD of one source tree is the commit below, on which commits of
# rocm-wheels (hipify, patches) lie. All else is git's.
git={git}
case "$1 $2 $3" in
"rev-parse HEAD " | "rev-parse --verify HEAD" | "rev-parse --short HEAD" | "rev-parse --short="[0-9]*" HEAD")
    if [ "$("$git" rev-parse --show-toplevel 2>/dev/null)" = {tree} ]; then
        [ "$2" = HEAD ] && exec "$git" rev-parse {commit}
        exec "$git" rev-parse "$2" {commit}
    fi
    ;;
esac
exec "$git" "$@"
"""


def set_wheel_commit(
    request: build_request.BuildRequest, parking: Path, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a build in which HEAD of its tree is the commit of the request.

    The program stays below ``parking``, the folder of the build trees: CMake remembers where git is.
    """
    build_env = dict(env)
    if request.commit is None:
        return build_env
    if request.platform == "windows":
        log_warning(
            f"{request.project.name}: the wheel will name HEAD as its commit, and not {request.commit}: "
            "check out with --no-commit-hipify where that matters"
        )
        return build_env
    folder = parking / request.project.name / "bin"
    path = os.pathsep.join(
        part for part in env.get("PATH", "").split(os.pathsep) if part != os.fspath(folder)
    )
    git = shutil.which("git", path=path)
    if git is None:
        return build_env
    words = {"git": git, "tree": os.fspath(request.source.resolve()), "commit": request.commit}
    program = folder / "git"
    write_atomically(program, _GIT_SCRIPT.format(**{name: shlex.quote(word) for name, word in words.items()}))
    program.chmod(0o755)
    variables.prepend_path(build_env, "PATH", folder, request.platform)
    return build_env


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that a front end made; ``tree`` says what happened to the build tree."""

    path: Path
    distribution: str
    version: str
    tree: str
    seconds: float


@dataclass(frozen=True)
class DevelopedTree:
    """A project that was compiled in its tree. ``wheel``: the editable one, where the front end ran.

    ``version``: of that wheel; ``ninja``: the command that compiles what changes from now on, ``None`` where
    only the front end can; ``environment``: the whole one in which the program ran.
    """

    wheel: Path | None
    version: str
    tree: str
    seconds: float
    ninja: tuple[str, ...] | None
    environment: Mapping[str, str]


@dataclass(frozen=True)
class FrontEnd:
    """A project's own build, and all that it is run with.

    ``env`` is its whole environment, in which what the build requires is installed (``checked``: that was
    looked at before), and ``base`` the one a user would repeat the command in. Wheels go into ``out_dir``.
    ``preloads`` is for torch. ``on_line`` takes each line, ``ran`` is told how a program ended; ``restore``
    then puts tracked files back that the project's own build changes.
    """

    request: build_request.BuildRequest
    base: Mapping[str, str]
    env: Mapping[str, str]
    python: Path
    python_tag: str
    out_dir: Path
    log: Path
    preloads: sdk_tree.Preloads | None = None
    clean: bool = False
    checked: bool = False
    on_line: Callable[[str], None] | None = None
    ran: Callable[[list[str], Mapping[str, str], process.FinishedProcess], None] | None = None
    restore: Callable[[], None] | None = None

    def build(self) -> BuiltWheel:
        """Build one wheel. Raises BuildFailed when it fails, BuildError when it is not the right wheel."""
        with self._enter_tree() as entered:
            finished = self._run(entered, ConfigureWatch(self.request, entered.env))
            wheel, version = find_built_wheel(self.request, entered.fresh)
            if self.request.project.version.append_suffix:
                wheel, version = _append_suffix(wheel, self.request.suffix)
            _make_cmake_files_relative(wheel, self.request.source)
            path = self.out_dir / wheel.name
            wheel.replace(path)
        distribution = self.request.project.distribution
        return BuiltWheel(path, distribution, version, entered.tree, finished.seconds)

    def configure(self) -> None:
        """Run until CMake has configured the build tree, and end it there; a later build goes on in it.

        Raises BuildFailed when the front end fails before, or when CMake turns an option that was asked for.
        """
        with self._enter_tree() as entered:
            self._run(entered, ConfigureWatch(self.request, entered.env, only_configure=True))

    def develop(self, *, configured: bool) -> DevelopedTree:
        """Compile an editable request in its tree: what changed, where that is there and ``configured`` so.

        Raises BuildFailed.
        """
        with self._enter_tree() as entered:
            request, env, wheel, version = self.request, entered.env, None, ""
            watch = ConfigureWatch(request, env)
            # what another tree left beside the sources is written anew by the front end
            goes_on = configured and entered.tree.startswith(build_trees.CONTINUED)
            ninja = find_ninja_command(request, env) if goes_on else None
            finished = self._run(entered, watch, ninja or ())
            if ninja is None:
                built, version = find_built_wheel(request, entered.fresh)
                wheel = self.out_dir / built.name
                built.replace(wheel)
            ninja = find_ninja_command(request, env)
            return DevelopedTree(wheel, version, entered.tree, finished.seconds, ninja, env)

    @contextmanager
    def _enter_tree(self) -> Iterator[_EnteredTree]:
        """Put the build tree in place; what the front end leaves in the source is git's to overlook."""
        request, base = self.request, self.base
        self.out_dir.mkdir(parents=True, exist_ok=True)
        for old in self.out_dir.glob(".fresh-*"):  # of a build that was killed
            shutil.rmtree(old)
        parking = build_trees.prepare_parking_folder(request.source, base)
        marker = parking / request.project.name / "running.json"
        with (
            generated_files.exclude_generated_files(
                request.source, request.project.build.list_generated(), marker, self.log, base
            ),
            contextlib.ExitStack() as ending,
            tempfile.TemporaryDirectory(prefix=".fresh-", dir=self.out_dir) as name,
        ):
            if self.restore is not None:
                ending.callback(self.restore)
            key = build_trees.make_tree_key(request, self.env, python=self.python, python_tag=self.python_tag)
            tree = build_trees.enter_tree(request, key, parking, env=base, clean=self.clean)
            env = build_trees.keep_cmake_path(request, self.python, self.env)
            env = set_wheel_commit(request, parking, build_trees.set_build_folder(request, env))
            hooks.find_hooks(request.project).prepare(request, hooks.Preparation(base, self.preloads))
            yield _EnteredTree(tree, env, Path(name).absolute())

    def _run(
        self, entered: _EnteredTree, watch: ConfigureWatch, ninja: Sequence[str] = ()
    ) -> process.FinishedProcess:
        """Run the front end, or ``ninja`` alone, to its end or to where the watch ends it. BuildFailed."""
        request, folder = self.request, self.request.folder
        argv, shown_command = (
            list(ninja)
            or make_front_end_command(
                request, folder, python=self.python, out_dir=out_dir, checked=self.checked
            )
            for out_dir in (entered.fresh, self.out_dir.absolute())
        )
        position = self.log.stat().st_size if self.log.is_file() else 0
        began, lost = time.monotonic(), None
        watch.delete_lost_caches()
        try:
            finished = process.run_command(
                argv,
                env=entered.env,
                cwd=folder,
                log=self.log,
                on_line=watch.wrap_listener(self.on_line),
                check=None,
                description=f"building {request.project.name}",
            )
            watch.check_caches()
        except TreeConfigured:
            finished = process.FinishedProcess(0, time.monotonic() - began)
        except OptionLost as turned:
            finished, lost = process.FinishedProcess(1, time.monotonic() - began), turned
        if self.ran is not None:
            self.ran(shown_command, entered.env, finished)
        if lost is None and not finished.returncode:
            return finished
        with self.log.open("rb") as file:
            file.seek(position)
            lines = file.read().decode("utf-8", "replace").splitlines()
        name, code, tip = request.project.name, finished.returncode, None
        if lost is None:
            failure = find_first_failure(lines)
            ending = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        else:
            reason = explain_lost_option(lost.option, lines) or "CMake gave no reason that is understood"
            failure, ending = BuildFailure("configure", reason), f"was ended: {lost.message}"
            tip = "the same command configures again"
            if lost.option in request.set_env:
                given = f"{name}:{lost.option}={lost.requested}"
                tip = f"leave --set-env {given} out, or give CMake what it looks for"
            elif lost.option != _NEVER_LOST:
                tip = f"give CMake what it looks for, or build without it: --set-env {name}:{lost.option}=OFF"
        command = format_repeat_command(shown_command, cwd=folder, base=self.base, env=entered.env)
        text = explain_failure(f"building {name} {ending}", failure, log=self.log, command=command)
        error = BuildFailed(text, failure=failure, log=self.log, command=command)
        error.tip = tip or error.tip
        raise error from lost


@dataclass(frozen=True)
class _EnteredTree:
    """A build tree in its place: what happened to it, the environment there, where a new wheel goes."""

    tree: str
    env: Mapping[str, str]
    fresh: Path


def find_ninja_command(request: build_request.BuildRequest, env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what compiles a configured tree with ninja alone, ``None`` where CMake has left no such tree.

    Where CMake has rules to install, they run too: they put libraries beside the Python files (torch).
    """
    tree, program = request.folder / request.project.build.trees[0], shutil.which("ninja", path=env["PATH"])
    if program is None or not (tree / "build.ninja").is_file():
        return None
    installs = "\nbuild install: " in (tree / "build.ninja").read_text(encoding="utf-8", errors="replace")
    jobs = ("-j", env["MAX_JOBS"]) if env.get("MAX_JOBS") else ()
    return (program, "-C", os.fspath(tree), *jobs, *(("install",) if installs else ()))


_EDITABLE_SCRIPT = """\
import sys
from build import ProjectBuilder
settings = {}
for name, _, value in (word.partition("=") for word in sys.argv[3:]):
    settings.setdefault(name, []).append(value)
ProjectBuilder(sys.argv[1]).build("editable", sys.argv[2], settings)
"""


def make_front_end_command(
    request: build_request.BuildRequest, folder: Path, *, python: Path, out_dir: Path, checked: bool = False
) -> list[str]:
    """Return the command line that builds a wheel of the tree in ``folder`` into ``out_dir``.

    ``checked``: what the build requires is known to be there. To look for it runs setup.py once more.
    """
    build = request.project.build
    settings = [*build.config_settings, *hooks.find_hooks(request.project).settings(request, folder)]
    if request.editable:  # PEP 660, as `pip install --editable --no-build-isolation` does
        argv = [str(python), "-I", "-c", _EDITABLE_SCRIPT, str(folder), str(out_dir)]
        return [*argv, *settings]
    if build.front_end == "setup.py":
        return [str(python), "setup.py", "bdist_wheel", "--dist-dir", str(out_dir)]
    # isolated: the tree's own build/ or packaging.py are not what the front end imports
    argv = [str(python), "-I", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out_dir)]
    # on Windows, ninja is the system's (release_lines.yaml), which the check of requirements cannot see
    if checked or build.unused or request.platform == "windows":
        argv.append("--skip-dependency-check")
    return [*argv, *(f"-C{setting}" for setting in settings)]


def find_built_wheel(request: build_request.BuildRequest, folder: Path) -> tuple[Path, str]:
    """Return the only wheel in a folder and its version. Raises BuildError if it is not the one expected."""
    name = request.project.name
    files = sorted(path.name for path in folder.iterdir())
    wheels = [file for file in files if file.endswith(".whl")]
    if len(wheels) != 1 or len(files) != 1:
        raise errors.BuildError(
            f"{name}: the build must leave one wheel, and left {', '.join(files) or 'nothing'}"
        )
    try:
        distribution, version, _, _ = parse_wheel_filename(wheels[0])
    except InvalidWheelFilename as cause:
        raise errors.BuildError(f"{name}: the build left {wheels[0]}, which is no wheel's name") from cause
    if distribution != canonicalize_name(request.project.distribution):
        raise errors.BuildError(
            f"{name}: the build must make a wheel of {request.project.distribution}, and made {wheels[0]}"
        )
    if not _version_fits(request, version):
        expected_version = request.version or f"…+{versions.get_local_part(request.suffix)}"
        rules = request.project.version
        names = " and ".join(rules.variables) or rules.suffix_variable or "a version variable"
        raise errors.BuildError(
            f"{name}: the wheel must have version {expected_version}, and is {wheels[0]}",
            tip=f"does its setup.py read {names}?",
        )
    return folder / wheels[0], str(version)


def _append_suffix(wheel: Path, suffix: str) -> tuple[Path, str]:
    """Give a wheel our suffix, behind a local part of its own; return it and its version."""
    from rocm_wheels.wheels import edit, rewrite

    own = parse_wheel_filename(wheel.name)[1]
    whole = Version(own.public + versions.add_version_parts(suffix, *([own.local] if own.local else [])))
    return rewrite.rewrite_wheel(wheel, wheel.parent, edit.WheelEdit(version=str(whole))), str(whole)


def _make_cmake_files_relative(wheel: Path, source: Path) -> None:
    """Have CMake files of a wheel name other files in it from where they are, not where it was built.

    torch's ATenConfig.cmake says CMAKE_INSTALL_PREFIX, the builder's (aten/src/ATen/CMakeLists.txt).
    """
    from rocm_wheels.wheels import archive, edit, rewrite

    changed: dict[str, bytes] = {}
    with contextlib.suppress(errors.DataError):  # the checks say more of a damaged wheel
        with archive.WheelArchive.open(wheel) as opened:
            names = opened.member_by_name
            for name in (name for name in names if name.endswith(".cmake")):
                content = opened.read(names[name]).decode("utf-8", "surrogateescape")
                new = content
                for place in set(re.findall(rf'"{re.escape(source.as_posix())}/([^"]+)"', content)):
                    if any(other == place or other.startswith(f"{place}/") for other in names):
                        relative = Path(os.path.relpath(place, Path(name).parent)).as_posix()
                        new = new.replace(
                            f'"{source.as_posix()}/{place}"', f'"${{CMAKE_CURRENT_LIST_DIR}}/{relative}"'
                        )
                if new != content:
                    changed[name] = new.encode("utf-8", "surrogateescape")
        if changed:
            rewrite.rewrite_wheel(wheel, wheel.parent, edit.WheelEdit(members=changed), replace=True)


def _version_fits(request: build_request.BuildRequest, version: Version) -> bool:
    """Compare with what was asked for. torch adds ``.post<n>`` for a build number above 1.

    A project whose recipe names nothing that tells it keeps its own version.
    """
    if request.version is not None:
        again = f".post{request.build_number}" if int(request.build_number) > 1 else ""
        return version in (Version(request.version), Version(request.version + again))
    if request.project.version.suffix_variable is None:
        return True
    local = versions.get_local_part(request.suffix)
    return not local or f".{version.local or ''}".endswith(f".{local}")


CACHE_FILE = "CMakeCache.txt"
_NEVER_LOST = "USE_ROCM"
_OPTION_NAME = re.compile(r"(?:USE|BUILD)_\w+")
_ON = re.compile(r"1|ON|YES|TRUE|Y", re.IGNORECASE)
_OFF = re.compile(r"0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND|", re.IGNORECASE)  # as CMake's if() reads it
_CACHE_ENTRY = re.compile(r"(?m)^(?P<name>[A-Za-z_]\w*):(?P<type>[A-Z]+)=(?P<value>.*)$")
_WRITTEN_LINE = re.compile(r"-- Build files have been written to: (?P<folder>.+)")
# ninja compiles, or has done so before: nothing more is configured
_COMPILE_LINE = re.compile(r"\[\d+/\d+\] (?!Re-running CMake)|ninja: no work to do")
_MESSAGE_HEAD = re.compile(r"CMake (?:Deprecation )?(?:Warning|Error)\b.*:$")
_REFUSAL = re.compile(
    r"could not|cannot|not found|no \"|not (?:compiling|building|using|supported|available)|without"
    r"|unsuitable|does not exist|disabl|forcing|turn(?:ing|ed)\b.*\boff",
    re.IGNORECASE,
)
# what CMake calls the parts of an option that are looked for by another name
_OPTION_PARTS: Mapping[str, tuple[str, ...]] = {"USE_ROCM": ("HIP", "ROCm")}


class OptionLost(errors.BuildError):
    """CMake configured without an option that was asked for. ``option``: its name."""

    def __init__(self, option: str, requested: str, configured: str) -> None:
        super().__init__(
            f"CMake configured with {option}={configured}, but {option}={requested} was requested"
        )
        self.option = option
        self.requested = requested


class TreeConfigured(Exception):
    """CMake has configured a tree, and nothing more was wanted of the front end."""


def list_requested_options(request: build_request.BuildRequest, env: Mapping[str, str]) -> dict[str, str]:
    """Return the switches for CMake that recipe and user set for this project, as ``env`` has them."""
    names = {*request.recipe_variables, *request.set_env}
    switches = {name: env.get(name, "") for name in sorted(names) if _OPTION_NAME.fullmatch(name)}
    return {name: value for name, value in switches.items() if _parse_truth(value) is not None and value}


class ConfigureWatch:
    """Watches the lines of a front end, and CMake's cache in its build trees.

    ``only_configure``: raise ``TreeConfigured`` when the tree is configured as asked.
    """

    def __init__(
        self, request: build_request.BuildRequest, env: Mapping[str, str], *, only_configure: bool = False
    ) -> None:
        self._trees = [request.folder / name for name in request.project.build.trees]
        self._project = request.project.name
        self._requested = list_requested_options(request, env)
        self._only_configure = only_configure
        self._read: dict[Path, tuple[int, int]] = {}  # caches as they were compared: inode, time
        self._warned: set[str] = set()

    def delete_lost_caches(self) -> None:
        """Delete a cache that lacks what is asked for: a build would go on with it, and never look again."""
        for _ in self._list_caches():
            with contextlib.suppress(OptionLost):
                self.check_caches()

    def wrap_listener(self, on_line: Callable[[str], None] | None) -> Callable[[str], None]:
        """Return what takes the lines of the front end, and raises OptionLost or TreeConfigured."""

        def take(line: str) -> None:
            if on_line is not None:
                on_line(line)
            written, compiles = _WRITTEN_LINE.fullmatch(line), _COMPILE_LINE.match(line)
            if written or compiles:
                self.check_caches()
            if self._only_configure and (written or compiles):
                ours = [path.parent.resolve() for path in self._list_caches()]
                if written is None or Path(written["folder"]).resolve() in ours:
                    raise TreeConfigured

        return take

    def check_caches(self) -> None:
        """Compare every cache that was written since. Raises OptionLost; that cache is deleted."""
        for path in self._list_caches():
            try:
                state = path.stat()
                mark = (state.st_ino, state.st_mtime_ns)
                if self._read.get(path) == mark:
                    continue
                text = path.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                continue
            entries = {entry["name"]: entry for entry in _CACHE_ENTRY.finditer(text)}
            for name, requested in self._requested.items():
                entry = entries.get(name)
                configured = None if entry is None else _parse_truth(entry["value"])
                if entry is None or configured is None:
                    continue
                is_as_asked = configured == _parse_truth(requested)
                has_no_effect = is_as_asked and configured and entry["type"] == "INTERNAL"
                if not is_as_asked or (has_no_effect and name == _NEVER_LOST):
                    path.unlink()
                    raise OptionLost(name, requested, "OFF" if has_no_effect else entry["value"])
                if has_no_effect and name not in self._warned:
                    self._warned.add(name)
                    reason = "because what it depends on is off"
                    log_warning(f"{self._project}: {name}={requested} has no effect, {reason}")
            self._read[path] = mark

    def _list_caches(self) -> list[Path]:
        """Return the caches of the project itself; those of projects inside it lie deeper."""
        own_caches = [tree / CACHE_FILE for tree in self._trees if (tree / CACHE_FILE).is_file()]
        return own_caches or [path for tree in self._trees for path in sorted(tree.glob(f"*/{CACHE_FILE}"))]


def explain_lost_option(option: str, lines: Sequence[str]) -> str | None:
    """Return what CMake said about an option that it turned: the first message that names it, or its part."""
    words = (option, *_OPTION_PARTS.get(option, (option.partition("_")[2],)))
    either = "|".join(map(re.escape, words))
    name = re.compile(rf"(?:(?<![A-Za-z0-9])|Find)(?:{either})(?![A-Za-z0-9])", re.IGNORECASE)
    number = 0
    while number < len(lines):  # each message as one line
        message = lines[number].rstrip().removeprefix("-- ")
        number += 1
        if _MESSAGE_HEAD.match(message):
            message = join_paragraph(lines[number:])
            while number < len(lines) and lines[number].startswith("  "):
                number += 1
        if name.search(message) and _REFUSAL.search(message):
            return message
    return None


def _parse_truth(value: str) -> bool | None:
    if _ON.fullmatch(value):
        return True
    return False if _OFF.fullmatch(value) else None
