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
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.demo_release import release_set as release_set
from rocm_wheels.cli.demo_running import load_commands, run_calls, run_programs, print_call
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.demo.commands import (
    EARLIER_ROCM_VERSION,
    EARLIER_TARGETS,
    RELEASED_PROJECTS,
    ROCM_VERSION,
    ROCM_WHEELS,
    TARGETS,
    DemoCommand,
    list_built_wheels,
    list_build_commands,
    list_earlier_commands,
    earlier_folder,
    list_index_commands,
    list_install_commands,
    list_plain_commands,
    list_stamp_commands,
    list_user_commands,
)
from rocm_wheels.errors import SdkError
from rocm_wheels.workspace import lock_folder, get_project_home, is_clone


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
    env = read_environment()
    folder = (output_dir or (get_project_home() if is_clone() else Path.cwd()) / "demo-output").absolute()
    with lock_folder(folder, purpose="demo"):
        run_calls(list_build_commands(folder, prepare_inputs(folder, env)))
        run_calls(list_earlier_commands(folder))
        release = start_release(folder)
        run_calls(list_stamp_commands(list_built_wheels(folder), release))
        run_calls(list_plain_commands(release))
        run_calls(list_index_commands(folder, release))
        install_release(folder, release, env)
        choose_and_install(folder, release, env)
        release_set(folder, env)
    log.log_note(f"wheels: {folder / 'wheels'} (demo: {time.monotonic() - begin:.1f} s)")


def prepare_inputs(folder: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """Make the inputs below ``folder``, where they are not there yet; return the repositories' URLs."""
    from rocm_wheels.demo.artifacts import make_artifacts
    from rocm_wheels.demo.hipify_source import fetch_hipify
    from rocm_wheels.demo.repositories import make_repositories

    miniature = get_project_home() / "tests" / "miniature"
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", folder)) / ".cache") / "rocm-wheels"
    hipify = fetch_hipify(cache, env=env)
    repositories = make_repositories(miniature, folder / "upstream", hipify=hipify, env=env)
    for place, version, targets in (
        (folder / "rocm-artifacts", ROCM_VERSION, TARGETS),
        (earlier_folder(folder) / "artifacts", EARLIER_ROCM_VERSION, EARLIER_TARGETS),
    ):
        make_artifacts(miniature / "rocm", place, version=version, targets=targets, env=env)
    return {name: repository.url for name, repository in repositories.items()}


def start_release(folder: Path) -> Path:
    """Return the folder of the release: an empty one unless the last was made of the same wheels.

    What is published is never replaced, so wheels of the same name and other bytes need another index.
    """
    from rocm_wheels.demo.folders import fingerprint_folders, make_folder, digest_small_file

    wheels = [wheel for project_wheels in list_built_wheels(folder).values() for wheel in project_wheels]
    release = folder / "release"
    make_folder(
        release,
        fingerprint_folders([], *(f"{digest_small_file(w)} {w.name}" for w in wheels)),
        lambda beside: None,
    )
    return release


def install_release(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Let pip and uv install the release, and say which wheels they took; not again from the same index."""
    from rocm_wheels.demo.folders import fingerprint_folders, read_mark, mark_folder
    from rocm_wheels.demo.installed import describe_installed_wheel
    from rocm_wheels.process import run_command
    from rocm_wheels.sdk.uv import compose_uv_environment, find_uv

    pages = sorted((release / "index").glob("*/index.json"))
    for place, demo_calls in list_install_commands(folder, release, find_uv()).items():
        made_of = fingerprint_folders(
            [], *(page.read_text() for page in pages), *(call.format_line() for call in demo_calls)
        )
        current = read_mark(place) == made_of
        for call in demo_calls:
            print_call(call)
            if not current:
                line = [call.program, *call.arguments]
                run_command(line, env=compose_uv_environment(env), on_line=log.log_note, check=SdkError)
        if not current:
            mark_folder(place, made_of)
        taken = ", ".join(f"{name} {describe_installed_wheel(place, name)}" for name in RELEASED_PROJECTS)
        log.log_note(f"{place.name} {'is up to date' if current else 'has'}: {taken}")


def choose_and_install(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Have the index served, choose from it for several machines, and install for one of them."""
    from rocm_wheels.index.server import serve_folder
    from rocm_wheels.sdk.uv import compose_uv_environment, find_uv

    with serve_folder(release / "index") as server:
        served = ("index", "serve", str(release / "index"), "--port", str(server.server_port))
        log.log_note(f"until the demo ends: {DemoCommand(ROCM_WHEELS, served).format_line()}")
        for call in list_user_commands(folder, server.url, find_uv()):
            if call.program in load_commands():
                run_calls([call])
            else:
                run_programs([call], compose_uv_environment(env))
