"""``smoke-tests`` and ``torch-tests``: the smoke tests and torch's own tests, on each kind of GPU here.

torch's own tests are those of the commit that the installed torch was built from: of a lock, or a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rocm_wheels.cli import boundary, catalogue, checkout_options
from rocm_wheels.cli.command import Command, Option, command, option, widen_command
from rocm_wheels.cli.output import print_next
from rocm_wheels.core import errors, log, tables

if TYPE_CHECKING:
    from rocm_wheels.gpus import gpu
    from rocm_wheels.models import test_results
    from rocm_wheels.release import wheel_set
    from rocm_wheels.stores.store import Store
    from rocm_wheels.testing import installed_torch, runner, tested_gpus, torch_sources, torch_test_plan


# which GPUs are tested
tested_family = catalogue.FAMILY.but(
    name="amdgpu_family",
    metavar="FAMILY,…",
    help="Test only GPUs of these families or targets (gfx94X-dcgpu, gfx1100), and fail if there are none."
    "  [default: any]",
)
# where torch is installed, and of which wheels
installed_options = catalogue.takes(
    catalogue.PYTHON.but(
        name="target_python",
        help="Python or virtual environment with torch and pytest.  [default: the one that runs this]",
    ),
    catalogue.WHEELS.but(
        help="Wheel or folder of wheels that were installed: their digests go into the results."
    ),
)


# what the scripts of TheRock read from the environment where no option is given, and its script of all tests
SMOKE_VARIABLES = {"amdgpu_family": "AMDGPU_FAMILY"}
FULL_VARIABLES = {
    **SMOKE_VARIABLES,
    "suite": "TEST_CONFIG",
    "shard": "SHARD_NUMBER",
    "num_shards": "NUM_TEST_SHARDS",
    "include": "TESTS_TO_INCLUDE",
}


def take_variables(env: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return a remark for the record, of the variables that options of this command were read from.

    All that the command may read are taken out of ``env``: its tests go by the options, whoever gave them.
    """
    context = click.get_current_context()
    words = []
    for param in context.command.params:
        if param.envvar not in FULL_VARIABLES.values():
            continue
        value = env.pop(str(param.envvar), "")
        if context.get_parameter_source(str(param.name)) is ParameterSource.ENVIRONMENT:
            words.append(f"{param.envvar}={value}")
    return (f"of the environment: {', '.join(words)}",) if words else ()


def _parse_family(text: str | None) -> tuple[str, ...] | None:
    """Return the targets that are meant, None for any; ``gfx94X`` is every target that begins with gfx94.

    Raises UsageError, which names the variable where the text is of one.
    """
    from rocm_wheels.models.gfx import get_gfx_families, get_gfx_targets, parse_targets, split_target_words

    if not text:
        return None
    source = click.get_current_context().get_parameter_source("amdgpu_family")
    names = []
    for word in split_target_words(text):
        stem = word.partition("-")[0]
        is_pattern = stem[-1:] in {"x", "X"} and word not in get_gfx_families()
        names += [name for name in get_gfx_targets() if is_pattern and name.startswith(stem[:-1])] or [word]
    input_name = "AMDGPU_FAMILY" if source is ParameterSource.ENVIRONMENT else "--family"
    return parse_targets(",".join(names), input_name=input_name)


_FAILED, _NO_TESTS = 1, 5  # as pytest's
_LOST = 6  # pytest has none of that number


