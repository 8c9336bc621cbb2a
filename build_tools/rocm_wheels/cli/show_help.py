"""``help``: the help of a command, and the list of all commands."""

from __future__ import annotations

import click

from rocm_wheels.cli import catalogue, command, main, record_keys


@command.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@catalogue.ALL.but(help="List all commands.")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a COMMAND or of rocm-wheels. `help recipe` also shows a recipe's keys.

    \b
    Examples:
      rocm-wheels help --all
      rocm-wheels help recipe
    """
    if everything and words:
        raise click.UsageError("--all lists the commands, and a COMMAND is named: give one of both")
    shown: click.Command = main.cli
    context = ctx.find_root()
    for word in words:
        if not isinstance(shown, command.Group):
            raise click.UsageError(f"`{context.command_path}` has no commands below it")
        _, found, _ = shown.resolve_command(context, [word])
        assert found is not None  # resolve_command fails for a name of none
        shown, context = found, click.Context(found, parent=context, info_name=word)
    if everything:
        formatter = context.make_formatter()
        main.cli.write_commands(context, formatter, main.SECTIONS)
        click.echo(formatter.getvalue().strip("\n"))
    else:
        click.echo(shown.get_help(context))
        if words == ("recipe",):
            from rocm_wheels.models import project

            click.echo(f"\n{record_keys.format_keys(project.Project)}")
