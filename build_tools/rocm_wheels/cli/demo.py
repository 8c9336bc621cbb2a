"""``demo``: the ordinary commands, on a miniature of everything.

Only the inputs are made here (repositories, ROCm artifacts). All work is done by the commands that are
printed, which anybody can paste. A release made of other wheels than these, and an environment with
another release, are begun anew. What the release needs of a GPU is missing, so the gate must block it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.options import GivenPath
from rocm_wheels.core import (
    DataError,
    ReleaseError,
    SdkError,
    explain_error,
    find_cache_folder,
    format_duration,
    get_project_home,
    is_clone,
    lock_folder,
    log_note,
    paint_text,
    require_extras,
)
from rocm_wheels.demo import (
    BUILD_SCRIPT,
    EARLIER_ROCM_VERSION,
    EARLIER_TARGETS,
    LOG_NAME,
    PACKAGES_SCRIPT,
    POLICY_EXCEPTION,
    RELEASED_PROJECTS,
    ROCM_VERSION,
    ROCM_WHEELS,
    SMOKE_SCRIPT,
    TARGETS,
    DemoCommand,
    DemoProgress,
    DemoRelease,
    earlier_folder,
    format_policy,
    format_summary,
    list_build_commands,
    list_built_wheels,
    list_earlier_commands,
    list_index_commands,
    list_install_commands,
    list_packaged_install_commands,
    list_packaging_commands,
    list_plain_commands,
    list_stamp_commands,
    list_user_commands,
)


def load_commands() -> Mapping[str, click.Command]:
    """Return the click command behind each script."""
    from rocm_wheels.cli.artifacts import packages_command
    from rocm_wheels.cli.build import production
    from rocm_wheels.cli.main import cli
    from rocm_wheels.cli.torch_tests import smoke_command

    return {
        PACKAGES_SCRIPT: packages_command,
        ROCM_WHEELS: cli,
        BUILD_SCRIPT: production,
        SMOKE_SCRIPT: smoke_command,
    }


def print_call(call: DemoCommand) -> None:
    """Print a command."""
    log_note(paint_text(f"$ {call.format_line()}", "bold"))


def run_calls(demo_calls: Iterable[DemoCommand]) -> None:
    """Run our own commands in this process, through the same click commands that their scripts call."""
    for call in demo_calls:
        print_call(call)
        with contextlib.ExitStack() as opened:
            if call.output is not None:
                file = opened.enter_context(call.output.open("w", encoding="utf-8"))
                opened.enter_context(contextlib.redirect_stdout(file))
            code = load_commands()[call.program].main(
                args=list(call.arguments), prog_name=Path(call.program).name, standalone_mode=False
            )
        if code:  # one that has told its failures itself
            raise click.exceptions.Exit(code)


def run_programs(demo_calls: Iterable[DemoCommand], env: Mapping[str, str]) -> None:
    """Run programs that are not ours. Raises SdkError when one fails."""
    from rocm_wheels.core import run_command

    for call in demo_calls:
        print_call(call)
        run_command([call.program, *call.arguments], env=env, on_line=log_note, check=SdkError)


_BUILD_TITLES = (
    f"make Python packages of ROCm {ROCM_VERSION}",
    "lock: pin every repository",
    "check out and hipify",
    f"build and check five wheels for {' and '.join(TARGETS)}",
)
_STEP_COUNT = 15
_COSTS = "2 to 3 minutes on two cores, 1.1 GB of disk and 300 MB of downloads"  # measured with empty caches
_COUNTS_SECONDS = 7 * 24 * 3600  # the gate of the channel wants results that are not much older


def release_set(folder: Path, env: Mapping[str, str], progress: DemoProgress) -> None:
    """Release the wheels of ``folder``, and install them as people do who know only the channel.

    Raises DataError when the gate lets a set pass that nobody tested on a GPU.
    """
    from rocm_wheels.core import find_uv, hash_file
    from rocm_wheels.demo import fingerprint_folders, make_folder
    from rocm_wheels.index import serve_folder
    from rocm_wheels.sdk import compose_uv_environment

    releasing = DemoRelease(folder, find_uv())
    digest_lines = (f"{hash_file(wheel)} {wheel.name}" for wheel in releasing.wheels)
    make_folder(
        releasing.releases_folder,
        fingerprint_folders([], *digest_lines),
        lambda beside: (beside / "store").mkdir(),
    )
    uv_env = compose_uv_environment(env)
    with progress.run_step("stage the wheels as a set"):
        run_calls([releasing.make_stage_command()])
    with serve_folder(releasing.store) as server:
        with progress.run_step("install the staged set, test it, record the evidence"):
            serve_command = releasing.make_serve_command(server.server_port)
            log_note(f"until the demo ends: {serve_command.format_line()}")
            run_staged_tests(releasing, server.url, uv_env)
            run_calls([releasing.make_evidence_command()])
        with progress.run_step("ask the gate: blocked, nothing was tested on a GPU"):
            demonstrate_gate(releasing)
        with progress.run_step("name the exception, promote the set to nightly"):
            run_calls([releasing.make_gate_command(excused=True), *releasing.make_promote_commands()])
        with progress.run_step("install from the channel"):
            install_released(releasing, server.url, uv_env)


def run_staged_tests(releasing: DemoRelease, server: str, env: Mapping[str, str]) -> None:
    """Install the staged set and test it; not again while results of the same set count."""
    from rocm_wheels.demo import mark_folder, read_mark

    set_id = releasing.find_staged_set()
    if read_mark(releasing.results) == set_id and _seconds_since_made(releasing.results) < _COUNTS_SECONDS:
        log_note(f"the results of {set_id} are there: {releasing.results}")
        return
    run_programs(releasing.make_staged_install_commands(server), env)
    releasing.results.mkdir(exist_ok=True)
    log_note("of the CPU half of the smoke tests those that calculate nothing: this torch has no tensors")
    run_calls(releasing.make_test_commands(server))
    mark_folder(releasing.results, set_id)


def install_released(releasing: DemoRelease, server: str, env: Mapping[str, str]) -> None:
    """Install what the channel shows, unless the same set was installed from it before."""
    from rocm_wheels.demo import mark_folder, read_mark

    set_id = releasing.find_staged_set()
    if read_mark(releasing.user_environment) == set_id:
        log_note(f"{releasing.user_environment.name} is up to date: {set_id}")
        return
    run_programs(releasing.make_user_install_commands(server), env)
    mark_folder(releasing.user_environment, set_id)


def _seconds_since_made(folder: Path) -> float:
    return time.time() - (folder / ".made-from").stat().st_mtime


def demonstrate_gate(releasing: DemoRelease) -> None:
    """Have the gate block the set, then write down the exception that it takes."""
    from rocm_wheels.models import get_data_folder

    rules = (get_data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
    releasing.usual_policy.write_text(rules, encoding="utf-8")
    call = releasing.make_gate_command(excused=False)
    try:
        run_calls([call])
    except ReleaseError as blocked:
        log_note(explain_error(blocked))
        log_note(f"exit code {blocked.exit_code}, as expected: it has no GPU tests")
    else:
        raise DataError(f"the gate passed a set without GPU tests: {call.format_line()}")
    releasing.policy.write_text(format_policy(rules), encoding="utf-8")
    log_note(f"a named exception, in {releasing.policy} below the rules of everybody:")
    for line in POLICY_EXCEPTION.splitlines():
        log_note(f"    {line}")


@command("demo")
@option(
    "--output-dir",
    type=GivenPath(file_okay=False),
    help="Where everything goes; the wheels are in its folder wheels.  [default: demo-output]",
)
def demo_command(output_dir: Path | None) -> None:
    """Build real wheels with real AMD device code from a miniature of PyTorch and of ROCm.

    Then make variants of them, an index, and let pip, uv and ourselves install from it. And release them:
    stage a set, test what can be tested without a GPU, be blocked by the gate, take a named exception,
    promote.

    Needs git, a C++ compiler and the package index, no GPU and no ROCm. Run again, it does
    nothing. Every command and all that it prints goes into demo.log in the output folder.

    \b
    Example:
      rocm-wheels demo --output-dir demo-output
    """
    begin = time.monotonic()
    require_extras("the demo", "build", "release")
    env = read_environment()
    folder = (output_dir or (get_project_home() if is_clone() else Path.cwd()) / "demo-output").absolute()
    if not folder.exists():
        log_note(f"the demo takes {_COSTS}, {folder} included")
    with lock_folder(folder, purpose="demo"):
        run_steps(folder, env, DemoProgress(folder / LOG_NAME, _STEP_COUNT))
    click.echo(format_summary(folder, format_duration(time.monotonic() - begin)))


def run_steps(folder: Path, env: Mapping[str, str], progress: DemoProgress) -> None:
    """Run the whole demonstration below ``folder``."""
    with progress.run_step("make the inputs: repositories, hipify, ROCm artifacts"):
        urls = prepare_inputs(folder, env)
    for title, call in zip(_BUILD_TITLES, list_build_commands(folder, urls), strict=True):
        with progress.run_step(title):
            run_calls([call])
    with progress.run_step("make a fat and a split torch of it, install both"):
        run_calls(list_packaging_commands(folder))
        install_packaged(folder, env)
    with progress.run_step(f"build torch and triton for ROCm {EARLIER_ROCM_VERSION} as well"):
        run_calls(list_earlier_commands(folder))
    with progress.run_step("make variant wheels, and an index of them"):
        release = start_release(folder)
        run_calls(list_stamp_commands(list_built_wheels(folder), release))
        run_calls(list_plain_commands(release))
        run_calls(list_index_commands(folder, release))
    with progress.run_step("install from the index by pip and by uv"):
        install_release(folder, release, env)
    with progress.run_step("choose for four machines, install for one, ask doctor"):
        choose_and_install(folder, release, env)
    release_set(folder, env, progress)


def prepare_inputs(folder: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """Make the inputs below ``folder``, where they are not there yet; return the repositories' URLs."""
    from rocm_wheels.demo import fetch_hipify, make_artifacts, make_repositories

    miniature = get_project_home() / "tests" / "miniature"
    hipify = fetch_hipify(find_cache_folder(env, sys.platform), env=env)
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
    from rocm_wheels.core import hash_file
    from rocm_wheels.demo import fingerprint_folders, make_folder

    wheels = [wheel for project_wheels in list_built_wheels(folder).values() for wheel in project_wheels]
    release = folder / "release"
    make_folder(
        release,
        fingerprint_folders([], *(f"{hash_file(w)} {w.name}" for w in wheels)),
        lambda beside: None,
    )
    return release


