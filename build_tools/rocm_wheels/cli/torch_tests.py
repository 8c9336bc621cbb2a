"""``torch-tests`` and ``run_pytorch_tests.py``: torch's own tests, of the commit that it was built from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.tested_options import gpu_options, installed_options, find_tested_python
from rocm_wheels.cli.torch_test_sources import find_test_sources
from rocm_wheels.errors import ChecksError, UsageError

if TYPE_CHECKING:
    from rocm_wheels.gpus.gpu import Gpu
    from rocm_wheels.testing.target import TargetPython
    from rocm_wheels.testing.torch_tests.records import TorchResults
    from rocm_wheels.testing.torch_tests.running import TorchTestRequest, GpuPlace
    from rocm_wheels.testing.torch_tests.sources import TorchTestSources

_FAILED, _NO_TESTS = 1, 5  # as pytest's

_TORCH_TESTS_HELP = """Run torch's own tests on each kind of GPU here, or without one on the CPU.

The tests are of the very commit that the installed torch was built from: by the lock inside its wheel, by
--lock, or a folder (--pytorch-dir) that is of that commit. Each file runs in a process of its own. A test
that crashes or hangs ends its process and nothing else: the rest of the file goes on behind it. Killed, the
same command carries on; of other wheels, tests or options it begins anew.

What follows -- goes to pytest. Known failures (data/torch_tests.yaml) are run, and told apart from new ones;
what is known to hang or crash is not run, by exact name, and shown. Exit code: 0 when all passed that is not
known to fail, 1 when not, or something was not run, 5 for no tests, 16 where torch or pytest is missing.

\b
Examples:
  rocm-wheels torch-tests --target-python .venv/bin/python --wheels wheels --amdgpu-family gfx94X-dcgpu
  rocm-wheels torch-tests --lock sources.lock.json --include test_nn -k Conv --dry-run
"""


class _SeveralWords(click.Command):
    """A command whose ``--include`` and ``--exclude`` take all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the option before each of its words: ``--include test_nn test_torch`` is how people have it."""
        end = args.index("--") if "--" in args else len(args)
        spread: list[str] = []
        option = ""
        for word in args[:end]:
            if word.startswith("-"):
                option = word if word in {"--include", "--exclude"} else ""
            elif option and spread[-1:] != [option]:
                spread.append(option)
            spread.append(word)
        return super().parse_args(ctx, [*spread, *args[end:]])


@click.command("run-pytorch-tests", cls=_SeveralWords, help=_TORCH_TESTS_HELP)
@gpu_options
@click.option(
    "--device-query",
    type=click.Choice(["auto", "unique", "all"]),
    default="auto",
    show_default=True,
    help="GPUs to choose from: one of each target, or all. Then --gpu-policy single takes the first of them,"
    " and all shows tests all of a target at once; auto leaves that to --gpu-policy and the suite.",
)
@click.option("--require-gpu", is_flag=True, help="Refuse to test on the CPU.")
@installed_options
@click.option(
    "--lock", type=GivenPath(), metavar="FILE", help="Take the tests of this lock [default: of torch's own]."
)
@click.option(
    "--pytorch-dir",
    type=GivenPath(file_okay=False),
    metavar="DIR",
    help="Folder with torch's sources; with --lock they are checked out there [torch-test-sources].",
)
@click.option("--allow-version-mismatch", is_flag=True, help="Run tests of another torch: no evidence.")
@click.option("--suite", "--test-config", default="default", show_default=True, help="Which files to run.")
@click.option(
    "--exclude-distributed/--no-exclude-distributed",
    default=None,
    help="Leave distributed tests out, or not.",
)
@click.option(
    "--exclude-jit-executor/--no-exclude-jit-executor",
    default=None,
    help="Leave tests of TorchScript's executors out, or not.  [default of all three: as the suite]",
)
@click.option(
    "--exclude-quantization/--no-exclude-quantization",
    default=None,
    help="Leave test_quantization out, or not.",
)
@click.option("--include", multiple=True, metavar="FILE", help="Run these files of test/ instead (test_nn).")
@click.option("--exclude", multiple=True, metavar="FILE", help="Leave these files out.")
@click.option("--shard", type=click.IntRange(1), metavar="N", help="Run the Nth part of the files.")
@click.option("--num-shards", type=click.IntRange(1), metavar="N", help="Share the files out into N parts.")
@click.option(
    "-k", "expression", default="", metavar="EXPR", help="Run the tests that match, as pytest has it."
)
@click.option(
    "--debug/--no-debug",
    default=False,
    help="Run only what is known to fail, hang or crash.",
)
@click.option(
    "--pytorch-version",
    metavar="VERSION",
    help="Go by what is known of this torch (2.12), or of all.  [default: the installed one]",
)
@click.option(
    "--cache/--no-cache",
    default=False,
    show_default=True,
    help="Let pytest keep its cache, in the folder of the sources.",
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="Limit of a test.  [900]"
)
@click.option(
    "--file-timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="Of a file.  [7200]"
)
@click.option(
    "--after", type=GivenPath(), metavar="FILE", help="Only if these smoke tests' results are good."
)
@click.option("--fresh", is_flag=True, help="Begin anew, where a run of the same was ended.")
@click.option("--dry-run", is_flag=True, help="Show which files would be run, and run none.")
@click.option(
    "--output-dir",
    type=GivenPath(file_okay=False),
    default="torch-test-results",
    show_default=True,
    help="Where results go: a folder for each GPU.",
)
@click.option(
    "--mirror-dir",
    metavar="DIR",
    envvar="ROCM_WHEELS_MIRROR_DIR",
    show_envvar=True,
    help="Folder of bare repositories that all checkouts share; made when missing.",
)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST ARGS]...")
def torch_tests_command(**given: Any) -> int:
    """Find torch, its tests and GPUs, run, show what came of it."""
    from rocm_wheels.testing.target import inspect_target_python, list_torch_devices
    from rocm_wheels.workspace import get_project_home

    _check_options(given)
    if given["after"] is not None:
        _refuse_after_failures(given["after"])
    env = read_environment()
    addopts = shlex.split(env.pop("PYTEST_ADDOPTS", ""))
    python = find_tested_python(given["target_python"], env)
    looking = get_project_home() / "smoke-tests" / "looking.py"
    target = inspect_target_python(python, looking, env)
    sources = find_test_sources(given, target, env)
    test_places = _choose_places(given, target, env)
    order = _make_order(given, target, sources, addopts, test_places[0].env)
    order = replace(order, ask_devices=partial(list_torch_devices, python, looking))
    if given["dry_run"]:
        _print_plan(order, test_places)
        return 0
    results = [_run_in_place(order, place, Path(given["output_dir"]), env) for place in test_places]
    if not any(result.counts.get("passed") or result.counts.get("skipped") for result in results) and all(
        result.good for result in results
    ):
        log.log_warning("no test was run")
        return _NO_TESTS
    return 0 if all(result.good for result in results) else _FAILED


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for what is wrong whatever torch is there: before anything is fetched."""
    from rocm_wheels.model.gfx import parse_targets

    shard, shards = options["shard"], options["num_shards"]
    example = "for example: --shard 2 --num-shards 4"
    if (shard is None) != (shards is None):
        raise UsageError("--shard and --num-shards belong together", tip=example)
    if shard is not None and shard > shards:
        raise UsageError(f"--shard {shard}: there are {shards}, numbered from 1", tip=example)
    _check_suite(options["suite"])
    _check_version(options["pytorch_version"])
    if options["amdgpu_family"]:
        parse_targets(options["amdgpu_family"], input_name="--amdgpu-family")


