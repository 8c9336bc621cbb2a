"""The catalogue of options: each that two commands or more take stands here once, with its type.

An entry is a decorator. ``ENTRY.but(required=True, help=…)`` is the same option where a command means it more
closely: its spelling, other spellings and type stay. ``takes(A, B)`` adds several, in the order of help. What
one command alone takes stands at that command (``command.option``); ``tests/house`` holds both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from rocm_wheels.cli import boundary, command, options

F = TypeVar("F", bound=Callable[..., Any])


class Entry:
    """An option of the catalogue: how it is spelled, its type, what it says of itself."""

    def __init__(self, *names: str, **attrs: Any) -> None:
        self.names = names
        self.attrs = attrs

    def __call__(self, function: F) -> F:
        """Add the option to a command."""
        return command.option(*self.names, **self.attrs)(function)

    def make(self) -> command.Option:
        """Return the option itself, for a command that is made of a list of them."""
        return command.Option(self.names, **self.attrs)

    def but(
        self, *, name: str | None = None, negatable: bool = False, short: bool = True, **attrs: Any
    ) -> Entry:
        """Return the same option with other attributes.

        ``name``: the argument that a command gets it as. ``negatable``: ``--no-X`` says the opposite.
        ``short``: whether its one letter, if it has one, is this option's in that command.
        """
        names = [word for word in self.names if short or word.startswith("--") or not word.startswith("-")]
        if name is not None:
            names = [*(word for word in names if word.startswith("-")), name]
        if negatable:
            names = [f"{word}/--no-{word[2:]}" if word.startswith("--") else word for word in names]
        return type(self)(*names, **{**self.attrs, **attrs})


class _Interpreter(Entry):
    """A Python: a path, an environment's folder, a version (3.12, python3.12), or a program on PATH.

    The command gets the program, or None. It is looked for when the command begins, not while words are
    parsed. Raises UsageError for a word that names no Python.
    """

    def __call__(self, function: F) -> F:
        name = next((word for word in self.names if not word.startswith("-")), "python")

        @wraps(function)
        def with_program(*values: object, **others: Any) -> object:
            if (word := others.get(name)) is not None:
                from rocm_wheels.sdk import interpreters

                others[name] = interpreters.find_python_program(os.fspath(word), boundary.read_environment())
            return function(*values, **others)

        return super().__call__(cast(F, with_program))


def takes(*adders: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds options (or lists of them) to a command, so that help shows the first one first."""

    def add(function: F) -> F:
        for add_option in reversed(adders):
            function = add_option(function)
        return function

    return add


_FOLDER = options.GivenPath(file_okay=False)
_PLATFORM = click.Choice(["linux", "windows"])

# what is meant
GFX = Entry("--gfx", "targets", metavar="LIST", help="GPU targets: gfx942,gfx1100, or 'RX 7900 XTX'.")
BUILD_GFX = GFX.but(name="pytorch_rocm_arch", help="gfx targets, families, cards ('RX 7900 XTX').")
MACHINE_GFX = Entry(
    "--gfx",
    multiple=True,
    metavar="LIST|none",
    help="Install for these GPUs, not those found here: gfx942,gfx1100, a family, 'RX 7900 XTX'; none: for"
    " the CPU; new:gfx1399: newer than the tables.",
)
ALLOW_CPU = Entry(
    "--allow-cpu",
    is_flag=True,
    help="Accept a torch for the CPU, if none has code for the GPU.",
)
FAMILY = Entry("--family", metavar="NAME", help="Only this GPU family [default: all].")
FAMILIES = FAMILY.but(name="families")
PYTHON = _Interpreter(
    "--python",
    type=options.GivenPath(),
    metavar="PYTHON",
    help="Python or environment [default: this one].",
)
PYTHON_VERSIONS = Entry(
    "--python", "pythons", type=options.PythonVersions(), metavar="V,…", help="Pythons: 3.12, 3.14t."
)
PYTHON_WORDS = Entry("--python", metavar="PYTHON", help="A Python, by path, version or tag.")
PLATFORM = Entry("--platform", type=_PLATFORM, help="Platform that wheels are for.")
PROJECT = Entry("--project", metavar="NAME", help="Project that is meant.")
ROCM = Entry("--rocm", metavar="V", help="Version of ROCm.")
LAYOUT = Entry(
    "--layout",
    type=click.Choice(["per-family", "multi-arch"]),
    help="Wheels for each family, or one set of them for all together.",
)
PACKAGING = Entry(
    "--packaging",
    type=click.Choice(["split", "fat"]),
    help="Host and device wheels of all wheels with device code; or a torch that carries its ROCm.",
)
STORE = Entry("--store", metavar="STORE", help="Where the set lies.")
SET = Entry("--set", "set_id", metavar="ID", help="The set, or how its id begins.")
CHANNEL = Entry("--channel", metavar="CHANNEL", help="nightly, prerelease or stable.")
INDEX_CHANNEL = CHANNEL.but(
    type=click.Choice(["stable", "prerelease", "nightly", "bkc", "dev"]),
    help="Channel of the known indexes, without --index [default: stable].",
)
MANIFEST = Entry("--manifest", metavar="FILE|URL", help="Use the commits of a manifest of TheRock's scripts.")
LINE = Entry("--line", metavar="NAME", help="Release line (`compat show lines`).")
LOCAL_VERSION = Entry("--local-version", metavar="TEXT", help="Local part of a version.")
ROCM_EXTRAS = Entry(
    "--rocm-extras", metavar="LIST", help="More extras of rocm, such as device-gfx942,device-gfx1100."
)
VERSION_SUFFIX = Entry("--version-suffix", metavar="TEXT", help="Local version.")
BUILD_TAG = Entry("--build-tag", metavar="TAG", help="Build tag of the name, beginning with a digit.")
SUITE = Entry("--suite", "--test-config", help="Suite of torch's own tests.")

