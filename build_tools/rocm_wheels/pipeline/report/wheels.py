"""The wheels of a run, and for which targets each library in them holds device code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocm_wheels.pipeline.record.reading import Run, StepView
from rocm_wheels.pipeline.record.vocabulary import Event
from rocm_wheels.pipeline.report.markup import Markup, join, tag
from rocm_wheels.pipeline.report.tables import code, table
from rocm_wheels.pipeline.summary import human_size

_ALONE = 30  # libraries of a wheel; of more, those of one folder with the same targets share a row


def wheels_part(run: Run) -> Markup | None:
    """List every file that the steps made, or had made before, with its size and digest."""
    rows = []
    total = 0
    for step, output in _outputs(run):
        total += output.get("size") or 0
        targets = output.get("targets")
        if targets is None:
            targets = step.begun.get("targets")
        rows.append(
            [
                join(
                    code(_name(output)),
                    tag("span", f"sha256 {output.get('sha256') or '?'}", class_="digest"),
                    tag("span", "made before this run", class_="of") if step.state == "skipped" else None,
                ),
                human_size(output.get("size")),
                output.get("version") or step.begun.get("version") or "",
                "not read" if targets is None else ", ".join(_in_order(targets)) or "none",
            ]
        )
    if not rows:
        return None
    where = run.begun.get("output")
    return join(
        tag("p", f"{human_size(total)} in all", join(", in ", code(where)) if where else None, "."),
        table(["file", "size", "version", "targets"], rows, numbers={1}, wide={0, 3}),
    )


def device_code_part(run: Run) -> Markup | None:
    """Show which library holds device code for which target."""
    held = [(output, _grouped(output["libraries"])) for _, output in _outputs(run) if output.get("libraries")]
    if not held:
        return None
    asked = run.begun.get("targets") or []
    found = {target for _, libraries in held for _, targets in libraries for target in targets}
    columns = [*asked, *_in_order(found - set(asked))]
    rows = []
    for output, libraries in held:
        wheel = _name(output).partition("-")[0]
        for member, targets in libraries:
            cells = [_cell(target in targets, wanted=target in asked) for target in columns]
            rows.append([join(tag("span", wheel, class_="of"), code(member)), *cells])
    head = ["library", *[tag("span", target, class_="upright") for target in columns]]
    extra = _in_order(found - set(asked)) if asked else []
    said = f"Asked for {', '.join(asked)}." if asked else None
    return join(
        tag("p", said, f" Found besides: {', '.join(extra)}." if extra else None) if said or extra else None,
        table(head, rows, label="Device code: libraries by targets", class_="grid"),
        tag("p", "✓ holds device code for the target; – holds none.", class_="note"),
    )


def _outputs(run: Run) -> list[tuple[StepView, Event]]:
    return [(step, output) for step in run.steps.values() for output in step.outputs]


def _name(output: Event) -> str:
    return str(output.get("path") or "?").replace("\\", "/").rpartition("/")[2]


def _cell(held: bool, *, wanted: bool) -> Markup:
    return tag("span", "✓" if held else "–", class_="held" if held else "lacking" if wanted else "quiet")


def _grouped(libraries: Mapping[str, Sequence[str]]) -> list[tuple[str, frozenset[str]]]:
    """Return a row a library; of very many, a row for those of one folder with the same targets."""
    if len(libraries) <= _ALONE:
        return [(member, frozenset(targets or ())) for member, targets in sorted(libraries.items())]
    shared: dict[tuple[str, frozenset[str]], list[str]] = {}
    for member, targets in sorted(libraries.items()):
        shared.setdefault((member.rpartition("/")[0], frozenset(targets or ())), []).append(member)
    return [
        (members[0] if len(members) == 1 else f"{folder}/ ({len(members):,} files)", targets)
        for (folder, targets), members in shared.items()
    ]


def _in_order(targets: object) -> list[str]:
    assert isinstance(targets, (list, set, frozenset, tuple))
    return sorted(targets, key=lambda name: (len(name), name))