def _refuse_after_failures(file: Path) -> None:
    """Raise ChecksError where smoke tests failed, or were not run: hours of tests would say no more."""
    from rocm_wheels.testing.results import read_results

    smoke = read_results(file)
    if smoke.bad or not smoke.counts.get("passed"):
        tip = "look at those first; without --after, torch's tests run all the same"
        raise ChecksError(f"the smoke tests did not pass: {smoke.summarize()} ({file})", tip=tip)


def _run_in_place(
    order: TorchTestRequest, place: GpuPlace, folder: Path, env: Mapping[str, str]
) -> TorchResults:
    """Run in one place; show what came of it, also where that was interrupted."""
    from rocm_wheels.testing.torch_tests.records import read_torch_results
    from rocm_wheels.testing.torch_tests.running import run_in_place
    from rocm_wheels.testing.torch_tests.shown import (
        format_torch_markdown,
        describe_next_command,
        format_torch_table,
    )

    place_folder = folder / place.label
    try:
        results = run_in_place(order, place, place_folder, click.echo)
    except KeyboardInterrupt:
        if (so_far := read_torch_results(place_folder)) is not None:
            click.echo("\n" + format_torch_table(so_far))
        raise
    click.echo("\n" + format_torch_table(results))
    click.echo(describe_next_command(results, place_folder))
    if page := env.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(format_torch_markdown(results))
        except OSError as failure:  # the results are written all the same
            log.log_warning(f"the step summary cannot be written: {failure.strerror} ({page})")
    return results


