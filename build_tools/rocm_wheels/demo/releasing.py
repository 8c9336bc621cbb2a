"""The commands of the release part of the demonstration: the very words that anybody would type.

What is released is all that was built against the newer ROCm, for both targets: a set of the layout
``multi-arch``. Nobody here has a GPU. So the set meets a gate that blocks, until the target that nobody
tested is a named exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.demo.commands import (
    LOCK_NAME,
    ROCM_WHEELS,
    SMOKE_SCRIPT,
    DemoCommand,
    make_venv_arguments,
    find_program,
)

FAMILY = "multi-arch"
CHANNEL = "nightly"
RELEASE_PROJECTS = ("torch", "torchaudio", "torchvision", "apex", "triton")
# The tests of the CPU half that calculate nothing: the miniature's torch has no tensors.
SMOKE_SELECTION = "torch_starts or requirements_of_torch or companion_belongs or rocm_sdk"
POLICY_EXCEPTION = """\
families:
  gfx94X-dcgpu:
    bypass_tests_for_releases: true
    owner: demo@rocm-wheels.invalid
    reason: no GPU is here to test gfx942 on
"""  # gfx1100 needs none: the data of families name it already
_IMPORT_CODE = "import apex, torch, torchaudio, torchvision, triton; print(torch.__version__, torch.__file__)"


@dataclass(frozen=True)
class DemoRelease:
    """The folder of a demonstration, and the programs that its release part starts."""

    folder: Path
    uv: Path

    @property
    def releases_folder(self) -> Path:
        """Where the store, the results and the policy are."""
        return self.folder / "releases"

    @property
    def store(self) -> Path:
        """A store: a folder will do."""
        return self.releases_folder / "store"

    @property
    def results(self) -> Path:
        """What was found out about the set, before it is handed in."""
        return self.releases_folder / "results"

    @property
    def policy(self) -> Path:
        """The rules of the channels, with the named exception."""
        return self.releases_folder / "policy.yaml"

    @property
    def wheels(self) -> list[Path]:
        """The wheels of the set."""
        return sorted((self.folder / "wheels").glob("*.whl"))

    @property
    def test_environment(self) -> Path:
        """The environment that the staged set is installed into, to be tested."""
        return self.folder / "installed" / "to-be-tested"

    @property
    def user_environment(self) -> Path:
        """The environment of a user of the channel."""
        return self.folder / "installed" / "from-the-release"

    def find_staged_set(self) -> str:
        """Return the id of the one set in the store."""
        (set_folder,) = (self.store / "v2-staging" / FAMILY / "sets").iterdir()
        return set_folder.name

    def make_stage_command(self) -> DemoCommand:
        """Make a set of the wheels."""
        lock = ("--lock", str(self.folder / LOCK_NAME))
        kind = ("--family", FAMILY, "--layout", "multi-arch")
        return DemoCommand(ROCM_WHEELS, ("stage", str(self.store), *map(str, self.wheels), *lock, *kind))

    def make_serve_command(self, port: int) -> DemoCommand:
        """Serve the store as any static server does."""
        return DemoCommand(
            "python3", ("-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(self.store))
        )

    def make_staged_install_commands(self, server: str) -> Sequence[DemoCommand]:
        """Install the set that nobody else sees yet, and what runs tests."""
        return self._make_install_commands(self.test_environment, self._make_staged_index(server), "pytest")

    def make_test_commands(self, server: str) -> Sequence[DemoCommand]:
        """Find out all that can be found out about the set without a GPU."""
        wheels = tuple(map(str, self.wheels))
        python = ("--target-python", str(find_program(self.test_environment, "python")))
        into = ("--wheels", str(self.folder / "wheels"), "--output-dir", str(self.results / "smoke"))
        resolve_words = ("resolve-check", self._make_staged_index(server), *wheels, "--json")
        return [
            DemoCommand(SMOKE_SCRIPT, (*python, *into, "--", "-k", SMOKE_SELECTION)),
            DemoCommand(ROCM_WHEELS, ("verify", *wheels, "--json"), self.results / "verify.json"),
            DemoCommand(ROCM_WHEELS, resolve_words, self.results / "resolve-check.json"),
        ]

    def make_evidence_command(self) -> DemoCommand:
        """Write the results down beside the set."""
        files = ("verify.json", "resolve-check.json", "smoke/results.json")
        named = (word for file in files for word in ("--from", str(self.results / file)))
        wheels = ("--wheels", str(self.folder / "wheels"))
        return DemoCommand(
            ROCM_WHEELS, ("evidence", "add", str(self.store), *self._make_set_options(), *named, *wheels)
        )

    def make_gate_command(self, *, excused: bool) -> DemoCommand:
        """Ask whether the set may go to the channel; ``excused``: with the named exception."""
        more = ("--policy", str(self.policy)) if excused else ("--explain",)
        return DemoCommand(
            ROCM_WHEELS, ("gate", str(self.store), *self._make_set_options(), "--channel", CHANNEL, *more)
        )

    def make_promote_commands(self) -> Sequence[DemoCommand]:
        """Show the set on the channel, and list what people see there."""
        words = (*self._make_set_options(), "--channel", CHANNEL, "--policy", str(self.policy))
        return [
            DemoCommand(ROCM_WHEELS, ("promote", str(self.store), *words)),
            DemoCommand(ROCM_WHEELS, ("releases", str(self.store), "--channel", CHANNEL)),
        ]

    def make_user_install_commands(self, server: str) -> Sequence[DemoCommand]:
        """Do what a user of the channel does."""
        index = f"{server}v2/{FAMILY}/simple/{CHANNEL}/"
        python = str(find_program(self.user_environment, "python"))
        return [
            *self._make_install_commands(self.user_environment, index),
            DemoCommand(python, ("-I", "-c", _IMPORT_CODE)),
        ]

    def _make_staged_index(self, server: str) -> str:
        return f"{server}v2-staging/{FAMILY}/sets/{self.find_staged_set()}/simple/"

    def _make_set_options(self) -> tuple[str, str]:
        return ("--set", self.find_staged_set())

    def _make_install_commands(self, environment: Path, index: str, *more: str) -> Sequence[DemoCommand]:
        words = (
            *("--python", str(find_program(environment, "python"))),
            *("--index", index),
            *("--find-links", str(self.folder / "rocm-packages" / "dist")),
            *RELEASE_PROJECTS,
        )
        return [
            DemoCommand(str(self.uv), (*make_venv_arguments(), str(environment))),
            DemoCommand(str(self.uv), ("pip", "install", "--quiet", *words, *more)),
        ]


def format_policy(rules: str) -> str:
    """Return the policy of the demonstration: the rules as they are, and the named exception."""
    return f"{rules.rstrip()}\n{POLICY_EXCEPTION}"
