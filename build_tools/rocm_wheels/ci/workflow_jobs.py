"""The workflows of GitHub: building a line, testing, releasing, and what starts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocm_wheels.ci.workflow_parts import (
    AS_ROOT,
    CCACHE,
    GIVEN_BY_DIGEST,
    STORE,
    STORE_AND_ATTEST,
    Job,
    Noted,
    Pieces,
    Step,
    Workflow,
    calling,
    each,
    expression,
    inputs,
    job,
    one_after_another,
    run,
    when,
)
from rocm_wheels.models import HOSTED_RUNNER, MULTI_ARCH

LOCK = "sources.lock.json"
SOURCES = "sources.tar.zst"
OF_LINE = "${{ inputs.line }}-${{ inputs.platform }}"
GIVEN = {
    "trigger": ("presubmit, postsubmit, nightly or release: its policy is in data/ci.yaml", ...),
    "line": ("torch line: 2.13, nightly, …", ...),
    "platform": ("linux or windows", ...),
    "families": ("GPU families, by spaces", ...),
    "layout": ("per-family, or multi-arch: one build for all of them", ...),
    "pythons": ("Pythons, by spaces", ...),
    "rocm_version": ("version of the ROCm packages", ...),
    "rocm_index": ("index that has the ROCm packages", ...),
    "local_version": ("what tells these wheels from others of their versions; {date} is today's", ""),
    "build_image": ("image to build in, by digest; empty: on the machine itself", ""),
}
_ROWS = {
    "line": "lines",
    "pythons": "pythons",
    "first": "first",
    "others": "others",
    "companions": "companions",
}
_SELECTED = {
    "TRIGGER": "${{ inputs.trigger }}",
    "LINE": "${{ inputs.line }}",
    "PLATFORM": "${{ inputs.platform }}",
    "FAMILIES": "${{ inputs.families }}",
    "PYTHONS": "${{ inputs.pythons }}",
    "LAYOUT": "${{ inputs.layout }}",
    "ROCM": "${{ inputs.rocm_version }}",
}
_MATRIX = (
    'rocm-wheels matrix --format github --trigger "$TRIGGER" --lines "$LINE" --platform "$PLATFORM"'
    ' --families "$FAMILIES" --pythons "$PYTHONS" --layout "$LAYOUT" --rocm-version "$ROCM"'
)
_BUILD = (
    f'python3 build_tools/build_prod_wheels.py build --lock {LOCK} --only "$PROJECTS" --python "$PYTHON"'
    ' --pytorch-rocm-arch "$TARGETS" --install-rocm --index-url "$ROCM_INDEX" --rocm-extras "$EXTRAS"'
    " --use-ccache --root-checkout-dir sources --output-dir wheels"
)


def matrix_step(**rows: str) -> Step:
    """Return a step, `matrix`, that sets rows of the selection as outputs: kinds of rows by name."""
    asked = "".join(f" --rows {kind} --output {name}" for name, kind in rows.items())
    return run("matrix", f"{_MATRIX}{asked}", _SELECTED, id="matrix")


def matrix_outputs(*names: str) -> dict[str, str]:
    """Return the outputs of a job that says what its step `matrix` said: rows, and how many."""
    return {
        said: expression(f"steps.matrix.outputs.{said}") for name in names for said in (name, f"{name}_count")
    }


def build_line(pieces: Pieces) -> Workflow:
    """Return the workflow."""
    saving = {"save_cache": ("whether what is built is trusted to fill the compiler cache of others", False)}
    return {
        "name": "build a line",
        "on": {"workflow_call": {"inputs": inputs({**GIVEN, **saving})}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "lock": _lock(pieces),
            "sources": _sources(pieces),
            "shared": _shared(pieces),
            "first": _cells(pieces, "first"),
            "others": _cells(pieces, "others"),
            "companions": _companions(pieces),
        },
    }


def _lock(pieces: Pieces) -> Job:
    words = (
        'rocm-wheels lock --line "$LINE" --platform "$PLATFORM" --rocm-version "$ROCM" --python "$PYTHONS"'
        f' --local-version "$LOCAL_VERSION" --name-torch -o {LOCK}'
    )
    given = {name: _SELECTED[name] for name in ("LINE", "PLATFORM", "ROCM", "PYTHONS")}
    given["LOCAL_VERSION"] = "${{ inputs.local_version }}"
    return job(
        HOSTED_RUNNER,
        30,
        [
            *pieces.begin(),
            matrix_step(**_ROWS),
            run("lock", words, given),
            pieces.upload(f"lock-{OF_LINE}", LOCK),
        ],
        outputs=matrix_outputs(*_ROWS),
    )


def _sources(pieces: Pieces) -> Job:
    return job(
        "${{ matrix.builder }}",
        "${{ matrix.minutes }}",
        [
            *pieces.begin(image="build_image"),
            pieces.download(f"lock-{OF_LINE}"),
            run("check out, patch, hipify", f"rocm-wheels checkout --lock {LOCK} --repo sources"),
            run("pack", f"rocm-wheels sources pack {SOURCES} --repo sources"),
            pieces.upload(f"sources-{OF_LINE}", SOURCES, days=3),
        ],
        needs=["lock"],
        strategy=each("line", of="lock"),
        container=_container(),
    )


def _shared(pieces: Pieces) -> Job:
    return job(
        "${{ matrix.builder }}",
        "${{ matrix.minutes }}",
        [
            *_with_sources(pieces),
            pieces.restore_cache(),
            run("build what all families share", _BUILD, _build_environment()),
            pieces.upload("shared-${{ matrix.name }}", "wheels/*.whl"),
        ],
        needs=["lock", "sources"],
        if_="${{ needs.lock.outputs.pythons_count != '0' }}",
        name="shared (${{ matrix.name }})",
        strategy=each("pythons", of="lock"),
        container=_container(),
    )


def _cells(pieces: Pieces, which: str) -> Job:
    """Return the job of the first cells, which fill the compiler cache, or of the others, which read it.

    The others wait for the first, and go on without it: a cell that fails costs nobody else a night.
    """
    given = {"ROCM_WHEELS_TRITON_WHEEL": "${{ matrix.given != '' && 'shared' || '' }}"}
    steps = [
        *_with_sources(pieces),
        pieces.restore_cache(),
        when(pieces.download("shared-${{ matrix.shared }}", "shared"), "${{ matrix.given != '' }}"),
        run("build", _BUILD, {**_build_environment(), **given}),
        pieces.upload("wheels-${{ matrix.name }}", "${{ matrix.wheels }}"),
    ]
    counted = f"needs.lock.outputs.{which}_count != '0'"
    condition = f"!cancelled() && needs.sources.result == 'success' && {counted}"
    return job(
        "${{ matrix.builder }}",
        "${{ matrix.minutes }}",
        [*steps, pieces.save_cache()] if which == "first" else steps,
        needs=["lock", "sources", "shared", *(["first"] if which == "others" else [])],
        if_=expression(condition),
        name="build (${{ matrix.name }})",
        strategy=each(which, of="lock"),
        container=_container(),
    )


def _companions(pieces: Pieces) -> Job:
    """Return the job that builds what serves every family, against the torch of one, for targets of all.

    It is apart from the cell whose torch that is: where it fails, it alone is done again, and no torch; and
    where that cell has failed, another's torch does.
    """
    torch = pieces.download("wheels-${{ matrix.torch }}", "torch")
    reserve = pieces.download("wheels-${{ matrix.reserve }}", "torch")
    one_or_other = {"id": "torch", "continue-on-error": "${{ matrix.reserve != '' }}"}
    return job(
        "${{ matrix.builder }}",
        "${{ matrix.minutes }}",
        [
            *_with_sources(pieces),
            {**one_or_other, **torch},
            when(reserve, "${{ steps.torch.outcome == 'failure' }}"),
            pieces.restore_cache(),
            run("build against a torch", f"{_BUILD} --pytorch-wheel torch", _build_environment()),
            pieces.upload("companions-${{ matrix.name }}", "${{ matrix.wheels }}"),
        ],
        needs=["lock", "sources", "first", "others"],
        if_=expression(
            "!cancelled() && needs.sources.result == 'success' && needs.lock.outputs.companions_count != '0'"
        ),
        name="companions (${{ matrix.name }})",
        strategy=each("companions", of="lock"),
        container=_container(),
    )


def _with_sources(pieces: Pieces) -> list[Step]:
    return [
        *pieces.begin("${{ matrix.python }}", image="build_image", builds=True),
        pieces.download(f"lock-{OF_LINE}"),
        pieces.download(f"sources-{OF_LINE}"),
        run("unpack", f"rocm-wheels sources unpack {SOURCES} --repo sources"),
    ]


def _build_environment() -> dict[str, str]:
    return {
        "PROJECTS": "${{ matrix.projects }}",
        "PYTHON": "${{ matrix.python }}",
        "TARGETS": "${{ matrix.targets }}",
        "EXTRAS": "${{ matrix.extras }}",
        "ROCM_INDEX": "${{ inputs.rocm_index }}",
        "CCACHE_DIR": CCACHE,
    }


def _container() -> dict[str, Noted | str]:
    """Return the container of a job that builds; with an empty image there is none (actions/runner#2235)."""
    return {"image": Noted("${{ inputs.build_image }}", GIVEN_BY_DIGEST), "options": AS_ROOT}


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


_STORE: dict[str, tuple[str, Any]] = {
    "store": ("store of releases: s3://bucket/prefix, or a folder of machines that share one", ...),
    "channel": ("channel whose gate judges: nightly, prerelease or stable; empty: none does", ...),
    "promote": ("whether to show on the channel what its gate lets pass", False),
    "test_image": ("image to test in, by digest; empty: on the machine itself", ""),
}
_SET = {
    "family": ("what the set is of: a GPU family, or multi-arch", ...),
    "stager": ("label of the machine that stages it, which has the disk for all its wheels", ...),
    **{name: about for name, about in GIVEN.items() if name not in {"build_image", "local_version"}},
    **_STORE,
}
_SAVING = {"save_cache": ("whether what is built is trusted to fill the compiler cache of others", True)}
_CHANNEL = {"CHANNEL": "${{ inputs.channel }}"}
_FOUND = "--from verify.json --from resolve-check.json --wheels wheels"
GATE = f'rocm-wheels gate {ONE} --channel "$CHANNEL" --explain'
PROMOTE = f'rocm-wheels promote {ONE} --channel "$CHANNEL"'


def release_set(pieces: Pieces) -> Workflow:
    """Return ``release-set.yml``."""
    staged = "!cancelled() && needs.stage.outputs.set != ''"
    return {
        "name": "release a set",
        "on": {"workflow_call": {"inputs": inputs(_SET)}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "stage": _stage(pieces),
            "test": smoke_job(pieces, staged),
            "tests": torch_job(pieces, staged),
            "results": results_job(pieces, staged),
            "gate": _gate(pieces, staged),
            "promote": _promote(pieces),
        },
    }


def release_line(pieces: Pieces) -> Workflow:
    """Return ``release-line.yml``.

    It asks for the sets itself: whether a called workflow of which a job failed has outputs is said nowhere,
    and one build that fails keeps no other set from its release.
    """
    handed = {name: expression(f"inputs.{name}") for name in GIVEN}
    own = {name: expression(f"inputs.{name}") for name in _SET}
    rows = {name: expression(f"matrix.{name}") for name in ("family", "stager", "families", "pythons")}
    planned = "needs.plan.result == 'success'"
    return {
        "name": "release a line",
        "on": {"workflow_call": {"inputs": inputs({**GIVEN, **_STORE, **_SAVING})}},
        "permissions": {},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": job(
                HOSTED_RUNNER,
                15,
                [*pieces.begin(), matrix_step(sets="sets")],
                outputs=matrix_outputs("sets"),
            ),
            "build": calling(
                "build-line.yml",
                {**handed, "save_cache": "${{ inputs.save_cache }}"},
                {"contents": "read"},
                name="build",
            ),
            "set": calling(
                "release-set.yml",
                {**own, **rows},
                STORE_AND_ATTEST,
                name="${{ matrix.name }}",
                needs=["plan", "build"],
                if_=expression(f"!cancelled() && {planned} && needs.plan.outputs.sets_count != '0'"),
                strategy=each("sets", of="plan"),
            ),
        },
    }


