"""``rocm-wheels demo``: the ordinary commands, on a miniature of everything.

Only the inputs are made here (repositories, ROCm artifacts). All work is done by the
commands that are printed, which anybody can paste: they do not know what they work on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.process import shell_line
from rocm_wheels.workspace import exclusive, home, in_clone

ROCM_VERSION = "7.1.0+miniature"
TARGETS = ("gfx942", "gfx1100")

PACKAGES = "build_tools/build_python_packages.py"
ROCM_WHEELS = "rocm-wheels"  # in the scripts of the environment that we run in
BUILD = "build_tools/build_prod_wheels.py"
LOCK = "sources.lock.json"
NAMED = ("pytorch", "triton")  # torch's tree names the other repositories, and all other commits


@dataclass(frozen=True)
class Call:
    """One ordinary command: its door in the clone, and its arguments."""

    door: str
    arguments: tuple[str, ...]

    def line(self) -> str:
        """Return the command as it would be typed in the clone."""
        started = our_script() if self.door == ROCM_WHEELS else [self.door]
        return shell_line([*started, *self.arguments])


def our_script() -> list[str]:
    """Return how `rocm-wheels` is started in the clone: the script beside the running Python."""
    name = "rocm-wheels.exe" if sys.platform == "win32" else "rocm-wheels"
    script = Path(sys.executable).parent / name
    if not script.exists():
        return [sys.executable, "-m", "rocm_wheels"]
    clone = home()
    return [str(script.relative_to(clone) if script.is_relative_to(clone) else script)]


def commands() -> Mapping[str, click.Command]:
    """Return the click command behind each door."""
    from rocm_wheels.cli import build, main, python_packages

    return {PACKAGES: python_packages.command, ROCM_WHEELS: main.cli, BUILD: build.production}


@click.command("demo")
@click.option(
    "--output-dir",
    type=GivenPath(file_okay=False),
    help="Where everything goes; the wheels are in its folder wheels.  [default: demo-output]",
)
def command(output_dir: Path | None) -> None:
    """Build real wheels with real AMD device code from a miniature of PyTorch and of ROCm.

    Needs git, a C++ compiler and the package index, no GPU and no ROCm. Run again, it does
    nothing.
    """
    begin = time.monotonic()
    env = environment()
    folder = (output_dir or (home() if in_clone() else Path.cwd()) / "demo-output").absolute()
    with exclusive(folder, what="demo"):
        for call in calls(folder, prepare(folder, env)):
            log.note(log.paint(f"$ {call.line()}", "bold"))
            run(call)
    log.note(f"wheels: {folder / 'wheels'} (demo: {time.monotonic() - begin:.1f} s)")


def prepare(folder: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """Make the inputs below ``folder``, where they are not there yet; return the repositories' URLs."""
    from rocm_wheels.demo.artifacts import make_artifacts
    from rocm_wheels.demo.hipify_source import fetch_hipify
    from rocm_wheels.demo.repositories import make_repositories

    miniature = home() / "tests" / "miniature"
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", folder)) / ".cache") / "rocm-wheels"
    hipify = fetch_hipify(cache, env=env)
    repositories = make_repositories(miniature, folder / "upstream", hipify=hipify, env=env)
    make_artifacts(
        miniature / "rocm", folder / "rocm-artifacts", version=ROCM_VERSION, targets=TARGETS, env=env
    )
    return {name: repository.url for name, repository in repositories.items()}


def calls(folder: Path, urls: Mapping[str, str]) -> Sequence[Call]:
    """Return the commands that turn the inputs into wheels, in order."""
    sources, lock = str(folder / "sources"), str(folder / LOCK)
    return [
        Call(
            PACKAGES,
            ("--artifact-dir", str(folder / "rocm-artifacts"), "--dest-dir", str(folder / "rocm-packages")),
        ),
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
                "--install-rocm",
                *("--find-links", str(folder / "rocm-packages" / "dist")),
                *("--rocm-extras", ",".join(f"device-{target}" for target in TARGETS)),
                *("--root-checkout-dir", sources),
                *("--output-dir", str(folder / "wheels")),
            ),
        ),
    ]


def run(call: Call) -> None:
    """Run a command in this process, through the same click command that its door calls."""
    code = commands()[call.door].main(
        args=list(call.arguments), prog_name=Path(call.door).name, standalone_mode=False
    )
    if code:  # one that has told its failures itself
        raise click.exceptions.Exit(code)
