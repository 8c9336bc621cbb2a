"""Bisect sets: find the first one that a command fails with, between one that works and one that does not.

Each set that is tried is installed by uv from its own index into an environment of its own, then the command
runs with that Python first on PATH. Each project comes from the first index that has it: the set's own, then
those that were named, then the user's or PyPI. Nothing is kept: a search that was ended is begun anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import errors, files, log, process, shell, tables
from rocm_wheels.release import wheel_set
from rocm_wheels.sdk import interpreters
from rocm_wheels.stores.store import Store

_SKIP_EXIT_CODE, _STOP_EXIT_CODE = 125, 128  # of `git bisect run`: cannot be tested; from here on: stop
_LONGEST_MESSAGE = 240
_REQUIREMENTS_TIP = "--dependency-index says where their requirements are, as ROCm's packages"


@dataclass(frozen=True)
class Probe:
    """A set that was tried: ``outcome`` is good, bad or skip, and ``why``."""

    set: str
    outcome: str
    why: str


@dataclass(frozen=True)
class BisectRequest:
    """How each set is tried. ``targets`` are the GPUs of which it must be for one; (): any will do.

    ``index_of`` returns the address of a set's own index, ``python`` is the program whose environments are
    made, in ``work_dir``. The command runs in ``cwd``.
    """

    command: tuple[str, ...]
    cwd: Path
    projects: tuple[str, ...]
    python: Path
    work_dir: Path
    index_of: Callable[[wheel_set.SetDocument], str]
    targets: tuple[str, ...] = ()
    extra_indexes: tuple[str, ...] = ()


def list_sets_between(store: Store, good: str, bad: str) -> list[wheel_set.SetDocument]:
    """Return the staged sets from a good one to a bad one, the oldest first, with these two.

    They are of the family, layout and platform of the two and, where both have one torch line (2.13), of
    that. Raises ReleaseError for sets that are not there or have no line between them, and UsageError where
    the good one is not older.
    """
    old, new = ends = [wheel_set.find_set(store, end) for end in (good, bad)]
    if old.id == new.id:
        raise errors.UsageError(f"{old.id} cannot be both good and bad", tip="name two sets")
    kind, other_kind = map(_find_kind, ends)
    if kind != other_kind:
        raise errors.ReleaseError(
            f"there is no line between them: {old.id} is of {', '.join(kind)} and {new.id} of"
            f" {', '.join(other_kind)}",
            tip="name two sets of torch, or of one companion alone, of one family, layout and platform:"
            " `rocm-wheels set list STORE` says it",
        )
    if old.layout == "variants":
        raise errors.ReleaseError(
            "sets of variants cannot be tried: which wheel is taken is up to the machine",
            tip="bisect the plain wheels that they were made of",
        )
    first, last = ((end.created, end.id) for end in ends)
    if last < first:
        raise errors.UsageError(
            f"{old.id} is good and was made on {old.created}, after {new.id} ({new.created})",
            tip="the good set must be the older one: it is searched where it broke",
        )

    sets = wheel_set.read_family_sets(store, old.family)
    for damage in sets.damaged:
        log.log_warning(f"left out: {damage}")
    lines = {end.torch_line for end in ends}
    return [
        document
        for document in reversed(sets.documents)
        if first <= (document.created, document.id) <= last
        and _find_kind(document) == kind
        and (len(lines) > 1 or document.torch_line in lines)
    ]


def _find_kind(document: wheel_set.SetDocument) -> tuple[str, ...]:
    platform = wheel_set.find_set_platform(document)
    return ", ".join(document.main_projects), document.family, document.layout, platform


def narrow_down(outcomes: Sequence[str]) -> tuple[int, int, int | None]:
    """Return the places of the newest good set below the oldest bad one, of that one, and of the next to try.

    ``outcomes`` are good, bad, skip or "" (nobody tried it); the ends are what they are. The next is the
    middle of the longest row that nobody tried, away from those that cannot be tested, which are often
    neighbours; None: all is known.
    """
    bad = next((place for place, outcome in enumerate(outcomes) if outcome == "bad"), len(outcomes) - 1)
    good = max([0, *(place for place in range(bad) if outcomes[place] == "good")])
    rows: list[list[int]] = [[]]
    for place in range(good + 1, bad):
        if outcomes[place]:
            rows.append([])
        else:
            rows[-1].append(place)
    longest = max(rows, key=len)
    return good, bad, longest[(len(longest) - 1) // 2] if longest else None


def bisect_sets(
    documents: Sequence[wheel_set.SetDocument], request: BisectRequest, env: Mapping[str, str]
) -> tuple[int, int, list[Probe]]:
    """Return the places of the last good set and of the first bad one, and what was tried, in that order.

    Those between the two could not be tested. Raises ReleaseError for an end that is not what was said of
    it, and where nothing can be said of a set: no network, no space, a
    command that cannot be started or that asks to stop.
    """
    outcomes = [""] * len(documents)
    probes: list[Probe] = []

    def probe(place: int) -> Probe:
        probed = _probe_set(documents[place], request, env)
        skipped = f"is skipped ({probed.why})"
        words = skipped if probed.outcome == "skip" else f"is {probed.outcome}: {probed.why}"
        log.log_note(f"{probed.set} {words}")
        outcomes[place] = probed.outcome
        probes.append(probed)
        return probed

    for place, expected in ((0, "good"), (len(documents) - 1, "bad")):
        log.log_note(f"trying {documents[place].id}, given as {expected}")
        if (end := probe(place)).outcome != expected:
            skipped = end.outcome == "skip"
            what, tip = ("cannot be tested", _REQUIREMENTS_TIP) if skipped else (f"is {end.outcome}", None)
            if end.why.endswith((" 126", " 127")):
                tip = "126 and 127 say that a program was not found"
            raise errors.ReleaseError(f"{end.set} was given as {expected}, but {what}: {end.why}", tip=tip)
    while True:
        good, bad, following = narrow_down(outcomes)
        if following is None:
            break
        untested = outcomes[good + 1 : bad].count("")
        log.log_note(
            f"trying {documents[following].id}: {tables.format_count(untested, 'set')} between good and bad"
        )
        probe(following)
    return good, bad, probes


def _probe_set(document: wheel_set.SetDocument, request: BisectRequest, env: Mapping[str, str]) -> Probe:
    """Install a set into an environment of its own and run the command there. Raises ReleaseError."""
    targets = wheel_set.list_set_targets(document)
    if request.targets and not set(request.targets) & set(targets):
        why = f"it is for {', '.join(targets) or 'no GPU'}, not for {', '.join(request.targets)}"
        return Probe(document.id, "skip", why)
    if missing := [project for project in request.projects if project not in document.projects]:
        return Probe(document.id, "skip", f"it has no {', '.join(missing)}")
    versions = {file.project: file.version for file in document.files}
    requirements = [
        f"{project}{wheel_set.make_device_extras(document, project, request.targets)}=={versions[project]}"
        for project in request.projects
    ]
    index = request.index_of(document)
    with files.open_stage(request.work_dir) as folder:
        prefix = folder / document.id
        interpreters.make_venv(request.python, prefix, env)
        try:
            interpreters.pip_install(
                interpreters.locate_python(prefix),
                ["--index-strategy", "first-index", *requirements],
                interpreters.PackageSource(),
                # in the environment: addresses may hold passwords, and arguments can be read by all
                {**env, "UV_INDEX": " ".join([index, *request.extra_indexes])},
                activity=f"installing {document.id}",
                cwd=folder,
            )
        except errors.SdkError as failure:
            if interpreters.is_transient_failure(str(failure)):
                tip = failure.tip or "run the same command again"
                raise errors.ReleaseError(f"{document.id} could not be tried", tip=tip) from failure
            lines = [line.strip(" |×╰─▶") for line in str(failure).splitlines()[1:]]
            message = " ".join(
                line for line in lines if line and not line.startswith(("Using Python", "tip:"))
            )
            return Probe(document.id, "skip", f"it does not install: {message or failure}"[:_LONGEST_MESSAGE])
        code = _run_command(document, request, env, prefix, index)
    outcome = "good" if code == 0 else "skip" if code == _SKIP_EXIT_CODE else "bad"
    return Probe(document.id, outcome, f"exit code {code}")


def _run_command(
    document: wheel_set.SetDocument, request: BisectRequest, env: Mapping[str, str], prefix: Path, index: str
) -> int:
    """Run the command with the environment's Python first; return its exit code, below 128."""
    programs = interpreters.locate_python(prefix).parent
    env = {name: value for name, value in env.items() if name != "PYTHONHOME"}
    env["PATH"] = os.pathsep.join([str(programs), *filter(None, [env.get("PATH")])])
    env |= {"VIRTUAL_ENV": str(prefix), "ROCM_WHEELS_SET": document.id, "ROCM_WHEELS_INDEX": index}
    program = shutil.which(request.command[0], path=env["PATH"])
    if program is None:
        raise errors.ReleaseError(
            f"there is no program {request.command[0]}",
            tip="it is looked for in the set's environment and on PATH",
        )
    completed = process.run_command(
        [program, *request.command[1:]],
        env=env,
        cwd=request.cwd,
        on_line=lambda text: log.log_note(f"  | {text}"),
        check=None,
    )
    code = completed.returncode if completed.returncode >= 0 else _STOP_EXIT_CODE - completed.returncode
    if code >= _STOP_EXIT_CODE:
        signal = code - _STOP_EXIT_CODE
        ended = f"was killed by signal {signal}" if signal else f"ended with exit code {code}"
        command = shell.hide_credentials(shell.format_command(request.command))
        raise errors.ReleaseError(
            f"stopped at {document.id}: {command} {ended}",
            tip="0 is good, 125 cannot be tested, 1 to 127 is bad",
        )
    return code


def list_version_changes(
    good: wheel_set.SetDocument, bad: wheel_set.SetDocument
) -> dict[str, tuple[str, str]]:
    """Return the projects that differ with their old and new version; "none" where a set has none."""
    old, new = ({file.project: file.version for file in document.files} for document in (good, bad))
    pairs = {project: (old.get(project, "none"), new.get(project, "none")) for project in {*old, *new}}
    return {project: pair for project, pair in sorted(pairs.items()) if pair[0] != pair[1]}
