"""The command ``rocm-wheels``: groups of commands, each imported when it is called."""

from __future__ import annotations

import gc
import sys

import click

from rocm_wheels import __version__
from rocm_wheels.cli import boundary, command

# name: (module:attribute under rocm_wheels.cli, one line for --help), under the headings of `help --all`
SECTIONS = {
    "Sources": {
        "recipe": ("recipe:recipe_group", "Check recipes, and write new ones."),
        "lock": ("main:lock_group", "Pin every repository of a set in one file."),
        "checkout": ("checkout:checkout_command", "Check out projects, apply patches, hipify."),
        "sources": ("main:sources_group", "Inspect, hipify and patch source trees."),
    },
    "Build": {
        "plan": ("build:plan", "Show what a build would do, and why."),
        "build": ("build:build", "Build, check and collect wheels."),
        "dev": ("develop:develop_command", "Compile a project in its tree after each edit."),
        "shell": ("develop:shell_command", "Open a shell with the environment of a project's build."),
        "run-step": ("runs:run_step", "Run one step of a plan."),
        "runs": ("main:runs_group", "List, show and explain the runs of a work directory."),
        "clean": ("build:clean_command", "Delete leftovers of builds, by kind and age."),
        "rocm": ("main:rocm_group", "Get the ROCm to build against: packages, artifacts."),
    },
    "Wheels": {
        "targets": ("wheel:targets_command", "List the GPU targets of the device code in files."),
        "audit": ("audit:audit_command", "Find what is wrong with wheels, yours or anybody's."),
        "provenance": ("main:provenance_group", "Verify and sign how wheels were made."),
        "wheel": ("main:wheel_group", "Show, compare, retag, repair and stamp wheel files."),
        "index": ("index:index_group", "Make, change and check static package indexes."),
    },
    "Release": {
        "set": ("main:set_group", "Stage sets of wheels, judge them, promote them."),
        "store": ("main:store_group", "Check, repair and prune a store of releases."),
    },
    "This machine": {
        "choose": ("choose:choose_command", "Show which wheel of an index fits a machine, and why."),
        "install": ("install:install_command", "Install torch for this machine's GPUs."),
        "configure": ("machine:configure_command", "Show which variables this machine's GPUs need."),
        "doctor": ("machine:doctor_command", "Find what keeps torch from working on this machine."),
        "test": ("main:test_group", "Test the installed torch: quick, smoke or its own tests."),
        "compat": ("compat:compat_group", "Look up what works together: GPUs, ROCm, torch, indexes."),
    },
    "CI": {
        "matrix": ("matrix:matrix_command", "Show what CI builds and tests, and why the rest is left out."),
        "container": ("container:container_group", "Run a command in a build or test image."),
    },
    "rocm-wheels": {
        "settings": ("config:settings_command", "Check and print the configuration file."),
        "help": ("show_help:help_command", "Show the help of a command, or the list of all commands."),
    },
}
# what --help shows: where the four roads begin, from sources, to a release, on a machine, to a new project
FIRST_SECTIONS = {
    "Build": ("checkout", "build", "dev", "shell"),
    "Wheels and releases": ("audit", "set", "index"),
    "This machine": ("choose", "install", "doctor", "test"),
    "Projects": ("recipe",),
}
# other names that are read and not shown: those of TheRock's scripts, and of our own
ALIASES = {
    "verify": "audit --by-recipe",
    "install-rocm": "rocm install",
    "fetch-artifacts": "rocm fetch",
    "install-rocm-from-artifacts": "rocm from-artifacts",
    "build-python-packages": "rocm packages",
    "status": "runs show",
    "tests": "test",
}

