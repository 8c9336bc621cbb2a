"""``bisect``: find the set that broke a command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels.cli import boundary, catalogue, options
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.output import print_result
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocm_wheels.release import bisect, wheel_set
    from rocm_wheels.stores.store import Store

_HELP = """Find the first set of STORE with which COMMAND fails, between a good one and a bad one.

It tries the staged sets of the family that were made between the two, for their platform, and only of their
torch line (2.13) if both have the same.

Each set is installed by uv from its own index into an environment of its own. COMMAND runs with that Python
first on PATH; ROCM_WHEELS_SET and ROCM_WHEELS_INDEX name the set. Its exit code counts as for `git bisect
run`: 0 is good, 125 cannot be tested, 1 to 127 is bad, 128 and more stops. Sets that cannot be installed are
skipped.

What the sets require comes from them first, then from --dependency-index, then from PyPI or
UV_DEFAULT_INDEX. A bucket must be served to installers: `set refresh --public-url` says where.

\b
Example:
  rocm-wheels set bisect s3://wheels --good 2.9.1-93bf --bad 2.9.1-51aa --gfx gfx942 \\
    --dependency-index https://example.org/rocm -- python -c 'import torch; torch.ones(1).cuda()'

\b
JSON (keys are added, never renamed):
  first_bad, last_good, certain, skipped: [set, why], probes: [set, outcome: good|bad|skip, why],
  differs: {versions, rocm, lock (as of lock diff), why_not}
with --dry-run:
  sets
"""


@command("set bisect", help=_HELP)
@click.argument("store", metavar="STORE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@option("--good", required=True, metavar="ID", help="A set that works, or how its id begins.")
@option("--bad", required=True, metavar="ID", help="A later set that does not.")
@catalogue.GFX.but(
    name="gfx", help="GPU targets; a set must support one of them [default: those of this machine]."
)
@catalogue.PYTHON_WORDS.but(help="Python to install with: a path or 3.12 [default: this one].")
@catalogue.PROJECT.but(
    name="projects",
    multiple=True,
    help="Project to install; may be repeated [default: torch, or all of sets without it].",
)
@option(
    "--dependency-index",
    "extra_index",
    type=options.GivenText(),
    multiple=True,
    metavar="URL",
    help="Another index, such as that of ROCm's packages.",
)
@catalogue.DRY_RUN.but(help="Print the sets between the two.")
@catalogue.JSON
def bisect_command(  # noqa: PLR0917 - click passes them by name
    store: str,
    command: tuple[str, ...],
    good: str,
    bad: str,
    gfx: str | None,
    python: str | None,
    projects: tuple[str, ...],
    extra_index: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Ask, search, answer."""
    from packaging.utils import canonicalize_name

    from rocm_wheels.core import user_folders
    from rocm_wheels.models.gfx import parse_targets, strip_features
    from rocm_wheels.release import bisect, support
    from rocm_wheels.release.store_paths import FamilyPaths
    from rocm_wheels.sdk import interpreters
    from rocm_wheels.stores.store import open_existing_store

    env = boundary.read_environment()
    opened = open_existing_store(store, env)
    if not command and not dry_run:
        raise errors.UsageError(
            "there is no COMMAND to try sets with", tip="behind --; or see the sets: --dry-run"
        )
    documents = bisect.list_sets_between(opened, good, bad)
    if dry_run:
        between = len(documents) - 2
        most = (
            f"{tables.format_count(between, 'set')} between: at most {between.bit_length()} of them are tried"
        )
        lines = [*map(_describe_set, documents), f"{most}, as long as each can be tested"]
        print_result({"sets": [document.id for document in documents]}, lines, as_json=as_json)
        return
    available = {project for document in documents for project in document.projects}
    projects = tuple(dict.fromkeys(map(canonicalize_name, projects)))
    for name in projects:
        if name not in available:
            suggestion = tables.suggest_name(name, available)
            raise errors.UsageError(
                f"--project: no set between the two has {name}{suggestion}",
                tip=f"they have {', '.join(sorted(available))}",
            )
    public = support.read_public(opened)
    if opened.folder is None and not public.public_url:
        raise errors.UsageError(
            f"{opened.url} is not known to be served to installers",
            tip="name where it is: rocm-wheels set refresh STORE --public-url URL",
        )

    def index_of(document: wheel_set.SetDocument) -> str:
        path = f"{FamilyPaths(document.family).set_index(document.id)}/"
        return opened.url_of(path) if opened.folder is not None else f"{public.public_url}{path}"

    targets = _detect_targets(env) if gfx is None else parse_targets(gfx, input_name="--gfx")
    (interpreter,) = interpreters.find_interpreters([python or sys.executable], env)
    request = bisect.BisectRequest(
        command=command,
        cwd=Path.cwd(),
        projects=projects or (("torch",) if "torch" in available else documents[0].projects),
        python=interpreter.path,
        work_dir=user_folders.find_cache_folder(env, sys.platform) / "bisect",
        index_of=index_of,
        targets=tuple(dict.fromkeys(map(strip_features, targets))),
        extra_indexes=extra_index or public.other_indexes,
    )
    last_good, first_bad, probes = bisect.bisect_sets(documents, request, env)
    hidden = [document.id for document in documents[last_good + 1 : first_bad]]
    skipped = [probe for probe in probes if probe.set in hidden]
    _print_answer(opened, documents[last_good], documents[first_bad], probes, skipped, as_json=as_json)


