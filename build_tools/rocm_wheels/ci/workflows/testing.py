"""Jobs on machines with GPUs, and the one that writes down what they found: parts of ``release-set.yml``.

What was built runs here, so these jobs may read, and write nothing but artifacts. What they install, they
install into an environment in their workspace, and they keep no downloads: a machine that stays has neither
the packages of the night before, in its Python for all jobs, nor a disk that fills night by night.

Tests end before their job does, so that what they found by then is handed over: of a job that GitHub ends,
no later step runs.
"""

from __future__ import annotations

from rocm_wheels.ci.workflows.building import LOCK, OF_LINE
from rocm_wheels.ci.workflows.pieces import (
    AS_ROOT,
    GIVEN_BY_DIGEST,
    STORE,
    Job,
    Pieces,
    each,
    expression,
    job,
    run,
    when,
)
from rocm_wheels.ci.workflows.text import Noted
from rocm_wheels.model.ci import HOSTED_RUNNER

DEVICES = (
    f"{AS_ROOT} --device=/dev/kfd --device=/dev/dri --ipc=host --group-add=video"
    " --security-opt=seccomp=unconfined"
)
STAGED = {
    "SET": "${{ needs.stage.outputs.set }}",
    "STORE": "${{ inputs.store }}",
    "FAMILY": "${{ inputs.family }}",
}
ONE = '"$STORE" --set "$SET" --family "$FAMILY"'
_WHERE = (
    '--venv tested --target-python "$PYTHON" --index "$INDEX" --rocm-index "$ROCM_INDEX" --gfx "$TARGETS"'
    " --pre --no-cache"
)
_INSTALLED = {
    "PYTHON": "${{ steps.python.outputs.python-path }}",
    "INDEX": "${{ needs.stage.outputs.index }}",
    "ROCM_INDEX": "${{ inputs.rocm_index }}",
    "TARGETS": "${{ matrix.targets }}",
}
_OF_ROW = {"FAMILY": "${{ matrix.family }}"}
_SMOKE = "${{ contains(matrix.tests, 'smoke') }}"


def smoke_job(pieces: Pieces, staged: str) -> Job:
    """Return the job on machines with GPUs: it can read, and write nothing but an artifact.

    In a container, too, the Python is that of the row: the only one of the image is the tool's.
    """
    given = {**_INSTALLED, "ROCM_WHEELS_PACKAGES": "${{ matrix.packages }} pytest"}
    smoke = (
        "python3 build_tools/run_pytorch_smoke_tests.py --target-python tested --wheels wheels"
        ' --amdgpu-family "$FAMILY" --require-gpu --output-dir smoke-results'
    )
    return job(
        "${{ matrix.tester }}",
        "${{ matrix.test_minutes }}",
        [
            *pieces.begin("${{ matrix.python }}"),
            pieces.download("wheels-${{ matrix.built }}", "wheels"),
            pieces.download_all("shared-${{ matrix.shared }}", "wheels"),
            pieces.download_all("companions-${{ matrix.shared }}", "wheels"),
            run("install from the index of the set", f"rocm-wheels install {_WHERE}", given),
            run(
                "whether torch starts, and sees a GPU",
                "rocm-wheels test import devices --require-gpu --python tested",
                if_="${{ contains(matrix.tests, 'sanity') }}",
            ),
            run("smoke tests", smoke, _OF_ROW, id="smoke", if_=_SMOKE, **_limit("test")),
            when(
                pieces.upload("smoke-${{ matrix.name }}", "smoke-results"),
                "${{ !cancelled() && steps.smoke.outcome != 'skipped' }}",
            ),
        ],
        needs=["stage"],
        if_=expression(f"{staged} && needs.stage.outputs.tested_count != '0'"),
        name="test (${{ matrix.name }})",
        strategy=each("tested", of="stage"),
        container={"image": Noted("${{ inputs.test_image }}", GIVEN_BY_DIGEST), "options": DEVICES},
    )


def torch_job(pieces: Pieces, staged: str) -> Job:
    """Return the job of torch's own tests, where the smoke tests of the row passed; it may do the same."""
    needed = "pytest expecttest hypothesis numpy scipy psutil"  # what torch.testing and its tests import
    tests = (
        f"python3 build_tools/run_pytorch_tests.py --target-python tested --lock {LOCK} --wheels wheels"
        ' --amdgpu-family "$FAMILY" --after smoke-results/results.json --output-dir torch-test-results'
    )
    return job(
        "${{ matrix.tester }}",
        "${{ matrix.torch_test_minutes }}",
        [
            *pieces.begin("${{ matrix.python }}"),
            pieces.download(f"lock-{OF_LINE}"),
            pieces.download("smoke-${{ matrix.name }}", "smoke-results"),
            pieces.download("wheels-${{ matrix.built }}", "wheels"),
            pieces.download_all("shared-${{ matrix.shared }}", "wheels"),
            run(
                "install from the index of the set",
                f"rocm-wheels install torch {needed} {_WHERE}",
                _INSTALLED,
            ),
            run("torch's own tests", tests, _OF_ROW, id="tests", **_limit("torch")),
            when(
                pieces.upload("tests-${{ matrix.name }}", "torch-test-results"),
                "${{ !cancelled() && steps.tests.outcome != 'skipped' }}",
            ),
        ],
        needs=["stage", "test"],
        if_=expression(f"{staged} && needs.stage.outputs.torch_tested_count != '0'"),
        name="tests (${{ matrix.name }})",
        strategy=each("torch_tested", of="stage"),
        container={"image": Noted("${{ inputs.test_image }}", GIVEN_BY_DIGEST), "options": DEVICES},
    )


def results_job(pieces: Pieces, staged: str) -> Job:
    """Return the job that writes down what machines with GPUs found, which may write to no store."""
    add = f'rocm-wheels evidence add {ONE} --host-kind "$KIND" --from'
    given, full = {**STAGED, "KIND": "${{ matrix.tester }}"}, "${{ contains(matrix.tests, 'tests') }}"
    return job(
        HOSTED_RUNNER,
        20,
        [
            *pieces.begin(s3=True),
            when(pieces.download("smoke-${{ matrix.name }}", "smoke-results"), _SMOKE),
            pieces.credentials(),
            run("write it down", f"{add} smoke-results/results.json", given, if_=_SMOKE),
            when(pieces.download("tests-${{ matrix.name }}", "torch-test-results"), full),
            run("and torch's own tests", f"{add} torch-test-results", given, if_=full),
        ],
        permissions=STORE,
        needs=["stage", "test", "tests"],
        if_=expression(f"{staged} && needs.stage.outputs.tested_count != '0'"),
        name="results (${{ matrix.name }})",
        strategy=each("tested", of="stage"),
    )


def _limit(which: str) -> dict[str, str]:
    return {"timeout-minutes": f"${{{{ matrix.{which}_step_minutes }}}}"}
