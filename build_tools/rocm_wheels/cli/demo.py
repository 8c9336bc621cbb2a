"""``demo``: the ordinary commands, on a miniature of everything.

Only the inputs are made here (repositories, ROCm artifacts). All work is done by the commands that are
printed, which anybody can paste. A release made of other wheels than these, and an environment with
another release, are begun anew. What the release needs of a GPU is missing, so the gate must block it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.core import errors, extras, files, log, tables, user_folders, workspace
from rocm_wheels.demo import commands


def load_commands() -> Mapping[str, click.Command]:
    """Return the click command behind each script."""
    from rocm_wheels.cli import artifacts, build, main

    return {
        commands.PACKAGES_SCRIPT: artifacts.packages_command,
        commands.ROCM_WHEELS: main.cli,
        commands.BUILD_SCRIPT: build.production,
    }


def print_call(call: commands.DemoCommand) -> None:
    """Print a command."""
    log.log_note(log.paint_text(f"$ {call.format_line()}", "bold"))


def run_calls(demo_calls: Iterable[commands.DemoCommand]) -> None:
    """Run our own commands in this process, through the same click commands that their scripts call."""
    for call in demo_calls:
        print_call(call)
        code = load_commands()[call.program].main(
            args=list(call.arguments), prog_name=Path(call.program).name, standalone_mode=False
        )
        if code:  # one that has told its failures itself
            raise click.exceptions.Exit(code)


def run_programs(demo_calls: Iterable[commands.DemoCommand], env: Mapping[str, str]) -> None:
    """Run programs that are not ours. Raises SdkError when one fails."""
    from rocm_wheels.core import process

    for call in demo_calls:
        print_call(call)
        process.run_command(
            [call.program, *call.arguments], env=env, on_line=log.log_note, check=errors.SdkError
        )


_BUILD_TITLES = (
    f"make Python packages of ROCm {commands.ROCM_VERSION}",
    "lock: pin every repository",
    "check out and hipify",
    f"build and check five wheels for {' and '.join(commands.TARGETS)}",
)
_STEP_COUNT = 15
_COSTS = "2 to 3 minutes on two cores, 1.1 GB of disk and 300 MB of downloads"  # measured with empty caches
_COUNTS_SECONDS = 7 * 24 * 3600  # the gate of the channel wants results that are not much older


def release_set(folder: Path, env: Mapping[str, str], progress: commands.DemoProgress) -> None:
    """Release the wheels of ``folder``, and install them as people do who know only the channel.

    Raises DataError when the gate lets a set pass that nobody tested on a GPU.
    """
    from rocm_wheels.demo.miniature import fingerprint_folders, make_folder
    from rocm_wheels.index.server import serve_folder
    from rocm_wheels.sdk import interpreters

    releasing = commands.DemoRelease(folder, extras.find_uv())
    digest_lines = (f"{files.hash_file(wheel)} {wheel.name}" for wheel in releasing.wheels)
    make_folder(
        releasing.releases_folder,
        fingerprint_folders([], *digest_lines),
        lambda beside: (beside / "store").mkdir(),
    )
    with progress.run_step("stage the wheels as a set"):
        run_calls([releasing.make_stage_command()])
    with progress.run_step("install the staged set, test it, record the evidence"):
        run_staged_tests(releasing)
        run_calls([releasing.make_evidence_command()])
    with progress.run_step("ask the gate: blocked, nothing was tested on a GPU"):
        demonstrate_gate(releasing)
    with progress.run_step("name the exception, promote the set to nightly"):
        run_calls([releasing.make_gate_command(excused=True), *releasing.make_promote_commands()])
    with progress.run_step("install from the channel"), serve_folder(releasing.store) as server:
        serve_command = commands.make_serve_command(releasing.store, server.server_port)
        log.log_note(f"until the demo ends: {serve_command.format_line()}")
        install_released(releasing, server.url, interpreters.compose_uv_environment(env))


def run_staged_tests(releasing: commands.DemoRelease) -> None:
    """Install the staged set and test it; not again while results of the same set count."""
    from rocm_wheels.demo.miniature import mark_folder, read_mark

    set_id = releasing.find_staged_set()
    if read_mark(releasing.results) == set_id and _seconds_since_made(releasing.results) < _COUNTS_SECONDS:
        log.log_note(f"the results of {set_id} are there: {releasing.results}")
        return
    releasing.results.mkdir(exist_ok=True)
    log.log_note("of the CPU half of the smoke tests those that calculate nothing: this torch has no tensors")
    run_calls(releasing.make_test_commands())
    mark_folder(releasing.results, set_id)


def install_released(releasing: commands.DemoRelease, server: str, env: Mapping[str, str]) -> None:
    """Install what the channel shows, unless the same set was installed from it before."""
    from rocm_wheels.demo.miniature import mark_folder, read_mark

    set_id = releasing.find_staged_set()
    if read_mark(releasing.user_environment) == set_id:
        log.log_note(f"{releasing.user_environment.name} is up to date: {set_id}")
        return
    run_programs(releasing.make_user_install_commands(server), env)
    mark_folder(releasing.user_environment, set_id)


def _seconds_since_made(folder: Path) -> float:
    return time.time() - (folder / ".made-from").stat().st_mtime


def demonstrate_gate(releasing: commands.DemoRelease) -> None:
    """Have the gate block the set, then write down the exception that it takes."""
    from rocm_wheels.models import project_names

    rules = (project_names.get_data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
    call = releasing.make_gate_command(excused=False)
    try:
        run_calls([call])
    except errors.ReleaseError as blocked:
        log.log_note(errors.explain_error(blocked))
        log.log_note(
            f"exit code {blocked.exit_code}, as expected: nobody signed what is known, and no GPU tested it"
        )
    else:
        raise errors.DataError(f"the gate passed a set that no GPU tested: {call.format_line()}")
    releasing.policy.write_text(commands.format_policy(rules), encoding="utf-8")
    log.log_note(f"a policy of this demo, in {releasing.policy}: nightly takes what nobody signed, and")
    for line in commands.POLICY_EXCEPTION.splitlines():
        log.log_note(f"    {line}")


@command.command("demo")
@catalogue.OUTPUT_DIR.but(
    help="Where everything goes; the wheels are in its folder wheels.  [default: demo-output]"
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
    extras.require_extras("the demo", "build", "release")
    env = boundary.read_environment()
    folder = (
        output_dir or (workspace.get_project_home() if workspace.is_clone() else Path.cwd()) / "demo-output"
    ).absolute()
    if not folder.exists():
        log.log_note(f"the demo takes {_COSTS}, {folder} included")
    with files.lock_folder(folder, purpose="demo"):
        run_steps(folder, env, commands.DemoProgress(folder / commands.LOG_NAME, _STEP_COUNT))
    click.echo(commands.format_summary(folder, tables.format_duration(time.monotonic() - begin)))


def run_steps(folder: Path, env: Mapping[str, str], progress: commands.DemoProgress) -> None:
    """Run the whole demonstration below ``folder``."""
    with progress.run_step("make the inputs: repositories, hipify, ROCm artifacts"):
        urls = prepare_inputs(folder, env)
    for title, call in zip(_BUILD_TITLES, commands.list_build_commands(folder, urls), strict=True):
        with progress.run_step(title):
            run_calls([call])
    with progress.run_step("make a fat and a split torch of it, install both"):
        run_calls(commands.list_packaging_commands(folder))
        install_packaged(folder, env)
    with progress.run_step(f"build torch and triton for ROCm {commands.EARLIER_ROCM_VERSION} as well"):
        run_calls(commands.list_earlier_commands(folder))
    with progress.run_step("make variant wheels, and an index of them"):
        release = start_release(folder)
        run_calls(commands.list_stamp_commands(commands.list_built_wheels(folder), release))
        run_calls(commands.list_plain_commands(release))
        run_calls(commands.list_index_commands(folder, release))
    with progress.run_step("install from the index by pip and by uv"):
        install_release(folder, release, env)
    with progress.run_step("choose for four machines, install for one, ask doctor"):
        choose_and_install(folder, release, env)
    release_set(folder, env, progress)


def prepare_inputs(folder: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """Make the inputs below ``folder``, where they are not there yet; return the repositories' URLs."""
    from rocm_wheels.demo.miniature import fetch_hipify, make_artifacts, make_repositories

    miniature = workspace.get_project_home() / "tests" / "miniature"
    hipify = fetch_hipify(user_folders.find_cache_folder(env, sys.platform), env=env)
    repositories = make_repositories(miniature, folder / "upstream", hipify=hipify, env=env)
    for place, version, targets in (
        (folder / "rocm-artifacts", commands.ROCM_VERSION, commands.TARGETS),
        (
            commands.earlier_folder(folder) / "artifacts",
            commands.EARLIER_ROCM_VERSION,
            commands.EARLIER_TARGETS,
        ),
    ):
        make_artifacts(miniature / "rocm", place, version=version, targets=targets, env=env)
    return {name: repository.url for name, repository in repositories.items()}