def _run_in_places(
    request: runner.TestRequest,
    places_by_folder: Mapping[Path, tested_gpus.GpuPlace],
    env: Mapping[str, str],
) -> int:
    """Run a suite in each place, show what came of it, also where that was interrupted; return the exit code.

    It is 0 when all passed that is not known to fail, 1 when not, or something was not run, 5 for no tests,
    6 when a GPU got lost so that the run could not go on.
    """
    from rocm_wheels.testing import results, runner

    done: list[test_results.Results] = []
    for folder, place in places_by_folder.items():
        try:
            done.append(runner.run_in_place(request, place, folder, click.echo))
        except KeyboardInterrupt:
            click.echo("\n" + results.format_table(results.read_results(folder / results.RESULTS_FILE)))
            raise
        click.echo("\n" + results.format_table(done[-1]))
        if len(done[-1].files) < len(request.files):
            how = "begins anew" if request.header.kind == "smoke" else "continues"
            click.echo(f"not run to the end; the same command {how}")
        click.echo(results.describe_next_command(done[-1], folder))
        boundary.append_step_summary(env, results.format_page(done[-1]))
    if any(result.lost_gpu for result in done):
        return _LOST
    if not all(result.good for result in done):
        return _FAILED
    if not any(result.counts.get("passed") or result.counts.get("skipped") for result in done):
        log.log_warning("no test was run")
        return _NO_TESTS
    return 0


_SMOKE_HELP = """Test the installed torch by the tests in smoke-tests/: on the CPU, and on each kind of GPU
here.

Words after -- go to pytest; if the Python has none, ours is used. A crash or hang fails one test only; a
failed test is tried again alone. Tests that did not run are `missing` in results.json, which is no pass.
Without a GPU and without --family the tests that need one are skipped. Exit code: 0 if all passed, 1 if not,
5 for no tests, 6 if the GPU stopped working, 16 if torch is not installed, or no GPU is of the --family.

With --store and --set the set is first installed from its own index, into venv in the output folder, and the
results name its wheels. Without one of its GPUs nothing is installed (16), and there are no results.

\b
Examples:
  rocm-wheels test smoke --python .venv/bin/python --family gfx94X-dcgpu -- -k attention
  rocm-wheels test smoke --store s3://wheels --set 2.9.1-93bf --rocm-index URL --family gfx942
"""


@command("test smoke", help=_SMOKE_HELP, together=[("--store", "--set")], apart=[("--wheels", "--set")])
@tested_family
@catalogue.REQUIRE_GPU
@installed_options
@catalogue.OUTPUT_DIR.but(
    default="smoke-results", show_default=True, help="Where results.json and junit.xml go."
)
@catalogue.STORE.but(help="The store of the set to test.")
@catalogue.SET
@catalogue.OTHER_ROCM_INDEX.but(help="With --set: index of ROCm's own packages.")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST ARGS]...")
def smoke_command(  # noqa: PLR0917 - one parameter an option
    amdgpu_family: str | None,
    require_gpu: bool,
    target_python: Path | None,
    wheels: tuple[Path, ...],
    output_dir: Path,
    store: str | None,
    set_id: str | None,
    rocm_index: str | None,
    pytest_args: tuple[str, ...],
) -> int:
    """Run the tests, write down the results, show them."""
    from rocm_wheels.core import workspace
    from rocm_wheels.gpus import detect
    from rocm_wheels.release import next_step, wheel_set
    from rocm_wheels.sdk import interpreters
    from rocm_wheels.stores.store import open_existing_store
    from rocm_wheels.testing import (
        inspect_machine,
        installed_torch,
        pytest_words,
        results,
        runner,
        smoke,
    )
    from rocm_wheels.testing.tested_gpus import choose_gpus

    targets, env = _parse_family(amdgpu_family), boundary.read_environment()
    remarks = take_variables(env)
    words = pytest_words.join_pytest_arguments(env.pop("PYTEST_ADDOPTS", ""), "", pytest_args)
    tested_python = target_python or boundary.pop_starting_python(env)
    hardware = detect.detect_hardware(env, vendors=("amd",))
    document, set_targets = None, None
    if store is not None and set_id is not None:
        opened = open_existing_store(store, env)
        document = wheel_set.find_set(opened, set_id)
        # one without device code is tested on the CPU
        set_targets = targets or (wheel_set.list_set_targets(document) if document.targets else None)
        if document.targets and targets and not set(targets) & set(document.targets):
            raise errors.UsageError(
                f"{document.id} has no code for {', '.join(targets)}",
                tip=f"it has code for {', '.join(document.targets)}",
            )
    # whatever ends this run, no results of another one are taken for its own
    for folder in (output_dir, *(path.parent for path in output_dir.glob(f"*/{runner.WORK_FOLDER}"))):
        for name in (results.RESULTS_FILE, results.JUNIT_FILE):
            (folder / name).unlink(missing_ok=True)
    if document is not None:
        if set_targets is not None and not choose_gpus(hardware.usable, "unique", set_targets):
            raise errors.ChecksError(
                f"no GPU of {', '.join(set_targets)} can be tested here, so {document.id} is not installed",
                tip="`rocm-wheels doctor` lists the GPUs here; test it on a machine that has one of these",
            )
        venv = output_dir / "venv"
        wheels = _install_set(opened, document, rocm_index, venv, tested_python, targets)
        targets = set_targets
        tested_python = interpreters.find_python_program(str(venv.absolute()), env)
    for fault in hardware.faults:
        log.log_warning(fault)
    tests = workspace.get_project_home() / "smoke-tests"
    target = installed_torch.inspect_target_python(tested_python, env)
    target.require("torch")
    chosen = smoke.choose_smoke_places(target, hardware.usable, env, targets)
    folders = {(output_dir / place.label if chosen[1:] else output_dir): place for place in chosen}
    with ExitStack() as stack:
        scratch = stack.enter_context(installed_torch.lend_pytest(target, env))
        request = smoke.make_smoke_request(
            target,
            tests,
            scratch,
            wheels=installed_torch.identify_wheels(target.installed, wheels),
            words=words,
            require_gpu=require_gpu,
            machine=inspect_machine.inspect_machine(hardware, env),
            remarks=remarks,
        )
        code = _run_in_places(request, folders, env)
    if document is not None:
        step = next_step.CommandWords(str(store)).format_line(
            "set evidence add", document.id, "--from", str(output_dir)
        )
        print_next(step, beside_json=False)
    return code


