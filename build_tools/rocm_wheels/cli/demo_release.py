"""The release part of ``rocm-wheels demo``: stage, test, gate, promote, install.

Everything that it needs of a GPU is missing, and it says so: the gate must block. A set of other wheels than
these is begun anew, with its store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.cli.demo_running import run_calls, run_programs
from rocm_wheels.demo.releasing import POLICY_EXCEPTION, DemoRelease, format_policy
from rocm_wheels.errors import DataError, ReleaseError, explain_error

_COUNTS_SECONDS = 7 * 24 * 3600  # the gate of the channel wants results that are not much older


def release_set(folder: Path, env: Mapping[str, str]) -> None:
    """Release the wheels of ``folder``, and install them as people do who know only the channel.

    Raises DataError when the gate lets a set pass that nobody tested on a GPU.
    """
    from rocm_wheels.demo.folders import fingerprint_folders, make_folder, digest_small_file
    from rocm_wheels.index.server import serve_folder
    from rocm_wheels.sdk.uv import compose_uv_environment, find_uv

    releasing = DemoRelease(folder, find_uv())
    digest_lines = (f"{digest_small_file(wheel)} {wheel.name}" for wheel in releasing.wheels)
    make_folder(
        releasing.releases_folder,
        fingerprint_folders([], *digest_lines),
        lambda beside: (beside / "store").mkdir(),
    )
    run_calls([releasing.make_stage_command()])
    with serve_folder(releasing.store) as server:
        log.log_note(f"until the demo ends: {releasing.make_serve_command(server.server_port).format_line()}")
        run_staged_tests(releasing, server.url, compose_uv_environment(env))
        run_calls([releasing.make_evidence_command()])
        demonstrate_gate(releasing)
        run_calls([releasing.make_gate_command(excused=True), *releasing.make_promote_commands()])
        install_released(releasing, server.url, compose_uv_environment(env))


def run_staged_tests(releasing: DemoRelease, server: str, env: Mapping[str, str]) -> None:
    """Install the staged set and test it; not again while results of the same set count."""
    from rocm_wheels.demo.folders import read_mark, mark_folder

    set_id = releasing.find_staged_set()
    if read_mark(releasing.results) == set_id and _seconds_since_made(releasing.results) < _COUNTS_SECONDS:
        log.log_note(f"the results of {set_id} are there: {releasing.results}")
        return
    run_programs(releasing.make_staged_install_commands(server), env)
    releasing.results.mkdir(exist_ok=True)
    log.log_note("of the CPU half of the smoke tests those that calculate nothing: this torch has no tensors")
    run_calls(releasing.make_test_commands(server))
    mark_folder(releasing.results, set_id)


def install_released(releasing: DemoRelease, server: str, env: Mapping[str, str]) -> None:
    """Install what the channel shows, unless the same set was installed from it before."""
    from rocm_wheels.demo.folders import read_mark, mark_folder

    set_id = releasing.find_staged_set()
    if read_mark(releasing.user_environment) == set_id:
        log.log_note(f"{releasing.user_environment.name} is up to date: {set_id}")
        return
    run_programs(releasing.make_user_install_commands(server), env)
    mark_folder(releasing.user_environment, set_id)


def _seconds_since_made(folder: Path) -> float:
    return time.time() - (folder / ".made-from").stat().st_mtime


def demonstrate_gate(releasing: DemoRelease) -> None:
    """Have the gate block the set, then write down the exception that it takes."""
    from rocm_wheels.model.names import get_data_folder

    call = releasing.make_gate_command(excused=False)
    try:
        run_calls([call])
    except ReleaseError as blocked:
        log.log_note(explain_error(blocked))
        log.log_note(f"exit code {blocked.exit_code}, as it must be: nobody has tested it on a GPU")
    else:
        raise DataError(f"the gate let a set pass that nobody tested on a GPU: {call.format_line()}")
    rules = (get_data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
    releasing.policy.write_text(format_policy(rules), encoding="utf-8")
    log.log_note(f"a named exception, in {releasing.policy} below the rules of everybody:")
    for line in POLICY_EXCEPTION.splitlines():
        log.log_note(f"    {line}")
