"""The wheels of a run, and for which targets each library in them holds device code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.pipeline.record.reading import RecordedRun, RecordedStep
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join_markup, make_tag
from rocm_wheels.pipeline.report.tables import make_code, make_table
from rocm_wheels.pipeline.summary import format_size

_MAX_SINGLE_ROWS = 30  # libraries of a wheel; of more, those of one folder with the same targets share a row


def render_wheels(run: RecordedRun) -> Markup | None:
    """List every file that the steps made, or had made before, with its size and digest."""
    rows = []
    total = 0
    for step, output in _list_outputs(run):
        total += output.get("size") or 0
        targets = output.get("targets")
        if targets is None:
            targets = step.begun.get("targets")
        rows.append(
            [
                join_markup(
                    make_code(_read_output_name(output)),
                    make_tag("span", f"sha256 {output.get('sha256') or '?'}", class_="digest"),
                    make_tag("span", "made before this run", class_="of")
                    if step.state == "skipped"
                    else None,
                ),
                format_size(output.get("size")),
                output.get("version") or step.begun.get("version") or "",
                "not read" if targets is None else ", ".join(_sort_targets(targets)) or "none",
            ]
        )
    if not rows:
        return None
    where = run.begun.get("output")
    return join_markup(
        make_tag(
            "p",
            f"{format_size(total)} in all",
            join_markup(", in ", make_code(where)) if where else None,
            ".",
        ),
        make_table(["file", "size", "version", "targets"], rows, numbers={1}, wide={0, 3}),
    )


def render_device_code(run: RecordedRun) -> Markup | None:
    """Show which library holds device code for which target."""
    wheel_libraries = [
        (output, _group_libraries(output["libraries"]))
        for _, output in _list_outputs(run)
        if output.get("libraries")
    ]
    if not wheel_libraries:
        return None
    requested = run.begun.get("targets") or []
    present = {target for _, libraries in wheel_libraries for _, targets in libraries for target in targets}
    columns = [*requested, *_sort_targets(present - set(requested))]
    rows = []
    for output, libraries in wheel_libraries:
        wheel = _read_output_name(output).partition("-")[0]
        for member, targets in libraries:
            cells = [
                _make_target_cell(target in targets, requested=target in requested) for target in columns
            ]
            rows.append([join_markup(make_tag("span", wheel, class_="of"), make_code(member)), *cells])
    head = ["library", *[make_tag("span", target, class_="upright") for target in columns]]
    extra = _sort_targets(present - set(requested)) if requested else []
    request_text = f"Asked for {', '.join(requested)}." if requested else None
    return join_markup(
        make_tag("p", request_text, f" Found besides: {', '.join(extra)}." if extra else None)
        if request_text or extra
        else None,
        make_table(head, rows, label="Device code: libraries by targets", class_="grid"),
        make_tag("p", "✓ holds device code for the target; – holds none.", class_="note"),
    )


def _list_outputs(run: RecordedRun) -> list[tuple[RecordedStep, Event]]:
    return [(step, output) for step in run.steps.values() for output in step.outputs]


def _read_output_name(output: Event) -> str:
    return str(output.get("path") or "?").replace("\\", "/").rpartition("/")[2]


def _make_target_cell(present: bool, *, requested: bool) -> Markup:
    return make_tag(
        "span", "✓" if present else "–", class_="held" if present else "lacking" if requested else "quiet"
    )


def _group_libraries(libraries: Mapping[str, Sequence[str]]) -> list[tuple[str, frozenset[str]]]:
    """Return a row a library; of very many, a row for those of one folder with the same targets."""
    if len(libraries) <= _MAX_SINGLE_ROWS:
        return [(member, frozenset(targets or ())) for member, targets in sorted(libraries.items())]
    shared: dict[tuple[str, frozenset[str]], list[str]] = {}
    for member, targets in sorted(libraries.items()):
        shared.setdefault((member.rpartition("/")[0], frozenset(targets or ())), []).append(member)
    return [
        (members[0] if len(members) == 1 else f"{folder}/ ({len(members):,} files)", targets)
        for (folder, targets), members in shared.items()
    ]


def _sort_targets(targets: object) -> list[str]:
    assert isinstance(targets, (list, set, frozenset, tuple))
    return sorted(targets, key=lambda name: (len(name), name))