def _install_set(  # noqa: PLR0917 - what was given
    store: Store,
    document: wheel_set.SetDocument,
    rocm_index: str | None,
    venv: Path,
    python: Path,
    targets: tuple[str, ...] | None,
) -> tuple[Path, ...]:
    """Install a set from its own index into an environment, and return the wheels that were installed.

    They stay beside the environment: results name them by their digests.
    """
    from rocm_wheels.core import process
    from rocm_wheels.release import set_copy
    from rocm_wheels.release.store_paths import FamilyPaths
    from rocm_wheels.variants import device_names

    env = boundary.read_environment()
    hosts = {
        file.project: file.version
        for file in document.files
        if device_names.find_host_project(file.project) is None
    }
    kept = venv.with_name(f"{venv.name}-wheels")
    with set_copy.open_copy(store, document) as root:
        index = root / FamilyPaths(document.family).set_index(document.id)
        words = [sys.executable, "-m", "rocm_wheels", "install", *(f"{p}=={v}" for p, v in hosts.items())]
        words += ["--index", str(index), "--python", str(python), "--venv", str(venv)]
        words += ["--keep-wheels", str(kept), *(["--rocm-index", rocm_index] if rocm_index else [])]
        words += ["--gfx", ",".join(targets)] if targets else []
        process.run_command(words, env=env)
    names = {file.name for file in document.files}
    return tuple(sorted(path for path in kept.glob("*.whl") if path.name in names))


