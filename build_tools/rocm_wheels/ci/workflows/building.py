"""``build-line.yml``: a torch line on a platform, from one lock to the wheels of every cell.

In the layout ``multi-arch`` the families of a Python are one cell here, with the code of all of them.
What cells share is done once: a lock, checkouts with hipify, what all families of a Python have (before
there is a torch, and after), and a first cell that fills the compiler cache. None of its jobs may write
anything but artifacts and, where it is told so, the compiler cache: it runs the code of other projects.
"""

from __future__ import annotations

from rocm_wheels.ci.workflows.pieces import (
    AS_ROOT,
    CCACHE,
    GIVEN_BY_DIGEST,
    Job,
    Pieces,
    Step,
    Workflow,
    each,
    expression,
    inputs,
    job,
    run,
    when,
)
from rocm_wheels.ci.workflows.text import Noted
from rocm_wheels.model.ci import HOSTED_RUNNER

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