def start_release(folder: Path) -> Path:
    """Return the folder of the release: an empty one unless the last was made of the same wheels.

    What is published is never replaced, so wheels of the same name and other bytes need another index.
    """
    from rocm_wheels.demo.miniature import fingerprint_folders, make_folder

    wheels = [
        wheel for project_wheels in commands.list_built_wheels(folder).values() for wheel in project_wheels
    ]
    release = folder / "release"
    make_folder(
        release,
        fingerprint_folders([], *(f"{files.hash_file(w)} {w.name}" for w in wheels)),
        lambda beside: None,
    )
    return release


def install_release(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Let pip and uv install the release, and say which wheels they took; not again from the same index."""
    from rocm_wheels.core import process
    from rocm_wheels.demo.miniature import fingerprint_folders, mark_folder, read_mark
    from rocm_wheels.sdk import interpreters

    pages = sorted((release / "index").glob("*/index.json"))
    for place, demo_calls in commands.list_install_commands(folder, release, extras.find_uv()).items():
        made_of = fingerprint_folders(
            [], *(page.read_text() for page in pages), *(call.format_line() for call in demo_calls)
        )
        current = read_mark(place) == made_of
        for call in demo_calls:
            print_call(call)
            if not current:
                line = [call.program, *call.arguments]
                process.run_command(
                    line,
                    env=interpreters.compose_uv_environment(env),
                    on_line=log.log_note,
                    check=errors.SdkError,
                )
        if not current:
            mark_folder(place, made_of)
        taken = ", ".join(
            f"{name} {commands.describe_installed_wheel(place, name)}" for name in commands.RELEASED_PROJECTS
        )
        log.log_note(f"{place.name} {'is up to date' if current else 'has'}: {taken}")


def install_packaged(folder: Path, env: Mapping[str, str]) -> None:
    """Install the fat and the split torch, and say what they load; not again while they are the same."""
    from rocm_wheels.demo.miniature import fingerprint_folders, mark_folder, read_mark
    from rocm_wheels.sdk import interpreters

    for place, demo_calls in commands.list_packaged_install_commands(folder, extras.find_uv()).items():
        wheels = sorted((folder / place.name).glob("*.whl"))
        made_of = fingerprint_folders(
            [], *map(files.hash_file, wheels), *(c.format_line() for c in demo_calls)
        )
        if read_mark(place) == made_of:
            log.log_note(f"{place.name} is up to date")
            continue
        run_programs(demo_calls, interpreters.compose_uv_environment(env))
        mark_folder(place, made_of)


def choose_and_install(folder: Path, release: Path, env: Mapping[str, str]) -> None:
    """Have the index served, choose from it for several machines, and install for one of them."""
    from rocm_wheels.index.server import serve_folder
    from rocm_wheels.sdk import interpreters

    with serve_folder(release / "index") as server:
        serve_command = commands.make_serve_command(release / "index", server.server_port)
        log.log_note(f"until the demo ends: {serve_command.format_line()}")
        for call in commands.list_user_commands(folder, server.url, extras.find_uv()):
            if call.program in load_commands():
                run_calls([call])
            else:
                run_programs([call], interpreters.compose_uv_environment(env))