def find_test_sources(
    options: Mapping[str, Any], target: installed_torch.TargetPython, env: Mapping[str, str]
) -> torch_sources.TorchTestSources:
    """Return the folder of the tests, checked out where a lock says which.

    Without ``--lock`` and ``--pytorch-dir`` it is the lock inside the installed torch; where that has none,
    the folder that torch is checked out to. Raises UsageError, DataError and SourceError: no lock, no such
    commit, tests of another torch.
    """
    from rocm_wheels.models import project_names
    from rocm_wheels.testing import torch_sources

    folder: Path | None = options["pytorch_dir"]
    lock: Path | None = options["lock"]
    if lock is None and folder is None:
        lock = torch_sources.find_torch_lock(target)
        checkout = project_names.get_recipes_folder() / "pytorch"
        folder = checkout if lock is None and (checkout / "version.txt").is_file() else None
        if lock is None and folder is None:
            raise errors.UsageError(
                f"torch {target.torch_version} has no lock inside: nothing says which tests are its own",
                tip="name the lock that it was built from: --lock sources.lock.json;"
                " or a folder: --pytorch-dir",
            )
    if lock is not None:
        folder = folder or Path("torch-test-sources")
        _check_out_tests(lock, folder, env)
    assert folder is not None
    return torch_sources.inspect_test_sources(
        folder.absolute(), target, env, allow_other=options["allow_version_mismatch"]
    )


def _check_out_tests(lock: Path, folder: Path, env: Mapping[str, str]) -> None:
    """Check out what a lock says of torch: its files alone, without history, submodules and hipify."""
    from dataclasses import replace

    from rocm_wheels.models import project
    from rocm_wheels.sources import checkout
    from rocm_wheels.sources import lock as locks

    file = locks.open_lock(lock, checkout_options.detect_platform())
    recipe = project.load_project(checkout_options.TORCH)
    options = {"depth": 1, "submodules": False, "hipify": False, "commit_hipify": True}
    request = checkout_options.make_locked_request(recipe, file, folder.absolute(), options)
    if request.patches is not None:  # what is changed in submodules changes no test
        base = tuple(request.patches.get_series("base").get("", ()))
        request = replace(request, patches=replace(request.patches, patches=base) if base else None)
    done = checkout.checkout_project(request, env=env, python=Path(sys.executable))
    locks.check_checkout(file, request, done, env=env)


_TORCH_TESTS_HELP = """Run torch's own tests on each kind of GPU here, or without one on the CPU.

The tests are from the commit that the installed torch was built from: by the lock inside its wheel, by
--lock, or in a folder at that commit (--pytorch-dir). A crash or hang fails one test only; a failed test is
tried again alone. After a kill or a lost GPU, run the same command again.

Words after -- go to pytest. Known failures (data/torch_tests.yaml) are reported separately; tests known to
hang or crash are shown, not run. Exit code: 0 if all tests passed or are known to fail, 1 if not, 5 for no
tests, 6 if the GPU stopped working, 16 if torch or pytest is missing.

\b
Examples:
  rocm-wheels test torch --python .venv/bin/python --wheels wheels --family gfx94X-dcgpu
  rocm-wheels test torch --lock sources.lock.json --include test_nn --dry-run -- -k Conv
  rocm-wheels test torch --python .venv --suite full --shard 2 --num-shards 6
  rocm-wheels test torch --python .venv --requirements > requirements.txt
"""


