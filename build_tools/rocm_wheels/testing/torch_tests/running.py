"""Run the files of a plan on one GPU, or on none; carry on where a run was ended."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rocm_wheels import __version__, log
from rocm_wheels.errors import ChecksError, RocmWheelsError, UsageError
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.model.gfx import base_target
from rocm_wheels.model.project import Platform
from rocm_wheels.model.torch_tests import KnownHere, TorchTests, known_here
from rocm_wheels.testing.sessions import HIP, planned_sessions
from rocm_wheels.testing.target import Target
from rocm_wheels.testing.torch_tests.outcomes import Outcomes, judged, read_outcomes
from rocm_wheels.testing.torch_tests.part import Running, run_part
from rocm_wheels.testing.torch_tests.plan import Part, Selection
from rocm_wheels.testing.torch_tests.records import (
    FILE,
    Chosen,
    PartResult,
    Tested,
    TorchResults,
    part_result,
    read_record,
    write_record,
)
from rocm_wheels.testing.torch_tests.reports import write_report
from rocm_wheels.testing.torch_tests.sources import TestSources, folder_of_torch, record_of_torch
from rocm_wheels.wheels.members import digest_of_file
from rocm_wheels.workspace import exclusive

TOOL = f"rocm-wheels {__version__} torch tests"
_OWN = ("outcomes", "logs", "junit")  # what a folder of results holds besides results.json


@dataclass(frozen=True)
class Order:
    """What is to be run, for every GPU alike. ``files`` are the wheels that are installed, by sha256.

    ``limits``: seconds that a test may say nothing, and that a file may take. ``fresh``: not to carry on.
    ``seen`` tells which GPU targets torch sees in an environment; None, where nobody is to ask it.
    """

    target: Target
    python_version: str
    sources: TestSources
    chosen: Selection
    parts: Sequence[Part]
    left_out: Mapping[str, str]
    table: TorchTests
    files: Mapping[str, str]
    limits: tuple[float, float]
    fresh: bool = False
    seen: Callable[[Mapping[str, str]], Sequence[str]] | None = None


@dataclass(frozen=True)
class Place:
    """Where tests run: the GPUs that they see are all in ``env``; without a ``gfx`` there is none."""

    label: str
    gfx: str | None
    env: Mapping[str, str]


def places(chosen: Sequence[Gpu], env: Mapping[str, str], *, every: bool) -> list[Place]:
    """Return a place for each GPU, or with ``every`` for all of a target at once; without any, the CPU."""
    sessions = planned_sessions(chosen, chosen, hidden=True)
    if not chosen:
        return [Place("cpu", None, sessions[0].environment(env))]
    alone = [one for one in sessions if one.gfx]
    if not every:
        return [Place(one.label.replace("#", "-"), one.gfx, one.environment(env)) for one in alone]
    found = []
    for gfx in dict.fromkeys(one.gfx for one in alone):
        mine = [one for one in alone if one.gfx == gfx]
        shown = ",".join(str(one.index) for one in mine)
        found.append(Place(str(gfx), gfx, {**mine[0].environment(env), HIP: shown}))
    return found


def refuse_unseen(chosen: Sequence[Gpu], target: Target) -> None:
    """Raise ChecksError where torch does not see a GPU that is to be tested.

    Without it most tests are not even there, and thousands that need none would pass.
    """
    seen = {base_target(one) for one in target.devices}
    for gpu in chosen:
        if gpu.gfx is not None and base_target(gpu.gfx) not in seen:
            raise ChecksError(
                f"torch {target.torch_version} does not see the {gpu.gfx} that is to be tested:"
                f" {', '.join(sorted(seen)) or 'no GPU'} is what it sees",
                tip="`rocm-wheels doctor` says why",
            )


def known_of(order: Order, gfx: str | None) -> KnownHere:
    """Return what is known of tests on a target; without a GPU, nothing is."""
    if gfx is None:
        return KnownHere(())
    system: Platform = "windows" if sys.platform == "win32" else "linux"
    version = order.chosen.known_as or order.target.torch_version
    torch = None if version == "all" else version
    return known_here(order.table.known, torch, gfx, system, order.python_version)


def run_on(order: Order, place: Place, folder: Path, show: Callable[[str], None]) -> TorchResults:
    """Run all that is not done in a place; ``results.json`` is written after every file.

    A run of the same that was ended is carried on; one of something else, or that is complete, is begun anew.
    Raises UsageError for a folder with something else in it, and ChecksError where pytest cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, what="torch's tests"):
        results = _begun(order, place.gfx, folder)
        known, record = known_of(order, place.gfx), record_of_torch(order.target)
        own = order.table.environment if place.gfx else {}
        running = Running(
            python=order.target.python,
            env={**place.env, **own},
            tests=order.sources.tests,
            folder=folder.absolute(),
            left_out=() if order.chosen.debug else tuple(known.not_run()),
            only=tuple(known.names()) if order.chosen.debug else None,
            cache=order.chosen.cache,
            words=order.chosen.words,
            test_limit=order.limits[0],
            file_limit=order.limits[1],
            show=show,
            torch=folder_of_torch(order.target),
        )
        for number, part in enumerate(order.parts):
            before = results.parts[number]
            if before.complete:
                log.note(f"{part.name}: done already")
                continue
            log.note(f"{part.name} on {place.label} ({number + 1} of {len(order.parts)})")
            lost: str | None = None
            try:
                ended = run_part(running, part)
                lost = _lost(order, ended, place.gfx, running.env)
                if record_of_torch(order.target) != record:
                    lost = "; ".join(filter(None, [lost, "torch was installed anew while its tests ran"]))
            finally:
                found = _result(running, part, results, known, lost)
                parts = (*results.parts[:number], found, *results.parts[number + 1 :])
                results = results.model_copy(update={"parts": parts})
                write_record(folder, results)
        return results