# where things are
SOURCE_DIR = Entry(
    "--source-dir",
    "root_checkout_dir",
    type=_FOLDER,
    help="Folder of the source trees [default: repos/ in a clone, else the current folder].",
)
WORK_DIR = Entry(
    "--work-dir",
    type=_FOLDER,
    help="Environments, runs, results of steps [default: .rocm-wheels in source-dir, which a configuration"
    " file may name; else in the clone's repos/, or here].",
)
PYTORCH_DIR = Entry("--pytorch-dir", type=_FOLDER, metavar="DIR", help="Source tree of torch.")
VENV = Entry("--venv", type=_FOLDER, metavar="DIR", help="Virtual environment.")
ROCM_PATH = Entry("--rocm-path", type=options.GivenPath(), metavar="DIR", help="An installed ROCm.")
WHEELS = Entry(
    "--wheels", type=options.GivenPath(), multiple=True, metavar="PATH", help="Wheels, or folders."
)
LOCK = Entry("--lock", type=options.GivenPath(), metavar="FILE", help="Lock file.")
PLAN = Entry("--plan", "plan_file", type=options.GivenPath(), metavar="FILE", help="Plan file.")
POLICY = Entry(
    "--policy",
    type=options.GivenPath(),
    metavar="FILE",
    help="What channels require of a set [default: data/release_policy.yaml].",
)
OUTPUT = Entry(
    "-o", "--output", type=options.GivenPath(dir_okay=False), metavar="FILE", help="File to write."
)
OUTPUT_DIR = Entry(
    "-o",
    "--output-dir",
    type=_FOLDER,
    metavar="DIR",
    help="Folder for the new files [default: beside each file].",
)

# where packages come from
INDEX = Entry(
    "--index",
    type=options.GivenText(),
    metavar="URL|DIR",
    help="Where the builds come from [default: by GPU and --channel].",
)
ROCM_INDEX = Entry(
    "--rocm-index",
    "index_url",
    type=options.GivenText(),
    metavar="URL",
    help="Package index of the ROCm packages.",
)
OTHER_ROCM_INDEX = ROCM_INDEX.but(
    name="rocm_index", metavar="URL|DIR", help="Index of ROCm's own packages, if the chosen one has none."
)
FIND_LINKS = Entry(
    "--find-links",
    type=options.GivenText(),
    metavar="DIR|URL",
    help="Folder or page with ROCm packages.",
)
LOCAL_LINKS = Entry(
    "--find-links",
    type=options.GivenPath(),
    multiple=True,
    metavar="DIR|WHEEL",
    help="Wheels that METADATA requires. May be given several times.",
)
ROCM_WHEELS = Entry(
    "--find-links",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder with ROCm's wheels.",
)
RUN_ID = Entry("--run-id", metavar="ID", help="Workflow run on GitHub with the artifacts.")
PRE = Entry("--pre", is_flag=True, help="Take pre-releases too.")
PUBLIC_URL = Entry("--public-url", metavar="URL", help="Where people see it.")

# who is trusted
SIGN_WITH = Entry("--sign-with", type=options.GivenPath(), metavar="KEY", help="Sign it: Ed25519 SSH key.")
SIGN_RELEASE = SIGN_WITH.but(
    type=options.SigningKey(),
    envvar="ROCM_WHEELS_RELEASE_KEY",
    show_envvar=True,
    help="Sign what the index shows: Ed25519 SSH key. The variable may hold the key itself.",
)
RELEASED_BY = Entry(
    "--released-by",
    "released_by",
    multiple=True,
    type=options.GivenPath(),
    metavar="KEY.pub",
    envvar="ROCM_WHEELS_RELEASED_BY",
    show_envvar=True,
    help="Accept pages of an index only if one of these public keys (Ed25519, SSH) signed them.",
)

# how it is done
INSTALL_ROCM = Entry(
    "--install-rocm/--no-install-rocm", default=False, show_default=True, help="Run install-rocm first."
)
SET_ENV = Entry(
    "--set-env",
    multiple=True,
    metavar="PROJECT:NAME=VALUE",
    help="A variable for the build of one project, which overrides all others; may be repeated.",
)
PLAT = Entry(
    "--plat",
    default="auto",
    show_default=True,
    metavar="auto|TAG",
    help="Linux tag to repair for, such as manylinux_2_28; auto: the oldest that their symbols allow.",
)
REQUIRE_GPU = Entry("--require-gpu", is_flag=True, help="Fail if there is no GPU to test.")
JOBS = Entry("--jobs", type=click.IntRange(1), metavar="N", help="How many at a time.")
DRY_RUN = Entry("--dry-run", is_flag=True, help="Show what would be done, and why; do nothing.")

# what is shown
DROP_MISSING = Entry("--drop-missing", is_flag=True, help="Remove wheels that are gone from the pages.")
ALL = Entry("--all", "everything", is_flag=True, help="All of them.")
JSON = Entry("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")

NEW_WHEELS = takes(
    OUTPUT_DIR,
    DRY_RUN.but(help="Show what would be done, and why; write nothing."),
    JSON,
)
"""What every command that makes new wheels out of wheels takes."""