def _detect_targets(env: Mapping[str, str]) -> tuple[str, ...]:
    from rocm_wheels.gpus import detect

    hardware = detect.detect_hardware(env, vendors=("amd",))
    for fault in hardware.faults:
        log.log_warning(fault)
    targets = hardware.targets
    if not targets:
        log.log_note("no GPU was found here: sets for any are tried; --gfx says for which")
    return targets


def _describe_set(document: wheel_set.SetDocument) -> str:
    return f"{document.id}  ROCm {document.rocm_in_words or 'unknown'}  {document.created}"


def _print_answer(
    store: Store,
    good: wheel_set.SetDocument,
    bad: wheel_set.SetDocument,
    probes: Sequence[bisect.Probe],
    skipped: Sequence[bisect.Probe],
    *,
    as_json: bool,
) -> None:
    from rocm_wheels.release import bisect, wheel_set
    from rocm_wheels.sources import lock_diff

    versions = bisect.list_version_changes(good, bad)
    differs = [f"{project}  {old} → {new}" for project, (old, new) in versions.items()]
    if good.rocms != bad.rocms:
        differs.append(f"ROCm  {good.rocm_in_words or 'unknown'} → {bad.rocm_in_words or 'unknown'}")
    lock_changes, why_not = None, None
    try:  # of several locks, that of the newest ROCm
        old, new = (wheel_set.read_set_lock(store, end, end.locks[-1]) for end in (good, bad))
        lock_changes = lock_diff.compare_locks(old, new)
        differs += lock_diff.format_diff_report(lock_changes)
    except errors.RocmWheelsError as failure:  # the search took long: it is answered all the same
        why_not = errors.explain_error(failure).splitlines()[0]
        differs.append(f"the locks cannot be compared: {why_not}")
    lines = [f"the first bad set is {_describe_set(bad)}"]
    if skipped:
        lines = ["the first bad set is one of these; those that cannot be tested hide which:"]
        lines += [*(f"  {probe.set}: {probe.why}" for probe in skipped), f"  {_describe_set(bad)}"]
    lines += [f"the last good set is {_describe_set(good)}", "what differs:"]
    answer = {
        "first_bad": bad.id,
        "last_good": good.id,
        "certain": not skipped,
        "skipped": [{"set": probe.set, "why": probe.why} for probe in skipped],
        "probes": [vars(probe) for probe in probes],
        "differs": {
            "versions": {project: {"old": old, "new": new} for project, (old, new) in versions.items()},
            "rocm": {"old": good.rocm_in_words or None, "new": bad.rocm_in_words or None},
            "lock": lock_changes,
            "why_not": why_not,
        },
    }
    print_result(answer, [*lines, *(f"  {line}".rstrip() for line in differs)], as_json=as_json)