@command("test torch", help=_TORCH_TESTS_HELP, together=[("--shard", "--num-shards")])
@tested_family
@catalogue.REQUIRE_GPU.but(help="Refuse to test on the CPU.")
@installed_options
@catalogue.LOCK.but(help="Use the tests of this lock [default: of torch's own].")
@catalogue.PYTORCH_DIR.but(
    help="Folder with torch's sources; with --lock they are checked out there [default: torch-test-sources]."
)
@option(
    "--allow-version-mismatch/--no-allow-version-mismatch",
    default=False,
    help="Allow tests of another torch; the results are no evidence.",
)
@catalogue.SUITE.but(default="default", show_default=True, help="Which files to run.")
@option("--include", several="+", metavar="FILE", help="Run these files of test/ instead (test_nn).")
@option("--exclude", several="+", metavar="FILE", help="Leave these files out.")
@option("--shard", type=click.IntRange(0), metavar="N", help="Run the Nth part of the files; 0: all.")
@option("--num-shards", type=click.IntRange(0, 1000), metavar="N", help="Divide the files into N parts.")
@option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of a test.  [900]",
)
@option(
    "--requirements",
    is_flag=True,
    help="Print what the tests need, for `uv pip install -r`, and run none: the list of torch's CI at their"
    " commit, the installed torch, rocm[devel]; what cannot be installed is a comment.",
)
@catalogue.DRY_RUN
@catalogue.OUTPUT_DIR.but(
    default="torch-test-results", show_default=True, help="Where results go: a folder for each GPU."
)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST ARGS]...")
def torch_tests_command(**given: Any) -> int:
    """Find torch, its tests and GPUs, run, show what came of it."""
    from rocm_wheels.gpus import detect
    from rocm_wheels.testing import (
        inspect_machine,
        installed_torch,
        torch_sources,
        torch_test_plan,
    )

    env = boundary.read_environment()
    remarks = take_variables(env)
    # what is wrong whatever torch is there is said before anything is asked or fetched
    chosen = _choose_tests(given, env)
    _parse_family(given["amdgpu_family"])
    python = given["target_python"] or boundary.pop_starting_python(env)
    target = installed_torch.inspect_target_python(python, env)
    target.require("torch")
    if given["requirements"]:
        sources = find_test_sources(given, target, env)
        commit = sources.commit or sources.version
        click.echo(f"# for torch's tests of {commit}, Python {target.python_version}")
        click.echo("\n".join(torch_sources.read_test_requirements(sources, target)))
        return 0
    target.require("pytest")
    sources = find_test_sources(given, target, env)
    hardware = detect.detect_hardware(env, vendors=("amd",))
    test_places = _choose_places(given, target, env, hardware)
    for name, value in chosen.variables.items():
        log.log_warning(f"{name}={value} is set, by which tests may be left out: no evidence for all of them")
    request = torch_test_plan.make_torch_request(
        target,
        sources,
        chosen,
        test_places[0].env,
        wheels=installed_torch.identify_wheels(target.installed, given["wheels"]),
        limit=given["timeout"],
        find_gpu_fault=partial(installed_torch.find_gpu_fault, python),
        machine=inspect_machine.inspect_machine(hardware, env, rocm=target.rocm_version),
        remarks=remarks,
    )
    if given["dry_run"]:
        _print_plan(request, chosen, test_places)
        return 0
    folders = {Path(given["output_dir"]) / place.label: place for place in test_places}
    return _run_in_places(request, folders, env)


def _choose_tests(
    options: Mapping[str, Any], env: MutableMapping[str, str]
) -> torch_test_plan.TorchTestSelection:
    """Return what is chosen of a suite, by options and by the environment, which loses PYTEST_ADDOPTS.

    Raises UsageError for what is wrong whatever torch is there.
    """
    from rocm_wheels.models import torch_tests
    from rocm_wheels.testing import pytest_words, torch_test_plan

    table = torch_tests.load_torch_tests()
    suite, shard, shards = options["suite"], options["shard"] or 0, options["num_shards"] or 0
    if shard > shards:
        tip = "for example: --shard 2 --num-shards 4"
        raise errors.UsageError(f"--shard {shard}: there are {shards}, numbered from 1", tip=tip)
    if suite not in table.suites:
        raise errors.UsageError(
            f"there is no suite {suite}{tables.suggest_name(suite, table.suites)}",
            tip=f"suites: {', '.join(table.suites)}",
        )

    def split_names(words: Sequence[str]) -> tuple[str, ...]:
        """Return names of files as the table has them, also of ``test_nn.py``, and of several in one word."""
        return tuple(dict.fromkeys(name.removesuffix(".py") for word in words for name in word.split()))

    earlier = [Path(path) for path in env.get("ROCM_WHEELS_DURATIONS", "").split(os.pathsep) if path]
    addopts = env.pop("PYTEST_ADDOPTS", "")
    return torch_test_plan.TorchTestSelection(
        suite=suite,
        include=split_names(options["include"]),
        exclude=split_names(options["exclude"]),
        shard=shard or 1,
        shards=shards or 1,
        words=pytest_words.join_pytest_arguments(
            addopts, options.get("expression", ""), options["pytest_args"]
        ),
        variables=torch_test_plan.find_choosing_variables(env, table.environment),
        durations=torch_test_plan.read_durations(earlier, suite),
    )


