"""The commands of the demonstration, in order: the very words that anybody would type.

Wheels are built against two versions of ROCm: torch and its triton also against the earlier one, for one
target. What becomes of them is one release: variants share one version, so ``+rocm7.1.0`` leaves it, and a
plain wheel beside them has that version too. Its place is taken by the torch with all targets and the
newer ROCm, for installers that know nothing of variants. Wheels of the other projects are not in the
release: there would be none for the earlier ROCm, and an installer could put them beside the other torch.

triton is the wheel for every machine (``null``): it holds no device code, neither links nor requires
ROCm, and is the same for both versions of it. The ROCm packages are in the index too: what torch requires
comes from where torch does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.shell import format_command
from rocm_wheels.workspace import get_project_home

ROCM_VERSION = "7.1.0+miniature"
EARLIER_ROCM_VERSION = "7.0.2+miniature"
TARGETS = ("gfx942", "gfx1100")
EARLIER_TARGETS = ("gfx942",)
RELEASED_PROJECTS = ("torch", "triton")
MACHINES = ("gfx942", "gfx1100", "gfx1399", "none")  # the last but one is of no GPU that anybody knows

PACKAGES_SCRIPT = "build_tools/build_python_packages.py"
ROCM_WHEELS = "rocm-wheels"  # in the scripts of the environment that we run in
BUILD_SCRIPT = "build_tools/build_prod_wheels.py"
SMOKE_SCRIPT = "build_tools/run_pytorch_smoke_tests.py"
LOCK_NAME = "sources.lock.json"
NAMED_PROJECTS = ("pytorch", "triton")  # torch's tree names the other repositories, and all other commits


@dataclass(frozen=True)
class DemoCommand:
    """One ordinary command: its door in the clone (or another program), and its arguments.

    ``output``: the file that gets what it prints, if not the terminal.
    """

    program: str
    arguments: tuple[str, ...]
    output: Path | None = None

    def format_line(self) -> str:
        """Return the command as it would be typed in the clone."""
        started = find_our_script() if self.program == ROCM_WHEELS else [_shorten_path(self.program)]
        into = f" > {format_command([str(self.output)])}" if self.output else ""
        return format_command([*started, *self.arguments]) + into


def find_our_script() -> list[str]:
    """Return how `rocm-wheels` is started in the clone: the script beside the running Python."""
    name = "rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels"
    script = Path(sys.executable).parent / name
    return [_shorten_path(str(script))] if script.exists() else [sys.executable, "-m", "rocm_wheels"]


def _shorten_path(program: str) -> str:
    path, clone = Path(program), get_project_home()
    return str(path.relative_to(clone)) if path.is_relative_to(clone) else program


def list_build_commands(folder: Path, urls: Mapping[str, str]) -> Sequence[DemoCommand]:
    """Return the commands that turn the inputs in ``folder`` into wheels, in order."""
    sources, lock = str(folder / "sources"), str(folder / LOCK_NAME)
    return [
        _make_packages_command(folder / "rocm-artifacts", folder / "rocm-packages"),
        DemoCommand(
            ROCM_WHEELS,
            (
                "lock",
                *(word for name in NAMED_PROJECTS for word in (f"--{name}-origin", urls[name])),
                *("--rocm-version", ROCM_VERSION),
                *("--pytorch-rocm-arch", ",".join(TARGETS)),
                *("-o", lock),
            ),
        ),
        DemoCommand(ROCM_WHEELS, ("checkout", "--lock", lock, "--repo", sources)),
        DemoCommand(
            BUILD_SCRIPT,
            (
                "build",
                *("--lock", lock),
                *_make_install_options(folder / "rocm-packages", TARGETS),
                *("--root-checkout-dir", sources),
                *("--output-dir", str(folder / "wheels")),
            ),
        ),
    ]


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
            ("checkout", *RELEASED_PROJECTS, "--lock", str(folder / LOCK_NAME), "--repo", sources),
        ),
        DemoCommand(
            BUILD_SCRIPT,
            (
                "build",
                *("--rocm-sdk-version", f"=={EARLIER_ROCM_VERSION}"),
                *("--pytorch-rocm-arch", ",".join(EARLIER_TARGETS)),
                *_make_install_options(earlier / "packages", EARLIER_TARGETS),
                *("--root-checkout-dir", sources),
                *("--output-dir", str(earlier / "wheels")),
            ),
        ),
    ]


def earlier_folder(folder: Path) -> Path:
    """Return where everything about the earlier ROCm lies."""
    return folder / "earlier-rocm"


def _make_packages_command(artifacts: Path, packages: Path) -> DemoCommand:
    return DemoCommand(PACKAGES_SCRIPT, ("--artifact-dir", str(artifacts), "--dest-dir", str(packages)))


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
        DemoCommand(ROCM_WHEELS, ("stamp", *map(str, built["torch"]), *variants)),
        DemoCommand(ROCM_WHEELS, ("stamp", "--null", str(built["triton"][0]), *variants)),
    ]


def list_plain_commands(release: Path) -> Sequence[DemoCommand]:
    """Return the command that makes the plain wheels of the release, from one variant of each project."""
    rocm = ".".join(ROCM_VERSION.split(".")[:2])
    variants = release / "variants"
    chosen = [*variants.glob(f"torch-*-rocm{rocm}_*.whl"), *variants.glob("triton-*-null.whl")]
    return [
        DemoCommand(
            ROCM_WHEELS, ("unstamp", *map(str, sorted(chosen)), "--output-dir", str(release / "plain"))
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
                    "add",
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


def list_user_commands(folder: Path, index: str, uv: Path) -> Sequence[DemoCommand]:
    """Return what people do who want torch from an index that a server gives out.

    They ask which wheel is for a machine, install for one, and have the result looked at.
    """
    environment = folder / "installed" / "by-rocm-wheels"
    python = str(find_program(environment, "python"))
    chosen = [
        DemoCommand(ROCM_WHEELS, ("choose", "torch", "--index", index, "--gfx", gfx)) for gfx in MACHINES
    ]
    make_environment = DemoCommand(str(uv), (*make_venv_arguments(), str(environment)))
    stated = ("--gfx", MACHINES[0])
    return [
        *chosen,
        *([] if environment.is_dir() else [make_environment]),
        DemoCommand(
            ROCM_WHEELS, ("install", *RELEASED_PROJECTS, "--index", index, *stated, "--target-python", python)
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
