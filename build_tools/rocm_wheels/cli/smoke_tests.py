"""``smoke-tests`` and ``run_pytorch_smoke_tests.py``: the smoke tests of a torch, on each GPU here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocm_wheels import log
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.cli.tested_options import gpu_options, installed_options, find_tested_python
from rocm_wheels.errors import ChecksError

if TYPE_CHECKING:
    from rocm_wheels.testing.accounting import SmokeRun


_SMOKE_HELP = """Test the installed torch by the tests in smoke-tests/: on the CPU, and on each kind of GPU here.

What follows -- goes to pytest. Each test runs in a process of its own: pass, fail, crash, timeout and skip
are its outcomes; one that was not run is missing, which is no pass. Without a GPU the tests that need one
are skipped by name. results.json is there from the start, and says what is missing whatever ends the run.
The exit code is pytest's; 16 where torch or pytest is not installed.

\b
Example:
  rocm-wheels smoke-tests --target-python .venv/bin/python --amdgpu-family gfx94X-dcgpu -- -k attention
"""


@click.command("run-pytorch-smoke-tests", help=_SMOKE_HELP)
@gpu_options
@click.option("--require-gpu", is_flag=True, help="It is a failure when there is no GPU to test.")
@installed_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Limit of each test.  [default: 180, and more where a test says so]",
)
@click.option(
    "--timeout-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    metavar="FACTOR",
    help="Multiply the limit of each test: 3 for a slow or an emulated GPU.",
)
@click.option(
    "--output-dir",
    type=GivenPath(file_okay=False),
    default="smoke-results",
    show_default=True,
    help="Where results.json and junit.xml go.",
)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST ARGS]...")
def smoke_command(  # noqa: PLR0917 - one parameter an option
    amdgpu_family: str | None,
    gpu_policy: str,
    require_gpu: bool,
    target_python: Path | None,
    wheels: tuple[Path, ...],
    timeout: float | None,
    timeout_scale: float,
    output_dir: Path,
    pytest_args: tuple[str, ...],
) -> int:
    """Run the tests, write down the results, show them."""
    from rocm_wheels.gpus.look import detect_hardware
    from rocm_wheels.model.gfx import parse_targets
    from rocm_wheels.testing.sessions import DEVICE_POLICIES
    from rocm_wheels.testing.smoke import SmokeRequest, run_smoke_tests
    from rocm_wheels.workspace import get_project_home

    env = read_environment()
    request = SmokeRequest(
        python=find_tested_python(target_python, env),
        folder=get_project_home() / "smoke-tests",
        policy=next(policy for policy in DEVICE_POLICIES if policy == gpu_policy),
        targets=parse_targets(amdgpu_family, input_name="--amdgpu-family") if amdgpu_family else None,
        require_gpu=require_gpu,
        wheels=wheels,
        words=pytest_args,
        limit=timeout,
        scale=timeout_scale,
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    for old in (*output_dir.glob("results*.json"), output_dir / "junit.xml"):
        old.unlink(missing_ok=True)  # whatever ends this run, no results of another one are taken for its own
    hardware = detect_hardware(env, vendors=("amd",))
    for fault in hardware.faults:
        log.log_warning(fault)
    ran = run_smoke_tests(
        request,
        hardware.usable,
        env,
        show=click.echo,
        keep=lambda so_far: _write_progress(so_far, output_dir),
    )
    _write_outcome(ran, output_dir, env)
    return ran.code if ran.code >= 0 else ChecksError.exit_code  # killed: what it did not come to, is told


def _write_progress(ran: SmokeRun, folder: Path) -> None:
    from rocm_wheels.testing.results import write_results

    write_results(folder / "results.json", ran.results)
    for gfx, results in ran.by_gfx.items():
        write_results(folder / f"results-{gfx}.json", results)


def _write_outcome(ran: SmokeRun, folder: Path, env: Mapping[str, str]) -> None:
    from rocm_wheels.testing.junit import write_junit
    from rocm_wheels.testing.table import format_smoke_markdown, format_smoke_table

    write_junit(folder / "junit.xml", ran.results)
    click.echo("\n" + format_smoke_table(ran.results))
    if not ran.results.files:
        log.log_note(
            "the results name no wheel, so they are evidence for none: --wheels says what is installed"
        )
    log.log_note(f"results: {folder / 'results.json'}")
    if page := env.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(format_smoke_markdown(ran.results))
        except OSError as failure:  # the results are written all the same
            log.log_warning(f"the step summary cannot be written: {failure.strerror} ({page})")
