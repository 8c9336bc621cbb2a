"""The commands of the demonstration, in order: the very words that anybody would type.

Wheels are built against two versions of ROCm: torch and its triton also against the earlier one, for one
target. What becomes of them is one release: variants share one version, so ``+rocm7.1.0`` leaves it, and
a plain wheel beside them has that version too. Its place is taken by the torch with all targets and the
newer ROCm, for installers that know nothing of variants. Wheels of the other projects are not in the
release: there would be none for the earlier ROCm, and an installer could put them beside the other torch.

triton is the wheel for every machine (``null``): it holds no device code, neither links nor requires
ROCm, and is the same for both versions of it. The ROCm packages are in the index too: what torch requires
comes from where torch does.

What the release part stages is all that was built against the newer ROCm, for both targets: a set of the
layout ``multi-arch``. Nobody here has a GPU. So the set meets a gate that blocks, until the target that
nobody tested is a named exception.

What people see is a line for each step with its time; everything else goes into a log file.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rocm_wheels.core import errors, log, progress, shell, tables, workspace

ROCM_VERSION = "7.1.0+miniature"
EARLIER_ROCM_VERSION = "7.0.2+miniature"
TARGETS = ("gfx942", "gfx1100")
EARLIER_TARGETS = ("gfx942",)
RELEASED_PROJECTS = ("torch", "triton")
MACHINES = ("gfx942", "gfx1100", "new:gfx1399", "none")  # the last but one is of no GPU that anybody knows

PACKAGES_SCRIPT = "build_tools/build_python_packages.py"
ROCM_WHEELS = "rocm-wheels"  # in the scripts of the environment that we run in
BUILD_SCRIPT = "build_tools/build_prod_wheels.py"
LOCK_NAME = "sources.lock.json"
LOG_NAME = "demo.log"
PACKAGED_SETS = ("fat", "split")
# which HIP runtime torch has loaded, and the archives of device code that were installed beside it
_PLACES_CODE = (
    "import glob, os, torch; "
    "loaded = {line.split()[-1] for line in open('/proc/self/maps') if 'libamdhip64' in line}; "
    "archives = glob.glob(os.path.join(os.path.dirname(torch.__file__), '.kpack', '*')); "
    "print(torch.__version__, *loaded, *map(os.path.basename, archives))"
)
NAMED_PROJECTS = ("pytorch", "triton")  # torch's tree names the other repositories, and all other commits


@dataclass(frozen=True)
class DemoCommand:
    """One ordinary command: its script in the clone (or another program), and its arguments."""

    program: str
    arguments: tuple[str, ...]

    def format_line(self) -> str:
        """Return the command as it would be typed in the clone."""
        started = find_our_script() if self.program == ROCM_WHEELS else [_shorten_path(self.program)]
        return shell.format_command([*started, *self.arguments])


def find_our_script() -> list[str]:
    """Return how `rocm-wheels` is started in the clone: the script beside the running Python."""
    name = "rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels"
    script = Path(sys.executable).parent / name
    return [_shorten_path(str(script))] if script.exists() else [sys.executable, "-m", "rocm_wheels"]


def _shorten_path(program: str) -> str:
    path, clone = Path(program), workspace.get_project_home()
    return str(path.relative_to(clone)) if path.is_relative_to(clone) else program


def list_build_commands(folder: Path, urls: Mapping[str, str]) -> Sequence[DemoCommand]:
    """Return the commands that turn the inputs in ``folder`` into wheels, in order."""
    sources, lock = str(folder / "sources"), str(folder / LOCK_NAME)
    return [
        _make_packages_command(folder / "rocm-artifacts", folder / "rocm-packages"),
        DemoCommand(
            ROCM_WHEELS,
            (
                *("lock", "make"),
                *(word for name in NAMED_PROJECTS for word in (f"--{name}-origin", urls[name])),
                *("--rocm", ROCM_VERSION),
                *("--gfx", ",".join(TARGETS)),
                *("-o", lock),
            ),
        ),
        DemoCommand(ROCM_WHEELS, ("checkout", "--lock", lock, "--source-dir", sources)),
        DemoCommand(
            BUILD_SCRIPT,
            (
                "build",
                *("--lock", lock),
                *_make_install_options(folder / "rocm-packages", TARGETS),
                *("--source-dir", sources),
                *("--output-dir", str(folder / "wheels")),
            ),
        ),
    ]


def list_packaging_commands(folder: Path) -> Sequence[DemoCommand]:
    """Return the commands that package the torch that was built anew: it is not built again."""
    return [
        DemoCommand(
            BUILD_SCRIPT,
            (
                "build",
                *("--lock", str(folder / LOCK_NAME)),
                *("--project", "pytorch", "--packaging", packaging),
                *_make_install_options(folder / "rocm-packages", TARGETS),
                *("--source-dir", str(folder / "sources")),
                *("--output-dir", str(folder / packaging)),
            ),
        )
        for packaging in PACKAGED_SETS
    ]


def list_packaged_install_commands(folder: Path, uv: Path) -> Mapping[Path, Sequence[DemoCommand]]:
    """Return, for each throw-away environment, the commands that install a packaged torch and import it.

    The fat one is installed without any package of ROCm; of the split one, the code for one GPU comes with an
    extra. The triton that both require is that of the thin set.
    """
    fat, split = (folder / "installed" / name for name in PACKAGED_SETS)
    (triton,) = (folder / "wheels").glob("triton-*.whl")
    (carrying,) = (folder / "fat").glob("torch-*.whl")
    (host,) = (folder / "split").glob("torch-*.whl")
    pin = f"torch[device-{MACHINES[0]}]=={host.name.split('-')[1]}"
    links = (folder / "split", folder / "rocm-packages" / "dist")
    from_links = (word for place in links for word in ("--find-links", str(place)))
    return {
        place: [
            DemoCommand(str(uv), (*make_venv_arguments(), str(place))),
            DemoCommand(
                str(uv),
                ("pip", "install", "--quiet", "--python", str(find_program(place, "python")), *words),
            ),
            DemoCommand(str(find_program(place, "python")), ("-I", "-c", _PLACES_CODE)),
        ]
        for place, words in (
            (fat, (str(carrying), str(triton))),
            (split, (pin, str(triton), *from_links)),
        )
    }


def list_earlier_commands(folder: Path) -> Sequence[DemoCommand]:
    """Return the commands that build triton and torch against the earlier ROCm, from the same commits.

    They have checkouts and a work directory of their own, as on a machine that builds nothing else: in a
    checkout that both use, only one can build at a time.
    """
    earlier = earlier_folder(folder)
    sources = str(earlier / "sources")
    return [
        _make_packages_command(earlier / "artifacts", earlier / "packages"),
        DemoCommand(
            ROCM_WHEELS,
            ("checkout", *RELEASED_PROJECTS, "--lock", str(folder / LOCK_NAME), "--source-dir", sources),
        ),
        DemoCommand(
            BUILD_SCRIPT,
            (
                "build",
                *("--rocm", f"=={EARLIER_ROCM_VERSION}"),
                *("--gfx", ",".join(EARLIER_TARGETS)),
                *_make_install_options(earlier / "packages", EARLIER_TARGETS),
                *("--source-dir", sources),
                *("--output-dir", str(earlier / "wheels")),
            ),
        ),
    ]


def earlier_folder(folder: Path) -> Path:
    """Return where everything about the earlier ROCm lies."""
    return folder / "earlier-rocm"


def _make_packages_command(artifacts: Path, packages: Path) -> DemoCommand:
    return DemoCommand(PACKAGES_SCRIPT, ("--artifact-dir", str(artifacts), "--output-dir", str(packages)))


def _make_install_options(packages: Path, targets: Sequence[str]) -> tuple[str, ...]:
    extras = ",".join(f"device-{target}" for target in targets)
    return ("--install-rocm", "--find-links", str(packages / "dist"), "--rocm-extras", extras)


def list_built_wheels(folder: Path) -> dict[str, list[Path]]:
    """Return what the release is made of: wheels by project, those for the newer ROCm first."""
    wheel_folders = (folder / "wheels", earlier_folder(folder) / "wheels")
    return {
        name: [w for wheel_folder in wheel_folders for w in sorted(wheel_folder.glob(f"{name}-*.whl"))]
        for name in RELEASED_PROJECTS
    }


def list_stamp_commands(built: Mapping[str, Sequence[Path]], release: Path) -> Sequence[DemoCommand]:
    """Return the commands that make the variants of the release."""
    variants = ("--output-dir", str(release / "variants"))
    return [
        DemoCommand(ROCM_WHEELS, ("wheel", "stamp", *map(str, built["torch"]), *variants)),
        DemoCommand(ROCM_WHEELS, ("wheel", "stamp", "--null", str(built["triton"][0]), *variants)),
    ]


def list_plain_commands(release: Path) -> Sequence[DemoCommand]:
    """Return the command that makes the plain wheels of the release, from one variant of each project."""
    rocm = ".".join(ROCM_VERSION.split(".")[:2])
    variants = release / "variants"
    chosen = [*variants.glob(f"torch-*-rocm{rocm}_*.whl"), *variants.glob("triton-*-null.whl")]
    return [
        DemoCommand(
            ROCM_WHEELS,
            (
                "wheel",
                "retag",
                *map(str, sorted(chosen)),
                "--label",
                "",
                "--output-dir",
                str(release / "plain"),
            ),
        )
    ]


def list_index_commands(folder: Path, release: Path) -> Sequence[DemoCommand]:
    """Return the commands that put the release into an index, and read that as installers do."""
    index = str(release / "index")
    released = [release / "plain", release / "variants"]
    rocm = [earlier_folder(folder) / "packages" / "dist", folder / "rocm-packages" / "dist"]
    return [
        *(
            DemoCommand(
                ROCM_WHEELS,
                (
                    "index",
                    "build",
                    index,
                    *(str(w) for wheel_folder in wheel_folders for w in _list_wheels(wheel_folder)),
                ),
            )
            for wheel_folders in (released, rocm)
        ),
        DemoCommand(ROCM_WHEELS, ("index", "verify", index)),
    ]


def _list_wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


def make_serve_command(folder: Path, port: int) -> DemoCommand:
    """Serve a folder as any static server does."""
    return DemoCommand(
        "python3", ("-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder))
    )


def list_user_commands(folder: Path, index: str, uv: Path) -> Sequence[DemoCommand]:
    """Return what people do who want torch from an index that a server gives out.

    They ask which wheel is for a machine, install for one, and have the result looked at.
    """
    environment = folder / "installed" / "by-rocm-wheels"
    python = str(find_program(environment, "python"))
    chosen = [
        DemoCommand(ROCM_WHEELS, ("choose", "torch", "--index", index, "--gfx", gfx, "--allow-cpu"))
        for gfx in MACHINES
    ]
    make_environment = DemoCommand(str(uv), (*make_venv_arguments(), str(environment)))
    stated = ("--gfx", MACHINES[0])
    return [
        *chosen,
        *([] if environment.is_dir() else [make_environment]),
        DemoCommand(
            ROCM_WHEELS, ("install", *RELEASED_PROJECTS, "--index", index, *stated, "--python", python)
        ),
        DemoCommand(ROCM_WHEELS, ("doctor", "--python", python, *stated)),
    ]


def list_install_commands(folder: Path, release: Path, uv: Path) -> Mapping[Path, Sequence[DemoCommand]]:
    """Return, for each throw-away environment, the commands that make it and install the release into it.

    pip takes the index alone, and so leaves out what these wheels require; uv takes ROCm from its packages
    and a compiler from the index that it is told to use otherwise. uv remembers files of an index by their
    names, also when another release is begun at the same place: hence --refresh-package.
    """
    index = (release / "index").as_uri()
    requirements = sorted(
        {"==".join(wheel.name.split("-")[:2]) for wheel in (release / "plain").glob("*.whl")}
    )
    with_pip, with_uv = folder / "installed" / "by-pip", folder / "installed" / "by-uv"
    alone = ("--disable-pip-version-check", "--no-deps", "--index-url", index)
    among_others = (
        *("--python", str(find_program(with_uv, "python"))),
        *("--index", index),
        *("--find-links", str(folder / "rocm-packages" / "dist")),
        *("--preview-features", "wheel-variants"),
        *(word for name in RELEASED_PROJECTS for word in ("--refresh-package", name)),
    )
    return {
        with_pip: [
            DemoCommand(str(uv), (*make_venv_arguments(), "--seed", str(with_pip))),
            DemoCommand(str(find_program(with_pip, "pip")), ("install", *alone, *requirements)),
        ],
        with_uv: [
            DemoCommand(str(uv), (*make_venv_arguments(), str(with_uv))),
            DemoCommand(str(uv), ("pip", "install", *among_others, *requirements)),
        ],
    }


def make_venv_arguments() -> tuple[str, ...]:
    """Return the words after `uv` that make a throw-away environment, but for its place."""
    return ("venv", "--quiet", "--no-project", "--clear", "--python", sys.executable)


def find_program(environment: Path, name: str) -> Path:
    """Return where a virtual environment has a program."""
    if sys.platform == "win32":
        return environment / "Scripts" / f"{name}.exe"
    return environment / "bin" / name


FAMILY = "multi-arch"
CHANNEL = "nightly"
RELEASE_PROJECTS = ("torch", "torchaudio", "torchvision", "apex", "triton")
# The tests of the CPU half that calculate nothing: the miniature's torch has no tensors.
SMOKE_SELECTION = "torch_starts or requirements_of_torch or companion_belongs or rocm_sdk"
POLICY_EXCEPTION = """\
families:
  gfx94X-dcgpu:
    bypass_tests_for_releases: true
    owner: demo@rocm-wheels.invalid
    reason: no GPU is here to test gfx942 on
