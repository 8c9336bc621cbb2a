"""Make the pages of the reference while the documentation is built: they are read from the code.

mkdocs calls ``on_config`` and ``on_files``. Nothing that is made here is written into ``pages/``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import click
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from rocm_wheels.audit import checks
from rocm_wheels.audit.definition import AuditCheck
from rocm_wheels.cli import lines, main
from rocm_wheels.core import errors
from rocm_wheels.core.tables import format_markdown_table
from rocm_wheels.models import ci, gfx, lock, project, release_lines, torch_tests
from rocm_wheels.release import channel, policy, store_paths, support, wheel_set
from rocm_wheels.release.evidence import evidence

PROGRAM = "rocm-wheels"
PACKAGE = Path(project.__file__).parents[1]
VARIABLES = Path(__file__).with_name("environment.yaml")
GENERATED: dict[str, Callable[[], str]] = {}  # page: what makes it


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made here into the navigation."""
    reference = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    commands = [{name: page} for name, page in list_command_pages().items()]
    reference[1:1] = [{"Command line": commands}, *GENERATED]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    pages = {page: make() for page, make in GENERATED.items()}
    pages |= {page: format_command_page(name) for name, page in list_command_pages().items()}
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def page(path: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register what makes a page."""

    def register(make: Callable[[], str]) -> Callable[[], str]:
        GENERATED[path] = make
        return make

    return register


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what pages take from the code: ``{{ floors }}`` and such.

    A clone has no pages that are made here: what is linked there is their row in the table of the reference.
    """
    markdown = re.sub(
        r"\bindex\.md#([\w-]+)",
        lambda link: f"{link[1]}.md" if f"reference/{link[1]}.md" in GENERATED else link[0],
        markdown,
    )
    for name, make in FILLED.items():
        if f"{{{{ {name} }}}}" in markdown:
            markdown = markdown.replace(f"{{{{ {name} }}}}", make())
    return markdown


def list_packages() -> dict[str, str]:
    """Return each package with what it is for: the first paragraph of its docstring."""
    docs = {}
    for file in sorted(PACKAGE.glob("*/__init__.py")):
        doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        docs[file.parent.name] = " ".join(doc.split("\n\n")[0].replace("``", "`").split())
    return docs


def format_packages() -> str:
    """Return the packages as a table."""
    rows = [[f"`{name}`", escape_markdown(doc)] for name, doc in list_packages().items()]
    return format_markdown_table(["Package", "Its job"], rows)


def format_floors() -> str:
    """Return the floors, as the contract of import-linter has them."""
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    return "```text\n" + "\n".join(contract["layers"]) + "\n```\n"


def list_needs() -> str:
    """Return what blocks of code may need, from the test that knows it."""
    text = (PACKAGE.parents[1] / "tests" / "worlds" / "docs_pages.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    values = [
        node.value for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NEEDS"
    ]  # fmt: skip
    return ", ".join(f"`{name}`" for name in ast.literal_eval(values[0]))


def _describe_need(check: AuditCheck) -> str:
    if check.kind == "set":
        return " (of a set)"
    return " (needs a recipe)" if check.needs_recipe else ""


def list_audit_checks() -> str:
    """Return the checks of wheels and sets as a table."""
    rows = [
        [
            f"{check.id} `{check.name}`",
            "note" if check.severity == "info" else check.severity,
            escape_markdown(check.looks_for + _describe_need(check)),
            escape_markdown(f"{check.why} {check.fix}"),
        ]
        for check in checks.ALL_CHECKS
    ]
    return format_markdown_table(["Check", "At most", "Looks for", "Why, and what to do"], rows)


FILLED = {
    "audit_checks": list_audit_checks,
    "packages": format_packages,
    "package_count": lambda: str(len(list_packages())),
    "floors": format_floors,
    "needs": list_needs,
}


# Commands, from click's own tree


def list_command_pages() -> dict[str, str]:
    """Return the page of each command of the top level that ``--help`` shows."""
    context = click.Context(main.cli, info_name=PROGRAM)
    commands = ((name, main.cli.get_command(context, name)) for name in main.cli.list_commands(context))
    shown = [name for name, command in commands if command and not command.hidden]
    # index.md is no page of its own, but that of its folder
    return {name: f"reference/cli/{'index-command' if name == 'index' else name}.md" for name in shown}


def walk_commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command, then what is below it; hidden ones are left out."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from walk_commands(below, click.Context(below, info_name=name, parent=context))


def format_command_page(name: str) -> str:
    """Return the page of one command of the top level, with all below it."""
    root = click.Context(main.cli, info_name=PROGRAM)
    command = main.cli.get_command(root, name)
    assert command is not None
    parts = []
    for below, context in walk_commands(command, click.Context(command, info_name=name, parent=root)):
        level = "#" if below is command else "##"
        title = context.command_path if below is not command else f"{PROGRAM} {name}"
        usage = " ".join(below.collect_usage_pieces(context))
        parts += [
            f"{level} {title}\n",
            f"```text\n{context.command_path} {usage}\n```\n",
            format_help_text(below.help or ""),
            format_options(below, context),
            format_help_text(below.epilog or ""),
        ]
    return "\n".join(parts)


def format_help_text(text: str) -> str:
    """Return help as Markdown: a paragraph that click is told not to wrap becomes a block of code."""
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            parts.append(f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```")
        else:
            parts.append(escape_markdown(paragraph))
    return "\n\n".join(parts) + "\n"


def format_options(command: click.Command, context: click.Context) -> str:
    """Return the options as a table; hidden ones are left out."""
    rows = []
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            names, text = record
            rows.append([f"<code>{escape_html(names)}</code>", escape_markdown(" ".join(text.split()))])
    return format_markdown_table(["Option", "What it does"], rows)


def escape_html(text: str) -> str:
    """Return text in which no character is markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


def escape_markdown(text: str) -> str:
    """Return text in which only `code` is markup."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", piece).replace("<", "&lt;")
        for piece in pieces
    )


# Records, from pydantic


def list_records(model: type[Any]) -> list[type[Any]]:
    """Return a record and all records inside it, each once, in the order of their fields."""
    records = [model]
    for record in records:
        for field in get_fields(record).values():
            records += [inner for inner in list_inner_records(field.annotation) if inner not in records]
    return records


def get_fields(record: type[Any]) -> Mapping[str, Any]:
    """Return the fields of a pydantic model or dataclass."""
    return getattr(record, "model_fields", None) or getattr(record, "__pydantic_fields__", {})


def list_inner_records(annotation: Any) -> Iterator[type[Any]]:
    """Yield the records that an annotation names."""
    if isinstance(annotation, type) and get_fields(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from list_inner_records(argument)


def format_type(annotation: Any) -> str:
    """Return a type as people read it: ``text``, ``list of text``, ``one of a, b``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return format_type(arguments[0])
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(format_type(a) for a in arguments if a is not type(None))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of {format_type(arguments[0])} to {format_type(arguments[1])}"
    if origin is not None:
        return f"list of {format_type(arguments[0])}" if arguments else "list"
    if isinstance(annotation, type) and get_fields(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower().lstrip('_')})"
    plain = {str: "text", int: "number", float: "number", bool: "`true` or `false`", Any: "anything"}
    return plain.get(annotation, f"`{getattr(annotation, '__name__', annotation)}`")


def format_schema(model: type[Any], level: str) -> str:
    """Return the keys of a record and of all inside it."""
    parts = []
    for record in list_records(model):
        rows = [
            [f"`{field.alias or name}`", format_type(field.annotation), format_default(field)]
            for name, field in get_fields(record).items()
        ]
        anchor = record.__name__.lower().lstrip("_")
        doc = inspect.getdoc(record) or ""
        parts += [
            f"{level} {record.__name__.lstrip('_')} {{ #{anchor} }}\n",
            escape_markdown(doc.replace("``", "`")) + "\n",
            format_markdown_table(["Key", "Value", "Default"], rows),
        ]
    return "\n".join(parts)


def format_default(field: Any) -> str:
    """Return what a key is where it is left out."""
    if field.is_required():
        return "**required**"
    default = field.get_default(
        call_default_factory=not getattr(field, "default_factory_takes_validated_data", False)
    )
    if default in (None, (), [], {}, "") or isinstance(default, Mapping):
        return "none"
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"`{shown}`" if isinstance(shown, (str, int, float, PurePath)) else "see below"


@page("reference/release-lines.md")
def make_lines_page() -> str:
    """Return the table of release lines."""
    return f"# Release lines\n\n{format_markdown_table(*lines.tabulate_lines())}\n{lines.LEGEND}\n"


@page("reference/recipe.md")
def make_recipe_page() -> str:
    """Return the page of recipes."""
    head = (
        "# Recipes\n\nA recipe is all there is to say about a project: `<name>.yaml` in any folder. A key"
        " that is not listed here is an error with file, line and column; `rocm-wheels recipe check` says"
        " what else is wrong. Where recipes are read from, and how to write one:"
        " [Add a project](../how-to/add-a-project.md).\n"
    )
    example = (Path(__file__).resolve().parents[1] / "tests/real/bitsandbytes.yaml").read_text(
        encoding="utf-8"
    )
    return f"{head}\nA whole one:\n\n```yaml\n{example}```\n\n{format_schema(project.Project, '##')}"


@page("reference/tables.md")
def make_tables_page() -> str:
    """Return the page of the tables in ``data/``."""
    tables: dict[str, tuple[type[Any], str]] = {
        "release_lines.yaml": (
            release_lines.LineTable,
            "What belongs to each torch.",
        ),
        "gfx_families.yaml": (
            gfx.GfxTable,
            "Targets and families.",
        ),
        "ci.yaml": (ci.CiTable, "What CI builds and tests, and on which machines."),
        "torch_tests.yaml": (
            torch_tests.TorchTestTable,
            "torch's own tests, and which of them are known to fail.",
        ),
        "therock_known_tests.yaml": (
            torch_tests.KnownTestTable,
            "What TheRock knows of torch's tests; written by `build_tools/refresh_known_failures.py`.",
        ),
        "release_policy.yaml": (policy.Policy, "What a set must have passed for a channel."),
    }
    parts = [
        "# Tables\n",
        "The files of `build_tools/rocm_wheels/data/`, typed by pydantic. Every scalar is read as text and"
        " then converted: `3.10` stays `3.10`. Facts name their source.\n",
    ]
    for file, (model, about) in tables.items():
        parts += [f"## {file}\n", f"{about}\n", format_schema(model, "###")]
    return "\n".join(parts)


@page("reference/files.md")
def make_files_page() -> str:
    """Return the page of the documents that are written."""
    documents = {
        "Lock (`sources.lock.json`)": lock.Lock,
        "Set (`set.json`)": wheel_set.SetDocument,
        "Evidence": evidence.Evidence,
        "Channel": channel.Channel,
        "`support.json`": support.SupportDocument,
    }
    parts = ["# Documents\n", "JSON documents that commands write, and others read.\n"]
    for title, model in documents.items():
        parts += [f"## {title}\n", format_schema(model, "###")]
    return "\n".join(parts)


# Exit codes, variables, the layout of a store


@page("reference/exit-codes.md")
def make_exit_codes_page() -> str:
    """Return the page of exit codes, from the classes of errors."""
    by_code: dict[int, list[str]] = {0: ["It worked."]}
    for error in (errors.RocmWheelsError, *errors.RocmWheelsError.__subclasses__()):
        if error is not errors.RocmWheelsError:
            first = (inspect.getdoc(error) or "").splitlines()[0]
            by_code.setdefault(error.exit_code, []).append(f"`{error.__name__}`: {first}")
    rows = [[str(code), "<br>".join(texts)] for code, texts in sorted(by_code.items())]
    return (
        "# Exit codes\n\nEvery command ends with one of these. 1 is a bug and shows a traceback; everything"
        " else is one message, its causes, and mostly a line that begins with `tip:`.\n\n"
        + format_markdown_table(["Code", "Meaning"], rows)
        + "\n`test smoke` and `test torch` pass pytest's own exit codes through. `targets` of a wheel and"
        " other questions end with 0 when they could be answered, whatever the answer is; commands that judge"
        " (`audit`, `set gate`, `doctor`, `test`) end with the code of their class when the answer is no."
        " 141 says that nobody read on (`rocm-wheels audit … | head -1`).\n"
    )


@page("reference/environment.md")
def make_environment_page() -> str:
    """Return the page of environment variables."""
    groups = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))
    parts = [
        "# Environment variables\n",
        "Read once, at the command line, and handed down. An option always goes before a variable.\n",
    ]
    for title, variables in groups.items():
        rows = [[f"`{name}`", text] for name, text in variables.items()]
        parts += [f"## {title}\n", format_markdown_table(["Variable", "What it does"], rows)]
    return "\n".join(parts)


