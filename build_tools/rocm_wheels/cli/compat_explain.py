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
def command(*, torch: str, rocm: str, gpu: str, python: str | None, platform: str, as_json: bool) -> None:
    """Say whether a torch with a ROCm serves a GPU, and who says so.

    Each fact is for (+), against (-) or leaves it open (?), with kind, day of reading and source.
    """
    from rocm_wheels.model.compat.explain import explain

    target, version = read_gpu(gpu), read_version(torch, "--torch")
    found = explain(
        version,
        read_version(rocm, "--rocm"),
        target,
        None if python is None else read_python(python),
        platform,
    )
    if as_json:
        import json

        click.echo(json.dumps(as_document(found, version, platform), indent=1))
    else:
        click.echo(as_text(found, version, platform))


def as_text(found: Explanation, torch: Version, platform: str) -> str:
    """Return the answer, the facts, the known issues, and where to install it from."""
    from rocm_wheels.model.compat.explain import issue_statement

    lines = [f"{found.answer}: {found.summary}"]
    lines += [_line(one) for one in found.statements]
    if found.issues:
        lines.append("known issues:")
        lines += [_line(issue_statement(one), "!") for one in found.issues]
    for row in _offers(found, torch, platform):
        with_ = ", ".join(f"{name} {version}" for name, version in row["companions"].items())
        triton = f"; triton is called {row['triton']}" if row["triton"] else ""
        lines.append(f"from {row['url']}" + (f" with {with_}" if with_ else "") + triton)
    return "\n".join(lines)


def as_document(found: Explanation, torch: Version, platform: str) -> dict[str, Any]:
    """Return what ``--json`` prints. Keys are added in later versions, never renamed.

    ``{"answer", "summary", "facts": [{"says", "text", "kind", "source", "retrieved", "note"}],
    "issues": [...the same], "builds": [{"index", "url", "torch", "rocm", "companions", "triton"}]}``.
    """
    from rocm_wheels.model.compat.explain import issue_statement

    return {
        "answer": found.answer,
        "summary": found.summary,
        "facts": [_fact(one) for one in found.statements],
        "issues": [_fact(issue_statement(one)) for one in found.issues],
        "builds": _offers(found, torch, platform),
    }


def _offers(found: Explanation, torch: Version, platform: str) -> list[dict[str, Any]]:
    from rocm_wheels.model.compat.builds import triton_for

    return [
        {
            "index": one.index.name,
            "url": one.index.url,
            "torch": str(one.torch),
            "rocm": str(one.rocm),
            "companions": {name: str(version) for name, version in one.companions.items()},
            "triton": triton_for(torch, one.index, platform=platform),
        }
        for one in found.builds
    ]


def _fact(one: Statement) -> dict[str, Any]:
    return {
        "says": one.says or None,
        "text": one.text,
        "kind": one.kind,
        "source": one.source,
        "retrieved": one.retrieved.isoformat(),
        "note": one.note,
    }


def _line(one: Statement, mark: str | None = None) -> str:
    note = f" ({one.note})" if one.note else ""
    return f"  {mark or _MARKS[one.says]} {one.text}{note}\n      {one.kind}, {one.retrieved}: {one.source}"
