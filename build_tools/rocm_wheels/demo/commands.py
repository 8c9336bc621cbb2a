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

from rocm_wheels.shell import shell_line
from rocm_wheels.workspace import home

ROCM_VERSION = "7.1.0+miniature"
EARLIER_ROCM_VERSION = "7.0.2+miniature"
TARGETS = ("gfx942", "gfx1100")
EARLIER_TARGETS = ("gfx942",)
RELEASED = ("torch", "triton")
MACHINES = ("gfx942", "gfx1100", "gfx1399", "none")  # the last but one is of no GPU that anybody knows

PACKAGES = "build_tools/build_python_packages.py"
ROCM_WHEELS = "rocm-wheels"  # in the scripts of the environment that we run in
BUILD = "build_tools/build_prod_wheels.py"
SMOKE = "build_tools/run_pytorch_smoke_tests.py"
LOCK = "sources.lock.json"
NAMED = ("pytorch", "triton")  # torch's tree names the other repositories, and all other commits


@dataclass(frozen=True)
class Call:
    """One ordinary command: its door in the clone (or another program), and its arguments.

    ``output``: the file that gets what it prints, if not the terminal.
    """

    door: str
    arguments: tuple[str, ...]
    output: Path | None = None

    def line(self) -> str:
        """Return the command as it would be typed in the clone."""
        started = our_script() if self.door == ROCM_WHEELS else [_short(self.door)]
        into = f" > {shell_line([str(self.output)])}" if self.output else ""
        return shell_line([*started, *self.arguments]) + into


def our_script() -> list[str]:
    """Return how `rocm-wheels` is started in the clone: the script beside the running Python."""
    name = "rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels"
    script = Path(sys.executable).parent / name
    return [_short(str(script))] if script.exists() else [sys.executable, "-m", "rocm_wheels"]


def _short(program: str) -> str:
    path, clone = Path(program), home()
    return str(path.relative_to(clone)) if path.is_relative_to(clone) else program


def calls(folder: Path, urls: Mapping[str, str]) -> Sequence[Call]:
    """Return the commands that turn the inputs in ``folder`` into wheels, in order."""
    sources, lock = str(folder / "sources"), str(folder / LOCK)
    return [
        _packages(folder / "rocm-artifacts", folder / "rocm-packages"),
        Call(
            ROCM_WHEELS,
            (
                "lock",
                *(word for name in NAMED for word in (f"--{name}-origin", urls[name])),
                *("--rocm-version", ROCM_VERSION),
                *("--pytorch-rocm-arch", ",".join(TARGETS)),
                *("-o", lock),
            ),
        ),
        Call(ROCM_WHEELS, ("checkout", "--lock", lock, "--repo", sources)),
        Call(
            BUILD,
            (
                "build",
                *("--lock", lock),
                *_installing(folder / "rocm-packages", TARGETS),
                *("--root-checkout-dir", sources),
                *("--output-dir", str(folder / "wheels")),
            ),
        ),
    ]


def earlier_calls(folder: Path) -> Sequence[Call]:
    """Return the commands that build triton and torch against the earlier ROCm, from the same commits.

    They have checkouts and a work directory of their own, as on a machine that builds nothing else: in a
    checkout that both use, only one can build at a time.
    """
    earlier = earlier_folder(folder)
    sources = str(earlier / "sources")
    return [
        _packages(earlier / "artifacts", earlier / "packages"),
        Call(ROCM_WHEELS, ("checkout", *RELEASED, "--lock", str(folder / LOCK), "--repo", sources)),
        Call(
            BUILD,
            (
                "build",
                *("--rocm-sdk-version", f"=={EARLIER_ROCM_VERSION}"),
                *("--pytorch-rocm-arch", ",".join(EARLIER_TARGETS)),
                *_installing(earlier / "packages", EARLIER_TARGETS),
                *("--root-checkout-dir", sources),
                *("--output-dir", str(earlier / "wheels")),
            ),
        ),
    ]


def earlier_folder(folder: Path) -> Path:
    """Return where everything about the earlier ROCm lies."""
    return folder / "earlier-rocm"


def _packages(artifacts: Path, packages: Path) -> Call:
    return Call(PACKAGES, ("--artifact-dir", str(artifacts), "--dest-dir", str(packages)))


def _installing(packages: Path, targets: Sequence[str]) -> tuple[str, ...]:
    extras = ",".join(f"device-{target}" for target in targets)
    return ("--install-rocm", "--find-links", str(packages / "dist"), "--rocm-extras", extras)