"""  # gfx1100 needs none: the data of families name it already
_IMPORT_CODE = "import apex, torch, torchaudio, torchvision, triton; print(torch.__version__, torch.__file__)"


@dataclass(frozen=True)
class DemoRelease:
    """The folder of a demonstration, and the programs that its release part starts."""

    folder: Path
    uv: Path

    @property
    def releases_folder(self) -> Path:
        """Where the store, the results and the policy are."""
        return self.folder / "releases"

    @property
    def store(self) -> Path:
        """A store: a folder will do."""
        return self.releases_folder / "store"

    @property
    def results(self) -> Path:
        """What was found out about the set, before it is handed in."""
        return self.releases_folder / "results"

    @property
    def policy(self) -> Path:
        """The rules of the channels as they are shipped, with the named exception."""
        return self.releases_folder / "policy.yaml"

    @property
    def wheels(self) -> list[Path]:
        """The wheels of the set."""
        return sorted((self.folder / "wheels").glob("*.whl"))

    @property
    def test_environment(self) -> Path:
        """The environment that the staged set is installed into, to be tested."""
        return self.folder / "installed" / "to-be-tested"

    @property
    def user_environment(self) -> Path:
        """The environment of a user of the channel."""
        return self.folder / "installed" / "from-the-release"

    def find_staged_set(self) -> str:
        """Return the id of the one set in the store."""
        (set_folder,) = (self.store / FAMILY / "sets").iterdir()
        return set_folder.name

    def make_stage_command(self) -> DemoCommand:
        """Make a set of the wheels."""
        lock = ("--lock", str(self.folder / LOCK_NAME))
        kind = ("--family", FAMILY)
        return DemoCommand(
            ROCM_WHEELS, ("set", "stage", str(self.store), *map(str, self.wheels), *lock, *kind)
        )

    def make_test_commands(self) -> Sequence[DemoCommand]:
        """Find out all that can be found out about the set without a GPU.

        With one, ``test smoke --store --set`` installs the set and tests it.
        """
        check_words = ("set", "check", str(self.store), *self._make_set_options())
        index = self.store / FAMILY / "sets" / self.find_staged_set() / "simple"
        kind = ("--gfx", TARGETS[0], "--rocm-index", str(self._rocm_packages))
        python = str(find_program(self.test_environment, "python"))
        tested = ("--python", python, "--wheels", str(self.folder / "wheels"))
        words = ("test", "smoke", *tested, "--output-dir", str(self.results / "smoke"))
        return [
            DemoCommand(ROCM_WHEELS, (*check_words, "--output-dir", str(self.results))),
            DemoCommand(
                ROCM_WHEELS,
                (
                    "install",
                    *RELEASE_PROJECTS,
                    "--index",
                    str(index),
                    "--venv",
                    str(self.test_environment),
                    *kind,
                ),
            ),
            DemoCommand(ROCM_WHEELS, (*words, "--", "-k", SMOKE_SELECTION)),
        ]

    def make_evidence_command(self) -> DemoCommand:
        """Write the results of the smoke tests down beside the set."""
        named = ("--from", str(self.results / "smoke" / "results.json"))
        return DemoCommand(
            ROCM_WHEELS, ("set", "evidence", "add", str(self.store), *self._make_set_options(), *named)
        )

    def make_gate_command(self, *, excused: bool) -> DemoCommand:
        """Ask whether the set may go to the channel; ``excused``: with the named exception."""
        more = ("--policy", str(self.policy)) if excused else ("--explain",)
        return DemoCommand(
            ROCM_WHEELS,
            ("set", "gate", str(self.store), *self._make_set_options(), "--channel", CHANNEL, *more),
        )

    def make_promote_commands(self) -> Sequence[DemoCommand]:
        """Show the set on the channel, and list what people see there."""
        words = (*self._make_set_options(), "--channel", CHANNEL, "--policy", str(self.policy))
        return [
            DemoCommand(ROCM_WHEELS, ("set", "promote", str(self.store), *words)),
            DemoCommand(ROCM_WHEELS, ("set", "list", str(self.store), "--channel", CHANNEL)),
        ]

    def make_user_install_commands(self, server: str) -> Sequence[DemoCommand]:
        """Do what a user of the channel does."""
        python = str(find_program(self.user_environment, "python"))
        words = (
            *("--python", python),
            *("--index", f"{server}{FAMILY}/simple/{CHANNEL}/"),
            *("--find-links", str(self._rocm_packages)),
            *RELEASE_PROJECTS,
        )
        return [
            DemoCommand(str(self.uv), (*make_venv_arguments(), str(self.user_environment))),
            DemoCommand(str(self.uv), ("pip", "install", "--quiet", *words)),
            DemoCommand(python, ("-I", "-c", _IMPORT_CODE)),
        ]

    @property
    def _rocm_packages(self) -> Path:
        return self.folder / "rocm-packages" / "dist"

    def _make_set_options(self) -> tuple[str, str]:
        return ("--set", self.find_staged_set())


def format_summary(folder: Path, duration: str) -> str:
    """Return what was made and where to look next, in eleven lines."""
    wheels = sorted((folder / "wheels").glob("*.whl"))
    torch = next(wheel for wheel in wheels if wheel.name.startswith("torch-"))
    names = ", ".join(wheel.name.split("-")[0] for wheel in wheels)
    show = DemoCommand(ROCM_WHEELS, ("wheel", "show", str(torch)))
    report = DemoCommand(
        ROCM_WHEELS,
        ("runs", "report", "--source-dir", str(folder / "sources"), "-o", str(folder / "report.html")),
    )
    return "\n".join(
        [
            f"done in {duration}; in {folder} there are now:",
            f"  {LOCK_NAME:18} the commits that everything was made from",
            f"  {'wheels/':18} {len(wheels)} wheels for {' and '.join(TARGETS)}: {names}",
            f"  {'fat/, split/':18} that torch with ROCm inside, and with a device wheel for each target",
            f"  {'release/index/':18} a package index with variants of torch for two versions of ROCm",
            f"  {'releases/store/':18} a store of releases: the set, its evidence, the channel {CHANNEL}",
            f"  {LOG_NAME:18} every command that was run, ready to paste, and what it printed",
            "look next at:",
            f"  {show.format_line()}",
            f"  {report.format_line()}",
            "  docs/pages/tutorials/demo.md, which explains each step",
        ]
    )


def format_policy(rules: str) -> str:
    """Return the policy of the demonstration: nightly takes results that nobody signed, and the exception."""
    unsigned = rules.replace("    rules:\n", "    signed: false\n    rules:\n", 1)
    return f"{unsigned.rstrip()}\n{POLICY_EXCEPTION}"


def describe_installed_wheel(environment: Path, name: str) -> str:
    """Return version and kind of an installed wheel: ``2.13.0a0 (plain wheel)``, ``… (variant null)``."""
    site_packages = [*environment.glob("lib/python*/site-packages"), *environment.glob("Lib/site-packages")]
    folders = [folder for parent in site_packages for folder in parent.glob(f"{name}-*.dist-info")]
    if len(folders) != 1:
        raise errors.DataError(f"{name} was not installed once into {environment}, but {len(folders)} times")
    version = folders[0].name.removesuffix(".dist-info").partition("-")[2]
    document = folders[0] / "variant.json"
    if not document.is_file():
        return f"{version} (plain wheel)"
    labels = json.loads(document.read_text(encoding="utf-8"))["variants"]
    return f"{version} (variant {', '.join(labels)})"


_TAIL_LINES = 25  # of the log file, shown where a step fails


class DemoProgress:
    """Numbered steps; what is printed inside a step goes into the log file.

    ``count`` is how many steps there are. The file is begun anew.
    """

    def __init__(self, log_path: Path, count: int) -> None:
        self.log_path = log_path
        self.count = count
        self.number = 0

    @contextlib.contextmanager
    def run_step(self, title: str) -> Iterator[None]:
        """Show one step with its time. Where it fails, show the end of the log file as well."""
        self.number += 1
        label = f"[{self.number:>{len(str(self.count))}}/{self.count}] {title}"
        begin = time.monotonic()
        progress.show_live_line(f"{label} …")
        try:
            with self.log_path.open("w" if self.number == 1 else "a", encoding="utf-8", buffering=1) as file:
                file.write(f"{label}\n")
                with _print_into(file):
                    yield
        except BaseException:
            progress.show_live_line("")
            self._show_tail(label)
            raise
        progress.show_live_line("")
        log.log_note(f"{label:<66} {tables.format_duration(time.monotonic() - begin):>7}")

    def _show_tail(self, label: str) -> None:
        lines = self.log_path.read_text(encoding="utf-8").splitlines()
        tail = [line for line in lines[-_TAIL_LINES:] if line != label]
        log.log_note(f"{label} failed; {'the end of ' if tail else ''}{self.log_path}{':' if tail else ''}")
        for line in tail:
            log.log_note(f"  {line}")


@contextlib.contextmanager
def _print_into(file: TextIO) -> Iterator[None]:
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file), log.write_log_to(file):
        yield