def _make_order(
    options: Mapping[str, Any],
    target: TargetPython,
    sources: TorchTestSources,
    addopts: Sequence[str],
    env: Mapping[str, str],
) -> TorchTestRequest:
    from rocm_wheels.model.torch_tests import load_torch_tests
    from rocm_wheels.testing.torch_tests.part import join_pytest_arguments
    from rocm_wheels.testing.torch_tests.plan import (
        TorchTestSelection,
        find_choosing_variables,
        plan_test_files,
    )
    from rocm_wheels.testing.torch_tests.running import TorchTestRequest
    from rocm_wheels.testing.wheels import identify_wheels

    table = load_torch_tests()
    chosen = TorchTestSelection(
        suite=_check_suite(options["suite"]),
        include=_split_file_names(options["include"]),
        exclude=_split_file_names(options["exclude"]),
        shard=options["shard"] or 1,
        shards=options["num_shards"] or 1,
        words=join_pytest_arguments(addopts, options["expression"], options["pytest_args"]),
        variables=find_choosing_variables(env, table.environment),
        exclusions=_read_exclusions(options),
        known_as=_check_version(options["pytorch_version"]),
        debug=options["debug"],
        cache=options["cache"],
    )
    for name, value in chosen.variables.items():
        log.log_warning(f"{name}={value} is set, by which tests may be left out: no evidence for all of them")
    suite = table.suites[chosen.suite]
    parts, excluded = plan_test_files(
        suite, chosen, sources.tests, target.python, {**env, **table.environment}
    )
    waiting = table.waiting
    return TorchTestRequest(
        target=target,
        python_version=target.python_version,
        sources=sources,
        chosen=chosen,
        parts=parts,
        left_out={file: row.reason for row in excluded for file in row.files},
        table=table,
        files=identify_wheels(target.installed, options["wheels"]),
        limits=(
            options["timeout"] or waiting.test_minutes * 60,
            options["file_timeout"] or waiting.file_minutes * 60,
        ),
        fresh=options["fresh"],
    )


def _check_suite(name: str) -> str:
    from rocm_wheels.model.torch_tests import load_torch_tests
    from rocm_wheels.records import suggest_name

    suites = load_torch_tests().suites
    if name not in suites:
        raise UsageError(
            f"there is no suite {name}{suggest_name(name, suites)}", tip=f"suites: {', '.join(suites)}"
        )
    return name


def _read_exclusions(options: Mapping[str, Any]) -> dict[str, bool]:
    """Return the kinds of tests that somebody wants left out, or not, whatever the suite does."""
    kinds = {
        kind: options[f"exclude_{kind.replace('-', '_')}"]
        for kind in ("distributed", "jit-executor", "quantization")
    }
    return {kind: leave_out for kind, leave_out in kinds.items() if leave_out is not None}


def _check_version(version: str | None) -> str:
    """Return the version of torch whose known failures count: ``all``, or "" for the installed one's."""
    from packaging.version import InvalidVersion, Version

    if version is None or version.lower() == "all":
        return (version or "").lower()
    try:
        return str(Version(version))
    except InvalidVersion:
        tip = "such as 2.12, or all; without it, that of the installed torch"
        raise UsageError(f"--pytorch-version {version} is no version of torch", tip=tip) from None


def _split_file_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of files as the table has them, also of ``test_nn.py``, and of several in one word."""
    return tuple(dict.fromkeys(word.removesuffix(".py") for name in names for word in name.split()))


def _choose_places(
    options: Mapping[str, Any], target: TargetPython, env: Mapping[str, str]
) -> list[GpuPlace]:
    from rocm_wheels.gpus.look import detect_hardware
    from rocm_wheels.model.gfx import parse_targets
    from rocm_wheels.model.torch_tests import load_torch_tests
    from rocm_wheels.testing.sessions import choose_gpus, resolve_device_query
    from rocm_wheels.testing.torch_tests.running import list_places, refuse_unseen_gpus

    family = options["amdgpu_family"]
    targets = parse_targets(family, input_name="--amdgpu-family") if family else None
    every = load_torch_tests().suites[_check_suite(options["suite"])].gpus == "every"
    hardware = detect_hardware(env, vendors=("amd",))
    for fault in hardware.faults:
        log.log_warning(fault)
    by_default = click.get_current_context().get_parameter_source("gpu_policy") is ParameterSource.DEFAULT
    policy, every = resolve_device_query(
        options["device_query"], None if by_default else options["gpu_policy"], together=every
    )
    chosen: list[Gpu] = choose_gpus(hardware.usable, policy, targets)
    if chosen and target.kind not in ("rocm", ""):
        log.log_warning(f"torch {target.version} is a build for {target.kind}: no GPU is tested")
        chosen = []
    if not chosen and (targets is not None or options["require_gpu"]):
        of = f" of {family}" if family else ""
        raise ChecksError(
            f"no GPU{of} is here to run torch's tests on", tip="without either option: on the CPU"
        )
    refuse_unseen_gpus(chosen, target)
    return list_places(chosen, env, every=every)


def _print_plan(order: TorchTestRequest, test_places: Sequence[GpuPlace]) -> None:
    from rocm_wheels.testing.torch_tests.running import find_known_tests

    click.echo(
        f"torch {order.target.torch_version}, tests of {order.sources.commit or order.sources.version}"
    )
    for place in test_places:
        click.echo(f"on {place.label}: {', '.join(part.name for part in order.parts)}")
        for name in find_known_tests(order, place.gfx).list_skipped():
            click.echo(f"  not run: {name}")
    for file, why in order.left_out.items():
        click.echo(f"left out: {file}: {why}")