wheel_group = command.Group(
    "wheel",
    lazy={
        "show": ("wheel:show", "Show name, tags, requirements and variant of wheels."),
        "diff": ("wheel:diff", "Show what differs between two wheels."),
        "retag": ("wheel:retag", "Rewrite wheels with other versions, tags, labels or requirements."),
        "prune": (
            "packaging:prune_command",
            "Make thin wheels of fat ones: keep the code of some targets.",
        ),
        "repair": (
            "packaging:repair_command",
            "Make wheels work on other machines: tag, libraries, run paths.",
        ),
        "fat": ("packaging:fat_command", "Make a wheel of torch that carries its ROCm."),
        "split": ("packaging:split_command", "Split wheels into a host wheel and device wheels."),
        "join": ("packaging:join_command", "Join host wheels with their device wheels."),
        "finalize": ("finalize:finalize_command", "Make wheels with final versions of pre-releases."),
        "stamp": ("packaging:stamp_command", "Make variant wheels: an installer takes the one for its GPU."),
    },
    aliases={"check": "audit:audit_command --strict"},
    help="""Show, retag and compare wheel files, of any project.

    No command here needs a recipe. Members that do not change are copied compressed. To check a wheel, use
    `rocm-wheels audit`.
    """,
)
provenance_group = command.Group(
    "provenance",
    lazy={
        "verify": ("provenance:verify", "Show how wheels were made, and check that."),
        "sign": ("provenance:sign", "Sign statements with an SSH key."),
    },
    help="""Verify and sign the statements beside wheels, which say how they were made.

    `rocm-wheels build` writes WHEEL.intoto.json beside each wheel: an in-toto statement with SLSA provenance.
    Commands that change such a wheel write a new statement, which contains the earlier one.
    """,
)
lock_group = command.Group(
    "lock",
    lazy={
        "make": ("lock:make_command", "Resolve every ref once and write the lock."),
        "update": ("lock:update_command", "Resolve the refs of some or all projects again."),
        "diff": ("lock:diff_command", "Show what changed between two locks, with the commits."),
    },
    default="make",
    help="Pin every repository of a set, submodules included, with ROCm, targets and patches, in one file.",
)
sources_group = command.Group(
    "sources",
    lazy={
        "status": ("sources:status_command", "Show which source trees are patched, hipified, changed."),
        "hipify": ("sources:hipify_command", "Hipify source trees again."),
        "save-patches": ("sources:save_patches_command", "Write the commits on a tree to a patch set."),
        "export": ("sources:export_command", "Write your commits as a branch that can be pushed."),
    },
    help="Inspect, hipify and patch source trees.",
)
runs_group = command.Group(
    "runs",
    lazy={
        "list": ("runs:list_command", "List the runs, newest first."),
        "show": ("runs:show_command", "Show what a run does now, or did."),
        "report": ("runs:report_command", "Write what a run did as one web page, or for Perfetto."),
        "why": ("build:why", "Say what changed since a step was done."),
    },
    aliases={"status": "show"},
    default="list",
    default_when_bare=True,
    help="List, show and explain the runs of a work directory.",
)
rocm_group = command.Group(
    "rocm",
    lazy={
        "install": ("build:install_rocm", "Install the ROCm packages into a build environment."),
        "fetch": ("artifacts:fetch_command", "Fetch artifacts of a ROCm build."),
        "from-artifacts": ("artifacts:install_command", "Install ROCm into a folder from artifacts."),
        "packages": ("artifacts:packages_command", "Make ROCm Python packages from artifacts or a folder."),
        "show": ("artifacts:show_command", "Show what an installed ROCm has for a build, and what it lacks."),
    },
    help="Get the ROCm that wheels are built against.",
)
set_group = command.Group(
    "set",
    lazy={
        "package": ("packaging:package_command", "Package the wheels of a folder: split, or fat."),
        "stage": ("stage:stage_command", "Store wheels as a set, with an index of its own."),
        "check": ("check:check_command", "Audit a set, ask pip and uv, and store the results as evidence."),
        "list": ("releases:list_command", "List the sets of a store."),
        "show": ("evidence:show_set", "Show a set: its index, wheels and evidence."),
        "evidence": ("evidence:evidence_group", "Add test results and other evidence to a set."),
        "key": ("key:key_command", "Make a key that signs results, and add it to a policy."),
        "gate": ("evidence:gate_command", "Judge by its evidence whether a set may go to a channel."),
        "promote": ("promote:promote", "Show a set on a channel, if the gate lets it pass."),
        "demote": ("promote:demote", "Remove sets from a channel; roll back."),
        "refresh": ("promote:refresh_command", "Update a store's pages, views and support.json."),
        "reproduce": (
            "reproduce:reproduce_command",
            "Build a set again from its own record, and compare the bytes.",
        ),
        "bisect": ("bisect:bisect_command", "Find the first set with which a command fails."),
    },
    help="Stage sets of wheels in a store, judge them by evidence, and promote them to channels.",
)
store_group = command.Group(
    "store",
    lazy={
        "fsck": ("store:fsck_command", "Compare a store with its documents, and repair pages."),
        "prune": ("store:prune_command", "Remove staged sets that the policy does not keep."),
    },
    help="Check, repair and prune a store of releases.",
)
test_group = command.Group(
    "test",
    lazy={
        "quick": (
            "machine:selftest_command",
            "Run the quick part of the smoke tests on the installed torch.",
        ),
        "smoke": ("torch_tests:smoke_command", "Run all smoke tests, on each kind of GPU."),
        "torch": (
            "torch_tests:torch_tests_command",
            "Run torch's own tests, of the commit that it was built from.",
        ),
    },
    default="quick",
    default_when_bare=True,
    help="Run tests of an installed torch, in separate processes; `quick` by default.",
)


@click.group(
    cls=command.Group,
    lazy={name: row for rows in SECTIONS.values() for name, row in rows.items()},
    sections=FIRST_SECTIONS,
    aliases=ALIASES,
    epilog="`rocm-wheels help --all` lists all commands.",
)
@click.version_option(__version__, prog_name="rocm-wheels", cls=command.Option, help="Show the version.")
@command.option(
    "--config",
    metavar="FILE",
    help="Configuration file [default: rocm-wheels.toml, or pyproject.toml, here or above].",
)
@click.pass_context
def cli(ctx: click.Context, config: str | None) -> None:
    """From pinned PyTorch sources to tested ROCm wheels that a machine can choose from."""
    if config is not None:
        ctx.meta[command.CONFIG_FILE] = config


def main() -> None:
    """Console script."""
    code = boundary.run_command(cli)
    gc.freeze()  # nobody looks for garbage once more: that took a tenth of a short command
    sys.exit(code)
