"""``workflows``: the workflows of GitHub, written from our tables."""

from __future__ import annotations

from pathlib import Path

import click

from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.paths import GivenPath
from rocm_wheels.core import DataError, UsageError, format_command, format_count, log_note


@click.group("workflows")
def group() -> None:
    """Write the workflows of GitHub: what they hold is in our tables, what they decide in our commands."""


@group.command("write")
@click.option(
    "--dir",
    "folder",
    type=GivenPath(file_okay=False),
    help="Where they go [default: .github/workflows in the clone].",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; fail when what is there is not what would be written."
)
@click.option(
    "--allow-unresolved",
    is_flag=True,
    help="Write them with actions whose commit nobody has read; they say so, and GitHub refuses to run them.",
)
def write(folder: Path | None, check: bool, allow_unresolved: bool) -> None:
    """Write all workflows. Actions are pinned by commits (data/actions.yaml)."""
    from rocm_wheels.ci import COMMAND, differing, require_resolved, texts, write_all
    from rocm_wheels.models import load_actions_table, load_ci_table

    place, actions = folder or _find_folder(), load_actions_table()
    if not allow_unresolved:
        require_resolved(actions)
    expected = texts(load_ci_table(), actions)
    if not check:
        changed = write_all(place, expected)
        for path in changed:
            click.echo(f"{path}{'' if path.exists() else ' (deleted)'}")
        log_note(f"{format_count(len(expected), 'workflow')} in {place}, {len(changed)} changed")
        return
    place_option = f" {format_command(['--dir', folder])}" if folder else ""
    if differences := differing(place, expected):
        raise DataError("\n".join(differences), tip=f"`{COMMAND}{place_option}` writes them anew")
    log_note(f"{format_count(len(expected), 'workflow')} in {place}: up to date")


@group.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Print a workflow: nightly, build-line.yml, …."""
    from rocm_wheels.ci import texts
    from rocm_wheels.core import suggest_name
    from rocm_wheels.models import load_actions_table, load_ci_table

    workflow_texts = texts(load_ci_table(), load_actions_table())
    file, names = (
        name if name.endswith(".yml") else f"{name}.yml",
        [file_name.removesuffix(".yml") for file_name in workflow_texts],
    )
    if file not in workflow_texts:
        raise UsageError(
            f"there is no workflow {name!r}{suggest_name(name.removesuffix('.yml'), names)}",
            tip=f"there are {', '.join(names)}",
        )
    click.echo(workflow_texts[file], nl=False)


@group.command("require")
@click.argument("names", nargs=-1, required=True, metavar="VARIABLE...")
def require(names: tuple[str, ...]) -> None:
    """Fail where a repository does not say what its workflows need, before machines have worked for it."""
    env = read_environment()
    if missing := [name for name in names if not env.get(name, "").strip()]:
        raise UsageError(
            f"this repository does not say {' and '.join(missing)}",
            tip="set it in Settings, Secrets and variables, Actions, Variables; or give it to a run by hand",
        )


def _find_folder() -> Path:
    from rocm_wheels.core import get_project_home, is_clone

    if not is_clone():
        raise UsageError(
            "this is no clone of the project, where workflows have their place", tip="give --dir"
        )
    return get_project_home() / ".github" / "workflows"
