"""``test-smoke``, ``test-torch`` (``build --test``): test the wheels of a set, installed as users have them.

Each step installs ROCm and all wheels of its Python and set into an environment of its own, and runs
``rocm-wheels test`` there. Results stay in ``tests/<step>`` of the work directory, passed or not: what
``set evidence add --from`` takes. A step needs a GPU, unless it was said that the CPU will do.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.core import errors, installation, log, process, shell, workspace
from rocm_wheels.pipeline import outputs
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import DEVICE_INPUT, NEEDS_GPU, NotYet, Step
from rocm_wheels.pipeline.step_run import StepRun
from rocm_wheels.sdk import build_environment, interpreters

TEST_VERSION = "1"
_RESULT_FILES = "results.json", "*/results.json"
_TEST_TOOLS = ["ninja", "pytest"]  # ninja compiles extensions


def settle_test(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the wheels that are tested, by which tests, and whether it needs a GPU."""
    inputs[DEVICE_INPUT] = "any" if planner.facts.request.test_on_cpu else NEEDS_GPU
    inputs["step"] = TEST_VERSION
    if step.kind == "test-smoke":
        inputs["tests"] = _digest_smoke_tests()
    for project, provided in planner.facts.python.provided.items():
        if provided.wheel is not None:
            inputs[f"wheel of {project}"] = provided.content
    inputs["targets"] = ",".join(planner.find_targets())
    inputs["ROCm packages"] = planner.ready.content
    for name in step.after:
        project_name = planner.steps[name].project
        if project_name is None:
            continue
        if not planner.is_current(name):
            raise NotYet(name)
        inputs[f"wheel of {project_name}"] = planner.facts.done[name].stamp.outputs[0].sha256
    words = _make_words(step, planner.facts.request.sources["pytorch"])
    command = shell.format_command(["rocm-wheels", *words, "--python", "ENVIRONMENT"])
    return decide_verdict(planner, step, dict(sorted(inputs.items())), command=command)


def _digest_smoke_tests() -> str:
    """Return a digest of the smoke tests as they are now."""
    digest = hashlib.sha256()
    for file in sorted((workspace.get_project_home() / "smoke-tests").glob("*.py")):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _make_words(step: Step, torch_tree: Path) -> list[str]:
    if step.kind == "test-smoke":
        return ["tests", "smoke"]
    return ["tests", "torch", "--pytorch-dir", str(torch_tree)]


def run_test(step_run: StepRun) -> None:
    """Install the wheels, and test them. Raises SdkError, and ChecksError where a test does not pass."""
    step, facts = step_run.step, step_run.facts
    folder = facts.workspace.tests / step.id
    folder.mkdir(parents=True, exist_ok=True)
    wheels = _find_wheels(step_run)
    environment = _make_environment(step_run, wheels)
    words = _make_words(step, facts.request.sources["pytorch"])
    words += ["--python", str(environment.prefix), "--output-dir", str(folder)]
    words += [word for wheel in wheels for word in ("--wheels", str(wheel))]
    words += ["--family", step_run.known_inputs["targets"], "--require-gpu"] if step.needs_gpu else []
    argv = [*installation.get_own_command(), *words]
    finished = process.run_command(
        argv, env=facts.env, cwd=folder, on_line=log.log_note, check=None, description=step.id
    )
    step_run.record_command(["rocm-wheels", *words], finished, cwd=folder, changes={})
    if code := finished.returncode:
        from rocm_wheels.testing import results  # planning reads no results

        said = "the tests did not pass"
        for file in sorted(file for pattern in _RESULT_FILES for file in folder.glob(pattern)):
            said += f": {results.read_results(file).summarize()}"
        raise errors.ChecksError(
            f"{step.id}: {said} (exit code {code})",
            tip=f"what came of each test: {folder}; the wheels are in the output folder all the same",
        )
    files = sorted(file for pattern in _RESULT_FILES for file in folder.glob(pattern))
    step_run.record_success(tuple(map(outputs.OutputFile.from_path, files)))
    log.log_note(f"evidence: rocm-wheels set evidence add STORE --set ID --from {folder}")


def _find_wheels(step_run: StepRun) -> list[Path]:
    """Return the wheels to install: those that the set's folder has of this run, and those it was given."""
    planner, facts = step_run.planner, step_run.facts
    packaged = [name for name in step_run.step.after if planner.steps[name].project is not None]
    files = [Path(output.path) for name in packaged for output in facts.done[name].stamp.outputs]
    wheels = [file for file in files if file.suffix == ".whl" and file.parent == facts.request.wheels_folder]
    given = [provided.wheel for provided in facts.python.provided.values()]
    return wheels + [wheel for wheel in given if wheel is not None]


def _make_environment(step_run: StepRun, wheels: Sequence[Path]) -> build_environment.BuildEnvironment:
    """Make the environment anew: ROCm as the build has it, then the wheels, then what those require."""
    facts = step_run.facts
    prefix = facts.workspace.environments / f"tested-{step_run.step.id}"
    shutil.rmtree(prefix, ignore_errors=True)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    interpreters.make_venv(facts.python.python, prefix, facts.env, on_line=step_run.echo_line)
    environment = build_environment.locate_environment(prefix)
    build_environment.install_into(environment.python, facts.sdk_request, facts.env, step_run.echo_line)
    for wheel in wheels:
        build_environment.install_wheel(environment, wheel, env=facts.env, on_line=step_run.echo_line)
    # what they require is looked up by requirements that only these wheels fulfil
    pins = ["==".join(wheel.name.split("-")[:2]) for wheel in wheels]
    interpreters.pip_install(
        environment.python,
        [*pins, *_TEST_TOOLS],
        facts.request.sdk.tools_source,
        facts.env,
        activity="installing what the wheels require",
        cwd=prefix,
        on_line=step_run.echo_line,
    )
    return environment
