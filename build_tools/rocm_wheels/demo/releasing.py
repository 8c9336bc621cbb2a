"""The commands of the release part of the demonstration: the very words that anybody would type.

What is released is all that was built against the newer ROCm, for both targets: a set of the layout
``multi-arch``. Nobody here has a GPU. So the set meets a gate that blocks, until the target that nobody
tested is a named exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.demo.commands import LOCK, ROCM_WHEELS, SMOKE, Call, fresh, program_in

FAMILY = "multi-arch"
CHANNEL = "nightly"
PROJECTS = ("torch", "torchaudio", "torchvision", "apex", "triton")
# The tests of the CPU half that calculate nothing: the miniature's torch has no tensors.
SELECTION = "torch_starts or requirements_of_torch or companion_belongs or rocm_sdk"
EXCEPTION = """\
families:
  gfx94X-dcgpu:
    bypass_tests_for_releases: true
    owner: demo@rocm-wheels.invalid
    reason: no GPU is here to test gfx942 on
"""  # gfx1100 needs none: the data of families name it already
_CODE = "import apex, torch, torchaudio, torchvision, triton; print(torch.__version__, torch.__file__)"


@dataclass(frozen=True)
class Releasing:
    """The folder of a demonstration, and the programs that its release part starts."""

    folder: Path
    uv: Path

    @property
    def place(self) -> Path:
        """Where the store, the results and the policy are."""
        return self.folder / "releases"

    @property
    def store(self) -> Path:
        """A store: a folder will do."""
        return self.place / "store"

    @property
    def results(self) -> Path:
        """What was found out about the set, before it is handed in."""
        return self.place / "results"

    @property
    def policy(self) -> Path:
        """The rules of the channels, with the named exception."""
        return self.place / "policy.yaml"

    @property
    def wheels(self) -> list[Path]:
        """The wheels of the set."""
        return sorted((self.folder / "wheels").glob("*.whl"))

    @property
    def tested(self) -> Path:
        """The environment that the staged set is installed into, to be tested."""
        return self.folder / "installed" / "to-be-tested"

    @property
    def released(self) -> Path:
        """The environment of a user of the channel."""
        return self.folder / "installed" / "from-the-release"

    def staged_set(self) -> str:
        """Return the id of the one set in the store."""
        (found,) = (self.store / "v2-staging" / FAMILY / "sets").iterdir()
        return found.name

    def stage(self) -> Call:
        """Make a set of the wheels."""
        lock = ("--lock", str(self.folder / LOCK))
        kind = ("--family", FAMILY, "--layout", "multi-arch")
        return Call(ROCM_WHEELS, ("stage", str(self.store), *map(str, self.wheels), *lock, *kind))

    def serve(self, port: int) -> Call:
        """Serve the store as any static server does."""
        return Call(
            "python3", ("-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(self.store))
        )

    def install_staged(self, server: str) -> Sequence[Call]:
        """Install the set that nobody else sees yet, and what runs tests."""
        return self._install(self.tested, self._staged_index(server), "pytest")

    def find_out(self, server: str) -> Sequence[Call]:
        """Find out all that can be found out about the set without a GPU."""
        wheels = tuple(map(str, self.wheels))
        python = ("--target-python", str(program_in(self.tested, "python")))
        into = ("--wheels", str(self.folder / "wheels"), "--output-dir", str(self.results / "smoke"))
        asked = ("resolve-check", self._staged_index(server), *wheels, "--json")
        return [
            Call(SMOKE, (*python, *into, "--", "-k", SELECTION)),
            Call(ROCM_WHEELS, ("verify", *wheels, "--json"), self.results / "verify.json"),
            Call(ROCM_WHEELS, asked, self.results / "resolve-check.json"),
        ]

    def hand_in(self) -> Call:
        """Write the results down beside the set."""
        files = ("verify.json", "resolve-check.json", "smoke/results.json")
        named = (word for file in files for word in ("--from", str(self.results / file)))
        wheels = ("--wheels", str(self.folder / "wheels"))
        return Call(ROCM_WHEELS, ("evidence", "add", str(self.store), *self._set(), *named, *wheels))

    def gate(self, *, excused: bool) -> Call:
        """Ask whether the set may go to the channel; ``excused``: with the named exception."""
        more = ("--policy", str(self.policy)) if excused else ("--explain",)
        return Call(ROCM_WHEELS, ("gate", str(self.store), *self._set(), "--channel", CHANNEL, *more))

    def promote(self) -> Sequence[Call]:
        """Show the set on the channel, and list what people see there."""
        words = (*self._set(), "--channel", CHANNEL, "--policy", str(self.policy))
        return [
            Call(ROCM_WHEELS, ("promote", str(self.store), *words)),
            Call(ROCM_WHEELS, ("releases", str(self.store), "--channel", CHANNEL)),
        ]

    def install_released(self, server: str) -> Sequence[Call]:
        """Do what a user of the channel does."""
        index = f"{server}v2/{FAMILY}/simple/{CHANNEL}/"
        python = str(program_in(self.released, "python"))
        return [*self._install(self.released, index), Call(python, ("-I", "-c", _CODE))]

    def _staged_index(self, server: str) -> str:
        return f"{server}v2-staging/{FAMILY}/sets/{self.staged_set()}/simple/"

    def _set(self) -> tuple[str, str]:
        return ("--set", self.staged_set())

    def _install(self, place: Path, index: str, *more: str) -> Sequence[Call]:
        words = (
            *("--python", str(program_in(place, "python"))),
            *("--index", index),
            *("--find-links", str(self.folder / "rocm-packages" / "dist")),
            *PROJECTS,
        )
        return [
            Call(str(self.uv), (*fresh(), str(place))),
            Call(str(self.uv), ("pip", "install", "--quiet", *words, *more)),
        ]


def policy_text(rules: str) -> str:
    """Return the policy of the demonstration: the rules as they are, and the named exception."""
    return f"{rules.rstrip()}\n{EXCEPTION}"
