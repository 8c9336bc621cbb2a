"""The release part of ``rocm-wheels demo``: stage, test, gate, promote, install.

Everything that it needs of a GPU is missing, and it says so: the gate must block. A set of other wheels than
these is begun anew, with its store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.cli.demo_running import run_all, run_programs
from rocm_wheels.demo.releasing import EXCEPTION, Releasing, policy_text
from rocm_wheels.errors import DataError, ReleaseError, explain

_COUNTS_SECONDS = 7 * 24 * 3600  # the gate of the channel wants results that are not much older


def release(folder: Path, env: Mapping[str, str]) -> None:
    """Release the wheels of ``folder``, and install them as people do who know only the channel.

    Raises DataError when the gate lets a set pass that nobody tested on a GPU.
    """
    from rocm_wheels.demo.folders import fingerprint, make_folder, sha256_of
    from rocm_wheels.index.server import serving
    from rocm_wheels.sdk.uv import uv_environment, uv_program

    asked = Releasing(folder, uv_program())
    told = (f"{sha256_of(wheel)} {wheel.name}" for wheel in asked.wheels)
    make_folder(asked.place, fingerprint([], *told), lambda beside: (beside / "store").mkdir())
    run_all([asked.stage()])
    with serving(asked.store) as server:
        log.note(f"until the demo ends: {asked.serve(server.server_port).line()}")
        find_out(asked, server.url, uv_environment(env))
        run_all([asked.hand_in()])
        meet_gate(asked)
        run_all([asked.gate(excused=True), *asked.promote()])
        install_released(asked, server.url, uv_environment(env))


def find_out(asked: Releasing, server: str, env: Mapping[str, str]) -> None:
    """Install the staged set and test it; not again while results of the same set count."""
    from rocm_wheels.demo.folders import made_from, mark

    set_id = asked.staged_set()
    if made_from(asked.results) == set_id and _age(asked.results) < _COUNTS_SECONDS:
        log.note(f"the results of {set_id} are there: {asked.results}")
        return
    run_programs(asked.install_staged(server), env)
    asked.results.mkdir(exist_ok=True)
    log.note("of the CPU half of the smoke tests those that calculate nothing: this torch has no tensors")
    run_all(asked.find_out(server))
    mark(asked.results, set_id)


def install_released(asked: Releasing, server: str, env: Mapping[str, str]) -> None:
    """Install what the channel shows, unless the same set was installed from it before."""
    from rocm_wheels.demo.folders import made_from, mark

    set_id = asked.staged_set()
    if made_from(asked.released) == set_id:
        log.note(f"{asked.released.name} is up to date: {set_id}")
        return
    run_programs(asked.install_released(server), env)
    mark(asked.released, set_id)


def _age(folder: Path) -> float:
    return time.time() - (folder / ".made-from").stat().st_mtime


def meet_gate(asked: Releasing) -> None:
    """Have the gate block the set, then write down the exception that it takes."""
    from rocm_wheels.model.names import data_folder

    call = asked.gate(excused=False)
    try:
        run_all([call])
    except ReleaseError as blocked:
        log.note(explain(blocked))
        log.note(f"exit code {blocked.exit_code}, as it must be: nobody has tested it on a GPU")
    else:
        raise DataError(f"the gate let a set pass that nobody tested on a GPU: {call.line()}")
    rules = (data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
    asked.policy.write_text(policy_text(rules), encoding="utf-8")
    log.note(f"a named exception, in {asked.policy} below the rules of everybody:")
    for line in EXCEPTION.splitlines():
        log.note(f"    {line}")