def _stage(pieces: Pieces) -> Job:
    """Return the first job, which says that it begins though a cell was not built.

    Whether success() in a called workflow looks at what its caller waited for is said nowhere.
    """
    wheels = f'wheels/*.whl --lock {LOCK} --family "$FAMILY" --layout "$LAYOUT"'
    stage = f'rocm-wheels stage "$STORE" {wheels} --outputs'
    own = {name: STAGED[name] for name in ("STORE", "FAMILY")}
    this = {**own, "SET": "${{ steps.stage.outputs.set }}"}
    done = "${{ !cancelled() && steps.stage.outcome == 'success' }}"
    attest = pieces.uses("actions/attest-build-provenance", subject_path="wheels/*.whl")
    return job(
        "${{ inputs.stager }}",
        120,
        [
            *pieces.begin(s3=True),
            matrix_step(tested="tested", torch_tested="torch_tested"),
            pieces.download(f"lock-{OF_LINE}"),
            pieces.download_all("wheels-${{ inputs.family }}-cp*-" + OF_LINE, "wheels"),
            pieces.download_all(f"shared-cp*-{OF_LINE}", "wheels"),
            pieces.download_all(f"companions-cp*-{OF_LINE}", "wheels"),
            when(attest, "${{ startsWith(inputs.store, 's3://') }}"),
            pieces.credentials(),
            run("stage", stage, {**own, "LAYOUT": "${{ inputs.layout }}"}, id="stage"),
            run("verify", "rocm-wheels verify wheels/*.whl --json > verify.json", if_=done),
            run(
                "what installers would pick",
                'rocm-wheels resolve-check "$INDEX" wheels/*.whl --json > resolve-check.json',
                {"INDEX": "${{ steps.stage.outputs.index }}"},
                if_=done,
            ),
            run(
                "write it down",
                f"rocm-wheels evidence add {ONE} {_FOUND}",
                this,
                if_=done,
            ),
        ],
        permissions=STORE_AND_ATTEST,
        if_="${{ !cancelled() }}",
        outputs={
            "set": "${{ steps.stage.outputs.set }}",
            "index": "${{ steps.stage.outputs.index }}",
            **matrix_outputs("tested", "torch_tested"),
        },
    )