def built_wheels(folder: Path) -> dict[str, list[Path]]:
    """Return what the release is made of: wheels by project, those for the newer ROCm first."""
    places = (folder / "wheels", earlier_folder(folder) / "wheels")
    return {name: [w for place in places for w in sorted(place.glob(f"{name}-*.whl"))] for name in RELEASED}


def stamp_calls(built: Mapping[str, Sequence[Path]], release: Path) -> Sequence[Call]:
    """Return the commands that make the variants of the release."""
    variants = ("--output-dir", str(release / "variants"))
    return [
        Call(ROCM_WHEELS, ("stamp", *map(str, built["torch"]), *variants)),
        Call(ROCM_WHEELS, ("stamp", "--null", str(built["triton"][0]), *variants)),
    ]


def plain_calls(release: Path) -> Sequence[Call]:
    """Return the command that makes the plain wheels of the release, from one variant of each project."""
    rocm = ".".join(ROCM_VERSION.split(".")[:2])
    variants = release / "variants"
    chosen = [*variants.glob(f"torch-*-rocm{rocm}_*.whl"), *variants.glob("triton-*-null.whl")]
    return [Call(ROCM_WHEELS, ("unstamp", *map(str, sorted(chosen)), "--output-dir", str(release / "plain")))]


def index_calls(folder: Path, release: Path) -> Sequence[Call]:
    """Return the commands that put the release into an index, and read that as installers do."""
    index = str(release / "index")
    released = [release / "plain", release / "variants"]
    rocm = [earlier_folder(folder) / "packages" / "dist", folder / "rocm-packages" / "dist"]
    return [
        *(
            Call(ROCM_WHEELS, ("index", "add", index, *(str(w) for place in places for w in _wheels(place))))
            for places in (released, rocm)
        ),
        Call(ROCM_WHEELS, ("index", "verify", index)),
    ]


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


def user_calls(folder: Path, index: str, uv: Path) -> Sequence[Call]:
    """Return what people do who want torch from an index that a server gives out.

    They ask which wheel is for a machine, install for one, and have the result looked at.
    """
    place = folder / "installed" / "by-rocm-wheels"
    python = str(program_in(place, "python"))
    chosen = [Call(ROCM_WHEELS, ("choose", "torch", "--index", index, "--gfx", gfx)) for gfx in MACHINES]
    made = Call(str(uv), (*fresh(), str(place)))
    stated = ("--gfx", MACHINES[0])
    return [
        *chosen,
        *([] if place.is_dir() else [made]),
        Call(ROCM_WHEELS, ("install", *RELEASED, "--index", index, *stated, "--target-python", python)),
        Call(ROCM_WHEELS, ("doctor", "--python", python, *stated)),
    ]


def install_calls(folder: Path, release: Path, uv: Path) -> Mapping[Path, Sequence[Call]]:
    """Return, for each throw-away environment, the commands that make it and install the release into it.

    pip takes the index alone, and so leaves out what these wheels require; uv takes ROCm from its packages
    and a compiler from the index that it is told to use otherwise. uv remembers files of an index by their
    names, also when another release is begun at the same place: hence --refresh-package.
    """
    index = (release / "index").as_uri()
    asked = sorted({"==".join(wheel.name.split("-")[:2]) for wheel in (release / "plain").glob("*.whl")})
    with_pip, with_uv = folder / "installed" / "by-pip", folder / "installed" / "by-uv"
    alone = ("--disable-pip-version-check", "--no-deps", "--index-url", index)
    among_others = (
        *("--python", str(program_in(with_uv, "python"))),
        *("--index", index),
        *("--find-links", str(folder / "rocm-packages" / "dist")),
        *("--preview-features", "wheel-variants"),
        *(word for name in RELEASED for word in ("--refresh-package", name)),
    )
    return {
        with_pip: [
            Call(str(uv), (*fresh(), "--seed", str(with_pip))),
            Call(str(program_in(with_pip, "pip")), ("install", *alone, *asked)),
        ],
        with_uv: [
            Call(str(uv), (*fresh(), str(with_uv))),
            Call(str(uv), ("pip", "install", *among_others, *asked)),
        ],
    }


def fresh() -> tuple[str, ...]:
    """Return the words after `uv` that make a throw-away environment, but for its place."""
    return ("venv", "--quiet", "--no-project", "--clear", "--python", sys.executable)


def program_in(environment: Path, name: str) -> Path:
    """Return where a virtual environment has a program."""
    if sys.platform == "win32":
        return environment / "Scripts" / f"{name}.exe"
    return environment / "bin" / name