def _choose_places(
    options: Mapping[str, Any],
    target: installed_torch.TargetPython,
    env: Mapping[str, str],
    hardware: gpu.Hardware,
) -> list[tested_gpus.GpuPlace]:
    from rocm_wheels.models import torch_tests
    from rocm_wheels.testing import tested_gpus

    targets = _parse_family(options["amdgpu_family"])
    for fault in hardware.faults:
        log.log_warning(fault)
    named = options.get("gpu_policy", "auto")
    policy: tested_gpus.DevicePolicy = "unique" if named == "auto" else named
    together = policy != "single" and torch_tests.load_torch_tests().suites[options["suite"]].gpus == "every"
    policy = "all" if together else policy
    required = options["require_gpu"]
    chosen = tested_gpus.choose_tested_gpus(target, hardware.usable, policy, targets, required=required)
    tested_gpus.refuse_unseen_gpus(chosen, target)
    return tested_gpus.list_places(chosen, env, together=together)


def _print_plan(
    request: runner.TestRequest,
    chosen: torch_test_plan.TorchTestSelection,
    test_places: Sequence[tested_gpus.GpuPlace],
) -> None:
    from rocm_wheels.testing import runner

    click.echo(request.header.subject)
    for place in test_places:
        click.echo(f"on {place.label}: {', '.join(file.name for file in request.files)}")
        for name in runner.find_known_tests(request, place.gfx).list_names("", skipped=True):
            click.echo(f"  not run: {name}")
    unrecorded = [file for file in request.files if file.file not in chosen.durations]
    count = tables.format_count(len(unrecorded), "file")
    note = f" (no record of {count}: {chosen.estimate_seconds(unrecorded[0]):g} s each)" if unrecorded else ""
    estimate = sum(map(chosen.estimate_seconds, request.files))
    click.echo(f"about {tables.format_duration(estimate)}{note}")
    for file, why in request.left_out.items():
        click.echo(f"left out: {file}: {why}")


_Callback = Callable[[click.Context, click.Parameter, Any], Any]


def _make_script(
    command: Command, variables: Mapping[str, str], callbacks: Mapping[str, _Callback] | None = None
) -> Command:
    """Return a command whose options are also read from ``variables``, and changed by ``callbacks``."""
    script = copy(command)
    script.params = list(map(copy, command.params))
    for param in script.params:
        name = str(param.name)
        param.callback = (callbacks or {}).get(name, param.callback)
        if isinstance(param, click.Option) and name in variables:
            param.envvar, param.show_envvar = variables[name], True
    return script


# what TheRock's scripts take besides; -k stands behind -- for `test torch`
_wider_command = widen_command(
    torch_tests_command,
    [
        Option(
            ["--gpu-policy"],
            type=click.Choice(["auto", "unique", "all", "single"]),
            default="auto",
            show_default=True,
            help="Test one GPU of each target (unique), all of them one by one, or the first alone (single);"
            " auto is unique. A suite that needs several at once takes all of a target, unless it is single.",
        ),
        Option(["-k", "expression"], default="", metavar="EXPR", help="Run the tests that match, as pytest."),
    ],
)
smoke_script = _make_script(smoke_command, SMOKE_VARIABLES)
tests_script = _make_script(_wider_command, SMOKE_VARIABLES)
# TheRock's `default` is all that run_test.py lists for one GPU; here it is six files of these
full_tests_script = _make_script(
    _wider_command,
    FULL_VARIABLES,
    {"suite": lambda _context, _option, suite: "full" if suite == "default" else suite},
)