def _gate(pieces: Pieces, staged: str) -> Job:
    return job(
        HOSTED_RUNNER,
        20,
        [*pieces.begin(s3=True), pieces.credentials(), run("gate", GATE, {**STAGED, **_CHANNEL})],
        permissions=STORE,
        needs=["stage", "results"],
        if_=expression(f"{staged} && inputs.channel != ''"),
    )


def _promote(pieces: Pieces) -> Job:
    return job(
        HOSTED_RUNNER,
        60,
        [*pieces.begin(s3=True), pieces.credentials(), run("promote", PROMOTE, {**STAGED, **_CHANNEL})],
        permissions=STORE,
        needs=["stage", "gate"],
        if_="${{ !cancelled() && inputs.promote && needs.gate.result == 'success' }}",
        environment="${{ inputs.channel }}",
        concurrency=one_after_another("promote-${{ inputs.family }}"),
    )


def promote_by_hand(pieces: Pieces, families: list[str], channels: list[str]) -> Workflow:
    """Return ``promote.yml``: somebody shows a staged set on a channel, once its gate lets it pass."""
    given: dict[str, tuple[str, Any]] = {
        "set": ("the set, or how its id begins", ...),
        "family": ("its GPU family, or multi-arch", (*families, MULTI_ARCH)),
        "channel": ("where to show it", tuple(channels)),
        "store": ("another store than the usual one", ""),
    }
    named = {
        "STORE": "${{ inputs.store || vars.ROCM_WHEELS_STORE }}",
        "SET": "${{ inputs.set }}",
        "FAMILY": "${{ inputs.family }}",
        **_CHANNEL,
    }
    steps: list[Step] = [
        *pieces.begin(s3=True),
        when(_always(pieces), "${{ vars.ROCM_WHEELS_STORE_ROLE != '' }}"),
    ]
    return {
        "name": "promote",
        "run-name": "promote ${{ inputs.set }} to ${{ inputs.channel }}",
        "on": {"workflow_dispatch": {"inputs": inputs(given, by_hand=True)}},
        "permissions": {},
        "concurrency": one_after_another("promote-${{ inputs.family }}"),
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "gate": job(HOSTED_RUNNER, 20, [*steps, run("gate", GATE, named)], permissions=STORE),
            "promote": job(
                HOSTED_RUNNER,
                60,
                [*steps, run("promote", PROMOTE, named)],
                permissions=STORE,
                needs=["gate"],
                environment="${{ inputs.channel }}",
            ),
        },
    }


