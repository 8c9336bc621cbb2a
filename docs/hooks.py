"""Make the pages of the reference while the documentation is built: they are read from the code.

mkdocs calls ``on_config`` and ``on_files``. Nothing that is made here is written into ``pages/``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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
from rocm_wheels.cli import lines, main, record_keys
from rocm_wheels.core import errors
from rocm_wheels.core.tables import format_markdown_table
from rocm_wheels.models import ci, gfx, lock, project, release_lines, torch_tests
from rocm_wheels.release import channel, policy, store_paths, support, wheel_set
from rocm_wheels.release.evidence import evidence

PACKAGE = Path(project.__file__).parents[1]
VARIABLES = Path(__file__).with_name("environment.yaml")
GENERATED: dict[str, Callable[[], str]] = {}  # page: what makes it


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made here into the navigation."""
    reference = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    reference[2:2] = list(GENERATED)
    wrap_examples(main.cli, click.Context(main.cli, info_name="rocm-wheels"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
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


# Commands: mkdocs-click reads click's own tree


def wrap_examples(command: click.Command, context: click.Context) -> None:
    """Make Markdown of the help of a command and of all below it."""
    command.help = format_help_text(command.help or "")
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)
        assert below is not None
        wrap_examples(below, click.Context(below, info_name=name, parent=context))


def format_help_text(text: str) -> str:
    """Return help as Markdown: a paragraph that click is told not to wrap becomes a block of code."""
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            parts.append(f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```")
        else:
            parts.append(escape_markdown(paragraph))
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: str) -> str:
    """Return text in which only `code` is markup."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", piece).replace("<", "&lt;")
        for piece in pieces
    )


# Records, from pydantic


def link_records(kind: str) -> str:
    """Return what a value is, each record in it (a name in capitals) a link to its keys."""
    return re.sub(r"(?<![`\w])[A-Z]\w+", lambda name: f"[{name[0]}](#{name[0].lower()})", kind)


def format_schema(model: type[Any], level: str) -> str:
    """Return the keys of a record and of all inside it."""
    parts = []
    for record in record_keys.list_records(model):
        rows = [
            [f"`{key}`", link_records(kind), default] for key, kind, default in record_keys.list_keys(record)
        ]
        name = record.__name__.lstrip("_")
        parts += [
            f"{level} {name} {{ #{name.lower()} }}\n",
            escape_markdown((inspect.getdoc(record) or "").replace("``", "`")) + "\n",
            format_markdown_table(["Key", "Value", "Default"], rows),
        ]
    return "\n".join(parts)


@page("reference/release-lines.md")
def make_lines_page() -> str:
    """Return the table of release lines."""
    return f"# Release lines\n\n{format_markdown_table(*lines.tabulate_lines())}\n{lines.LEGEND}\n"


@page("reference/recipe.md")
def make_recipe_page() -> str:
    """Return the page of recipes."""
    head = (
        "# Recipes\n\nA recipe describes a project: `<name>.yaml` in any folder. A key that is not listed"
        " here is an error with file, line and column; `rocm-wheels recipe check` finds other errors. Where"
        " recipes are read from, and how to write one:"
        " [Add a project](../how-to/add-a-project.md).\n"
    )
    example = (Path(__file__).resolve().parents[1] / "repos/bitsandbytes.yaml").read_text(encoding="utf-8")
    return f"{head}\nA complete example:\n\n```yaml\n{example}```\n\n{format_schema(project.Project, '##')}"


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
    parts = ["# Documents\n", "JSON documents that some commands write and others read.\n"]
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
        + "\n`test smoke` and `test torch` pass pytest's own exit codes through. Commands that answer a"
        " question, such as `targets`, end with 0 whatever the answer is; commands that judge (`audit`,"
        " `set gate`, `doctor`, `test`) end with the code of their class if the verdict is no. 141 means that"
        " the reader of a pipe left (`rocm-wheels audit … | head -1`).\n"
    )


@page("reference/environment.md")
def make_environment_page() -> str:
    """Return the page of environment variables."""
    groups = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))
    parts = [
        "# Environment variables\n",
        "An option always wins over its variable.\n",
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
    "view": "GFX",
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
