"""``rocm-wheels compat explain``: yes, no or unknown, and every fact behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocm_wheels.cli.compat_words import read_gpu, read_python, read_version

if TYPE_CHECKING:
    from packaging.version import Version

    from rocm_wheels.model.compat.explain import Explanation, Statement

_MARKS = {"yes": "+", "no": "-", "unknown": "?", "": " "}


@click.command("explain")
@click.option("--torch", required=True, metavar="VERSION", help="A torch: a release or a series (2.13).")
@click.option("--rocm", required=True, metavar="VERSION", help="A ROCm: a release or a series (7.14).")
@click.option(
    "--gfx", "gpu", required=True, metavar="TARGET", help="A GPU: gfx1100, or a product (RX 7900 XTX)."
)
@click.option("--python", metavar="VERSION", help="A Python (3.12, 3.14t).")
@click.option("--platform", type=click.Choice(["linux", "windows"]), default="linux", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the answer and every fact as JSON.")
def explain_command(
    *, torch: str, rocm: str, gpu: str, python: str | None, platform: str, as_json: bool
) -> None:
    """Say whether a torch with a ROCm serves a GPU, and who says so.

    Each fact is for (+), against (-) or leaves it open (?), with kind, day of reading and source.
    """
    from rocm_wheels.model.compat.explain import explain_compatibility

    target, version = read_gpu(gpu), read_version(torch, "--torch")
    explanation = explain_compatibility(
        version,
        read_version(rocm, "--rocm"),
        target,
        None if python is None else read_python(python),
        platform,
    )
    if as_json:
        import json

        click.echo(json.dumps(explanation_as_json(explanation, version, platform), indent=1))
    else:
        click.echo(describe_explanation(explanation, version, platform))


def describe_explanation(explanation: Explanation, torch: Version, platform: str) -> str:
    """Return the answer, the facts, the known issues, and where to install it from."""
    from rocm_wheels.model.compat.explain import make_issue_statement

    lines = [f"{explanation.answer}: {explanation.summary}"]
    lines += [_describe_statement(fact) for fact in explanation.statements]
    if explanation.issues:
        lines.append("known issues:")
        lines += [_describe_statement(make_issue_statement(fact), "!") for fact in explanation.issues]
    for row in _builds_as_json(explanation, torch, platform):
        with_ = ", ".join(f"{name} {version}" for name, version in row["companions"].items())
        triton = f"; triton is called {row['triton']}" if row["triton"] else ""
        lines.append(f"from {row['url']}" + (f" with {with_}" if with_ else "") + triton)
    return "\n".join(lines)


def explanation_as_json(explanation: Explanation, torch: Version, platform: str) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"answer", "summary", "facts": [{"says", "text", "kind", "source", "retrieved", "note"}],
    "issues": [...the same], "builds": [{"index", "url", "torch", "rocm", "companions", "triton"}]}``.
    """
    from rocm_wheels.model.compat.explain import make_issue_statement

    return {
        "answer": explanation.answer,
        "summary": explanation.summary,
        "facts": [_statement_as_json(fact) for fact in explanation.statements],
        "issues": [_statement_as_json(make_issue_statement(fact)) for fact in explanation.issues],
        "builds": _builds_as_json(explanation, torch, platform),
    }


def _builds_as_json(explanation: Explanation, torch: Version, platform: str) -> list[dict[str, Any]]:
    from rocm_wheels.model.compat.builds import get_triton_name

    return [
        {
            "index": build.index.name,
            "url": build.index.url,
            "torch": str(build.torch),
            "rocm": str(build.rocm),
            "companions": {name: str(version) for name, version in build.companions.items()},
            "triton": get_triton_name(torch, build.index, platform=platform),
        }
        for build in explanation.builds
    ]


def _statement_as_json(statement: Statement) -> dict[str, Any]:
    return {
        "says": statement.answer or None,
        "text": statement.text,
        "kind": statement.kind,
        "source": statement.source,
        "retrieved": statement.retrieved.isoformat(),
        "note": statement.note,
    }


def _describe_statement(statement: Statement, mark: str | None = None) -> str:
    note = f" ({statement.note})" if statement.note else ""
    return f"  {mark or _MARKS[statement.answer]} {statement.text}{note}\n      {statement.kind}, {statement.retrieved}: {statement.source}"