def _always(pieces: Pieces) -> Step:
    step = pieces.credentials()
    return {key: value for key, value in step.items() if key != "if"}


_CHOSEN: dict[str, tuple[str, Any]] = {
    "lines": ("torch lines, by spaces; empty: those of the policy", ""),
    "families": ("GPU families, by spaces; empty: those of the policy", ""),
    "pythons": ("Pythons, by spaces; empty: those of the policy", ""),
    "platform": ("linux or windows; empty: both", ""),
    "layout": ("per-family or multi-arch; empty: that of the policy", ""),
    "rocm_version": ("ROCm; empty: the newest that AMD has with each line", ""),
    "rocm_index": ("index of the ROCm packages; empty: the usual one", ""),
    "store": ("store of releases; empty: the usual one", ""),
}
_VARIABLES = {
    f"ROCM_WHEELS_{name.upper()}": f"${{{{ inputs.{name} }}}}"
    for name in ("lines", "families", "pythons", "platform", "layout", "rocm_version")
}
_DEFAULT = "main"
_LINES = "rocm-wheels matrix --format github --trigger {} --rows lines --output lines"
_ROW = {name: f"${{{{ matrix.{name} }}}}" for name in ("line", "platform", "families", "pythons", "layout")}
# wheels of every run have names of their own: a release has final versions, unless somebody says otherwise
_RUN = "{}{{date}}.${{{{ github.run_number }}}}.${{{{ github.run_attempt }}}}"
_OF_LINUX = "${{{{ matrix.platform == 'linux' && vars.ROCM_WHEELS_{} || '' }}}}"


