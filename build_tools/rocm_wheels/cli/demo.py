"""``rocm-wheels demo``: the ordinary commands, on a miniature of everything.

Only the inputs are made here (repositories, ROCm artifacts). All work is done by the
commands that are printed, which anybody can paste: they do not know what they work on.
A release made of other wheels than these, and an environment with another release, are begun anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import environment
from rocm_wheels.cli.demo_release import release as release_set
from rocm_wheels.cli.demo_running import commands, run_all, run_programs, show
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.demo.commands import (
    EARLIER_ROCM_VERSION,
    EARLIER_TARGETS,
    RELEASED,
    ROCM_VERSION,
    ROCM_WHEELS,
    TARGETS,
    Call,
    built_wheels,
    calls,
    earlier_calls,
    earlier_folder,
    index_calls,
    install_calls,
    plain_calls,
    stamp_calls,
    user_calls,
)
from rocm_wheels.errors import SdkError
from rocm_wheels.workspace import exclusive, home, in_clone


@click.command("demo")
@click.option(
    "--output-dir",
    type=GivenPath(file_okay=False),
    help="Where everything goes; the wheels are in its folder wheels.  [default: demo-output]",
)
def command(output_dir: Path | None) -> None:
    """Build real wheels with real AMD device code from a miniature of PyTorch and of ROCm.

    Then make variants of them, an index, and let pip, uv and ourselves install from it. And release them:
    stage a set, test what can be tested without a GPU, be blocked by the gate, take a named exception,
    promote.

    Needs git, a C++ compiler and the package index, no GPU and no ROCm. Run again, it does
    nothing.
    """
    begin = time.monotonic()
    env = environment()
    folder = (output_dir or (home() if in_clone() else Path.cwd()) / "demo-output").absolute()
    with exclusive(folder, what="demo"):
        run_all(calls(folder, prepare(folder, env)))
        run_all(earlier_calls(folder))
        release = begin_release(folder)
        run_all(stamp_calls(built_wheels(folder), release))
        run_all(plain_calls(release))
        run_all(index_calls(folder, release))
        install(folder, release, env)
        choose_and_install(folder, release, env)
        release_set(folder, env)
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
    for place, version, targets in (
        (folder / "rocm-artifacts", ROCM_VERSION, TARGETS),
        (earlier_folder(folder) / "artifacts", EARLIER_ROCM_VERSION, EARLIER_TARGETS),
    ):
        make_artifacts(miniature / "rocm", place, version=version, targets=targets, env=env)
    return {name: repository.url for name, repository in repositories.items()}


def begin_release(folder: Path) -> Path:
    """Return the folder of the release: an empty one unless the last was made of the same wheels.

    What is published is never replaced, so wheels of the same name and other bytes need another index.
    """
    from rocm_wheels.demo.folders import fingerprint, make_folder, sha256_of

    wheels = [wheel for found in built_wheels(folder).values() for wheel in found]
    release = folder / "release"
    make_folder(release, fingerprint([], *(f"{sha256_of(w)} {w.name}" for w in wheels)), lambda beside: None)
    return release


def install(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Let pip and uv install the release, and say which wheels they took; not again from the same index."""
    from rocm_wheels.demo.folders import fingerprint, made_from, mark
    from rocm_wheels.demo.installed import wheel_taken
    from rocm_wheels.process import run
    from rocm_wheels.sdk.uv import uv_environment, uv_program

    pages = sorted((release / "index").glob("*/index.json"))
    for place, wanted in install_calls(folder, release, uv_program()).items():
        made_of = fingerprint([], *(page.read_text() for page in pages), *(call.line() for call in wanted))
        current = made_from(place) == made_of
        for call in wanted:
            show(call)
            if not current:
                line = [call.door, *call.arguments]
                run(line, env=uv_environment(env), on_line=log.note, check=SdkError)
        if not current:
            mark(place, made_of)
        taken = ", ".join(f"{name} {wheel_taken(place, name)}" for name in RELEASED)
        log.note(f"{place.name} {'is up to date' if current else 'has'}: {taken}")


def choose_and_install(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Have the index served, choose from it for several machines, and install for one of them."""
    from rocm_wheels.index.server import serving
    from rocm_wheels.sdk.uv import uv_environment, uv_program

    with serving(release / "index") as server:
        served = ("index", "serve", str(release / "index"), "--port", str(server.server_port))
        log.note(f"until the demo ends: {Call(ROCM_WHEELS, served).line()}")
        for call in user_calls(folder, server.url, uv_program()):
            if call.door in commands():
                run_all([call])
            else:
                run_programs([call], uv_environment(env))