def _begun(order: Order, gfx: str | None, folder: Path) -> TorchResults:
    """Return the record to carry on, or write a new one, of which nothing is done."""
    new = _blank(order, gfx)
    before = None if order.fresh else read_record(folder)
    if before is not None and before.inputs == new.inputs and not before.complete:
        done = sum(part.complete for part in before.parts)
        log.note(f"a run was ended after {done} of {len(before.parts)} files: it is carried on")
        return before
    names = {one.name for one in folder.iterdir() if not one.name.startswith(".")}
    if strange := sorted(names - {*_OWN, FILE}):
        tip = "name another folder: --output-dir"
        raise UsageError(f"{folder} holds something else than results: {', '.join(strange[:3])}", tip=tip)
    for name in names & {*_OWN}:
        shutil.rmtree(folder / name)
    write_record(folder, new)
    return new


def _blank(order: Order, gfx: str | None) -> TorchResults:
    chosen = Chosen(
        suite=order.chosen.suite,
        files=order.chosen.include,
        exclude=order.chosen.exclude,
        shard=order.chosen.shard,
        shards=order.chosen.shards,
        pytest_args=order.chosen.words,
        variables=order.chosen.variables,
        changes=order.chosen.changes,
    )
    of = Tested(
        torch=order.target.torch_version,
        python=order.python_version,
        commit=order.sources.commit,
        sources=order.sources.version,
        doubt=order.sources.doubt,
    )
    said: list[object] = [of.model_dump(), chosen.model_dump(), gfx, sorted(order.files.items())]
    said += [
        [(part.name, sorted(part.environment.items())) for part in order.parts],
        [str(order.sources.folder), str(order.target.python), sorted(order.table.environment.items())],
    ]
    rows = [row.model_dump(mode="json") for row in order.table.known]
    inputs = hashlib.sha256(json.dumps([*said, rows], sort_keys=True).encode()).hexdigest()
    return TorchResults(
        schema=1,
        tool=TOOL,
        when=_now(),
        host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
        inputs=inputs,
        of=of,
        gfx=gfx,
        files=order.files,
        chosen=chosen,
        parts=tuple(PartResult(name=part.name) for part in order.parts),
        left_out=order.left_out,
    )


def _lost(order: Order, ended: Outcomes, gfx: str | None, env: Mapping[str, str]) -> str:
    """Say that a file did not run on its GPU: on another one, or on none, for it is not there any more.

    A driver that one file left in ruins makes the tests of all others vanish, which is nothing that fails.
    """
    if gfx is None:
        return ""
    if others := [one for one in ended.devices if base_target(one) != base_target(gfx)]:
        return f"torch used {', '.join(others)}, not {gfx}"
    if ended.devices or order.seen is None:
        return ""
    try:
        seen = {base_target(one) for one in order.seen(env)}
    except RocmWheelsError as cause:
        return f"torch does not tell any more which GPUs it sees: {cause}"
    return "" if base_target(gfx) in seen else f"torch does not see the {gfx} any more"


def _result(
    running: Running, part: Part, results: TorchResults, known: KnownHere, lost: str | None
) -> PartResult:
    """Return what came of a file so far, with its report, where it was run to its end.

    ``lost`` is what is wrong with its GPU or its torch, None where nobody came to look.
    """
    found: Outcomes = read_outcomes(running.outcomes(part))
    why = found.over or "the run was ended before"
    verdicts = judged(found.all(f"not run: {why}"), known)
    said = part_result(
        part.name,
        verdicts,
        found.left_out,
        complete=found.over is not None and lost is not None,
        fault="; ".join(filter(None, [found.over, lost])),
        unchosen=found.unchosen,
        devices=found.devices,
    )
    if not said.complete:
        return said
    report = Path("junit", f"{part.slug}.xml")
    (running.folder / "junit").mkdir(exist_ok=True)
    write_report(running.folder / report, part.name, verdicts, when=results.when, host=results.host)
    digest = digest_of_file(running.folder / report)
    return said.model_copy(update={"report": report.as_posix(), "sha256": digest})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