def install_release(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Let pip and uv install the release, and say which wheels they took; not again from the same index."""
    from rocm_wheels.core import find_uv, run_command
    from rocm_wheels.demo import describe_installed_wheel, fingerprint_folders, mark_folder, read_mark
    from rocm_wheels.sdk import compose_uv_environment

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
                run_command(line, env=compose_uv_environment(env), on_line=log_note, check=SdkError)
        if not current:
            mark_folder(place, made_of)
        taken = ", ".join(f"{name} {describe_installed_wheel(place, name)}" for name in RELEASED_PROJECTS)
        log_note(f"{place.name} {'is up to date' if current else 'has'}: {taken}")


def install_packaged(folder: Path, env: Mapping[str, str]) -> None:
    """Install the fat and the split torch, and say what they load; not again while they are the same."""
    from rocm_wheels.core import find_uv, hash_file
    from rocm_wheels.demo import fingerprint_folders, mark_folder, read_mark
    from rocm_wheels.sdk import compose_uv_environment

    for place, demo_calls in list_packaged_install_commands(folder, find_uv()).items():
        wheels = sorted((folder / place.name).glob("*.whl"))
        made_of = fingerprint_folders([], *map(hash_file, wheels), *(c.format_line() for c in demo_calls))
        if read_mark(place) == made_of:
            log_note(f"{place.name} is up to date")
            continue
        run_programs(demo_calls, compose_uv_environment(env))
        mark_folder(place, made_of)


def choose_and_install(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Have the index served, choose from it for several machines, and install for one of them."""
    from rocm_wheels.core import find_uv
    from rocm_wheels.index import serve_folder
    from rocm_wheels.sdk import compose_uv_environment

    with serve_folder(release / "index") as server:
        served = ("index", "serve", str(release / "index"), "--port", str(server.server_port))
        log_note(f"until the demo ends: {DemoCommand(ROCM_WHEELS, served).format_line()}")
        for call in list_user_commands(folder, server.url, find_uv()):
            if call.program in load_commands():
                run_calls([call])
            else:
                run_programs([call], compose_uv_environment(env))