@dataclass(frozen=True)
class Usual:
    """What holds where nobody says otherwise: the address of the index of ROCm's packages."""

    rocm_index: str

    def index(self, *, chosen: bool) -> str:
        """Return the index: what somebody ``chosen`` by hand, the repository's variable, or the usual one."""
        return _first_of("rocm_index", f"'{self.rocm_index}'", chosen=chosen)


def nightly(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``nightly.yml``: every line of the night; what its gate lets pass is shown.

    A set of ``multi-arch`` for families that somebody chose is not: whoever has another GPU would get it as
    the newest, without code for it.
    """
    about = "show on the channel nightly what its gate lets pass; never multi-arch for chosen families"
    given = {**_CHOSEN, "promote": (about, True)}
    on = {"schedule": [{"cron": "17 1 * * *"}], "workflow_dispatch": {"inputs": inputs(given)}}
    whole = f"(matrix.layout != '{MULTI_ARCH}' || inputs.families == '')"
    shown = expression(f"github.event_name == 'schedule' || inputs.promote && {whole}")
    return _releasing(pieces, usual, "nightly", on, _asked("nightly"), channel="nightly", promote=shown)


def release(pieces: Pieces, usual: Usual, channels: list[str]) -> Workflow:
    """Return ``release.yml``: builds, stages and tests; somebody promotes."""
    given = {
        **_CHOSEN,
        "local_version": ("part of all versions before +rocm…, such as second; empty: none", ""),
        "channel": ("channel whose gate judges", tuple(channels)),
    }
    on = {"workflow_dispatch": {"inputs": inputs(given, by_hand=True)}}
    judged = "${{ inputs.channel }}"
    return _releasing(pieces, usual, "release", on, _asked("release"), channel=judged, promote=False)


def presubmit(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``presubmit.yml``: the cheapest cells of what a pull request touches; no store, no secrets.

    What is checked out is the pull request merged into its base, which is the first parent. The base that the
    event names is older where others were merged meanwhile: their changes would count as this one's.
    """
    command = _LINES.format("presubmit --since HEAD~1 --cheapest")
    given = {
        **_called("presubmit"),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": usual.index(chosen=False),
        "save_cache": False,
    }
    return {
        "name": "presubmit",
        "on": {"pull_request": None},
        "permissions": {},
        "concurrency": {"group": "presubmit-${{ github.ref }}", "cancel-in-progress": True},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, [run("lines", command, id="lines")], commits=2),
            "build": calling(
                "build-line.yml",
                given,
                {"contents": "read"},
                name="${{ matrix.name }}",
                needs=["plan"],
                **{"if": "${{ needs.plan.outputs.lines_count != '0' }}"},
                strategy=each("lines", of="plan"),
            ),
        },
    }


def postsubmit(pieces: Pieces, usual: Usual) -> Workflow:
    """Return ``postsubmit.yml``: what a push to the default branch touches: built, staged, tested on GPUs.

    Sets are shown on no channel, and no gate is asked, which wants more than a push is tested for: what is in
    the store can be promoted by hand. Each push is a group of its own: a group drops a run that waits when
    another comes, and with it what that push touched.
    """
    before = {"BEFORE": "${{ github.event.before }}"}
    step = run("lines", _LINES.format('postsubmit --since "$BEFORE"'), before, id="lines")
    on = {"push": {"branches": [_DEFAULT]}}
    made = _releasing(pieces, usual, "postsubmit", on, step, channel="", promote=False, commits=0)
    made["concurrency"] = {"group": "postsubmit-${{ github.sha }}", "cancel-in-progress": False}
    return made