@page("reference/store.md")
def make_store_page() -> str:
    """Return the page of the layout of a store, from the code that names its paths."""
    rows = [
        [f"`{path}`", escape_markdown(text)]
        for _, path, text in list_family_paths(store_paths.FamilyPaths("FAMILY"))
    ]
    return "\n".join(
        (
            "# Layout of a store\n",
            "A store is a folder or a bucket, or a part of one (`s3://bucket/wheels`). What installers have"
            " seen stays where it is until its set is pruned.\n",
            str(inspect.getdoc(store_paths)).partition("\n\n")[2] + "\n",
            format_markdown_table(["Path", "What it is"], rows),
        )
    )


EXAMPLES = {
    "set_id": "SET",
    "sha256": "SHA256",
    "name": "NAME",
    "channel": "CHANNEL",
    "gfx": "GFX",
    "digest": "SHA256",
}


def list_family_paths(paths: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, example and meaning of each path that ``FamilyPaths`` names."""
    for name, member in vars(type(paths)).items():
        text = inspect.getdoc(member)
        if name.startswith("_") or not text:
            continue
        if isinstance(member, property):
            yield name, getattr(paths, name), text
        elif callable(member):
            words = [EXAMPLES[parameter] for parameter in list(inspect.signature(member).parameters)[1:]]
            yield name, member(paths, *words), text