def own_tests(pieces: Pieces, pythons: list[str]) -> Workflow:
    """Return ``ci.yml``: the tool's own tests, as the README says them."""
    begin = pieces.begin("${{ matrix.python }}")[:2]
    return {
        "name": "CI",
        "on": {"push": {"branches": [_DEFAULT]}, "pull_request": None},
        "permissions": {},
        "concurrency": {
            "group": "ci-${{ github.event_name == 'push' && github.sha || github.ref }}",
            "cancel-in-progress": True,
        },
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "test": job(
                HOSTED_RUNNER,
                45,
                [*begin, run("test", "bash .ci/run")],
                name="Python ${{ matrix.python }}",
                strategy={"fail-fast": False, "matrix": {"python": pythons}},
            )
        },
    }


def real_chain(pieces: Pieces, python: str) -> Workflow:
    """Return ``real.yml``: every night, ROCm and PyTorch themselves in a root of Debian (tests/real)."""
    return {
        "name": "real",
        "on": {"schedule": [{"cron": "41 3 * * *"}], "workflow_dispatch": None},
        "permissions": {},
        "concurrency": {"group": "real-${{ github.ref }}", "cancel-in-progress": False},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "chain": job(
                HOSTED_RUNNER,
                180,
                [*pieces.begin(python)[:2], run("the chain", "bash tests/real/run")],
            )
        },
    }


def _asked(trigger: str) -> Step:
    return run("lines", _LINES.format(trigger), _VARIABLES, id="lines")


def _releasing(
    pieces: Pieces,
    usual: Usual,
    trigger: str,
    on: dict[str, Any],
    step: Step,
    *,
    channel: str,
    promote: str | bool,
    commits: int = 1,
) -> Workflow:
    chosen = "workflow_dispatch" in on
    store = _first_of("store", chosen=chosen)
    needed = run(
        "what the repository must say",
        "rocm-wheels workflows require ROCM_WHEELS_STORE",
        {"ROCM_WHEELS_STORE": store},
        if_="${{ steps.lines.outputs.lines_count != '0' }}",
    )
    given = {
        **_called(trigger),
        "rocm_version": "${{ matrix.rocm }}",
        "rocm_index": usual.index(chosen=chosen),
        "local_version": "${{ inputs.local_version }}" if trigger == "release" else _RUN.format(trigger),
        "store": store,
        "channel": channel,
        "promote": promote,
        "test_image": _OF_LINUX.format("TEST_IMAGE"),
        "save_cache": trigger == "nightly",  # a cache that others push out helps nobody: GitHub keeps 10 GB
    }
    return {
        "name": trigger,
        "on": on,
        "permissions": {},
        "concurrency": {"group": f"{trigger}-${{{{ github.ref }}}}", "cancel-in-progress": False},
        "defaults": {"run": {"shell": "bash"}},
        "jobs": {
            "plan": _plan(pieces, [step, needed], commits=commits),
            "line": calling(
                "release-line.yml",
                given,
                STORE_AND_ATTEST,
                name="${{ matrix.name }}",
                needs=["plan"],
                **{"if": "${{ needs.plan.outputs.lines_count != '0' }}"},
                strategy=each("lines", of="plan"),
            ),
        },
    }


def _called(trigger: str) -> dict[str, str | bool]:
    assert {"trigger", "build_image", *_ROW} < set(GIVEN)
    return {"trigger": trigger, **_ROW, "build_image": _OF_LINUX.format("BUILD_IMAGE")}


def _first_of(name: str, *more: str, chosen: bool) -> str:
    """Return the input of a name, where there are inputs, else the repository's variable, else ``more``."""
    given = [f"inputs.{name}"] if chosen else []
    return expression(" || ".join([*given, f"vars.ROCM_WHEELS_{name.upper()}", *more]))


def _plan(pieces: Pieces, steps: Sequence[Step], *, commits: int = 1) -> Job:
    return job(
        HOSTED_RUNNER,
        15,
        [*pieces.begin(commits=commits), *steps],
        outputs={name: f"${{{{ steps.lines.outputs.{name} }}}}" for name in ("lines", "lines_count")},
    )
