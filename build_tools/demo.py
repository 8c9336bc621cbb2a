#!/usr/bin/env python3
"""The demo: real wheels with real AMD device code from a miniature of PyTorch and ROCm, up to a release.

    python3 build_tools/quickstart.py demo [--output-dir DIR]      makes .venv, then starts this
    python3 build_tools/demo.py [--output-dir DIR]                 where there is one

Only the inputs are made here (``tests/miniature.py``). All else is done by ordinary commands, the very words
that anybody would type: ``demo.log`` has each, and all that it prints. What people see is a line for each
step with its time.

Wheels are built against two versions of ROCm: torch and its triton also against the earlier one, for one
target. What becomes of them is one release: variants share one version, so ``+rocm7.1.0`` leaves it, and
a plain wheel beside them has that version too. Its place is taken by the torch with all targets and the
newer ROCm, for installers that know nothing of variants. Wheels of the other projects are not in the
release: there would be none for the earlier ROCm, and an installer could put them beside the other torch.

triton is the wheel for every machine (``null``): it holds no device code, neither links nor requires
ROCm, and is the same for both versions of it. The ROCm packages are in the index too: what torch requires
comes from where torch does.

What is staged is all that was built against the newer ROCm, for both targets: a set of the family
``multi-arch``. Nobody here has a GPU. So the set meets a gate that blocks, until the target that nobody
tested is a named exception.
"""

import _script

if __name__ == "__main__":
    _script.run("demo:demo")  # this module again, in a Python that has what it imports

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click

from rocm_wheels.cli import boundary, catalogue, command
from rocm_wheels.core import errors, files, installation, log, process, progress, shell, tables, user_folders
from rocm_wheels.models import project_names
from rocm_wheels.sdk import interpreters

sys.path.append(str(_script.CLONE / "tests"))
import miniature

STEPS = 15
COSTS = "2 to 3 minutes on two cores, 1.1 GB of disk and 300 MB of downloads"  # measured with empty caches
# our commands run in this process, through the same click commands that their scripts call
COMMANDS = {
    "rocm-wheels": ("rocm_wheels.cli.main", "cli"),
    "build_tools/build_prod_wheels.py": ("rocm_wheels.cli.build", "production"),
    "build_tools/build_python_packages.py": ("rocm_wheels.cli.artifacts", "packages_command"),
}
PACKAGES = "build_tools/build_python_packages.py --artifact-dir {out}/"
BUILD = "build_tools/build_prod_wheels.py build --output-dir {out}/"
WITH_ROCM = (
    " --install-rocm --find-links {out}/rocm-packages/dist --rocm-extras device-gfx942,device-gfx1100"
    " --lock {lock} --source-dir {out}/sources"
)
VENV = "{uv} venv --quiet --no-project --clear --python {python} {place}"
MACHINES = ("gfx942", "gfx1100", "new:gfx1399", "none")  # the last but one is of no GPU that anybody knows
# gfx1100 needs no exception: the data of families name it already
POLICY_EXCEPTION = """\
families:
  gfx94X-dcgpu:
    bypass_tests_for_releases: true
    owner: demo@rocm-wheels.invalid
    reason: no GPU is here to test gfx942 on
"""
NAMES = {
    "rocm": miniature.ROCM_VERSION,
    "earlier_rocm": miniature.EARLIER_ROCM_VERSION,
    "targets": ",".join(miniature.TARGETS),
    "python": sys.executable,
    "import_torch": "import torch, triton; print(torch.__version__, torch.__file__)",
    "import_all": "import apex, torch, torchaudio, torchvision, triton; print(torch.__version__)",
    # the tests of the CPU half that calculate nothing: the miniature's torch has no tensors
    "selection": "torch_starts or requirements_of_torch or companion_belongs or rocm_sdk",
}
SUMMARY = """\
done in {duration}; in {out} there are now:
  sources.lock.json  the commits that everything was made from
  wheels/            {count} wheels for gfx942 and gfx1100: {projects}
  fat/, split/       that torch with ROCm inside, and with a device wheel for each target
  release/index/     a package index with variants of torch for two versions of ROCm
  releases/store/    a store of releases: the set, its evidence, the channel nightly
  demo.log           every command that was run, ready to paste, and what it printed
look next at:
  {show}
  {report}
  docs/pages/tutorials/demo.md, which explains each step"""
WEEK = 7 * 24 * 3600  # seconds; the gate of the channel wants results that are not much older
TAIL_LINES = 25  # of demo.log, shown where a step fails


def format_line(program: str, words: Sequence[str]) -> str:
    """Return a command as somebody types it in the clone who activated nothing there."""
    start = [program]
    if program == "rocm-wheels":
        script = Path(sys.executable).with_name(program)
        start = [str(script)] if script.exists() else [sys.executable, "-m", "rocm_wheels"]
    if Path(start[0]).is_relative_to(_script.CLONE):
        start[0] = str(Path(start[0]).relative_to(_script.CLONE))
    return shell.format_command([*start, *words])


def fingerprint_wheels(wheels: Iterable[Path]) -> str:
    """Return what stands for the names and bytes of wheels."""
    return miniature.fingerprint_folders([], *(f"{files.hash_file(wheel)} {wheel.name}" for wheel in wheels))


class Demo:
    """A demonstration below ``folder``: its steps, and the commands in them.

    Commands are written as they are typed, with ``{NAME}`` for what ``names`` has.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder, self.env, self.number = folder, env, 0
        places = {"out": folder, "lock": folder / "sources.lock.json", "store": folder / "releases" / "store"}
        self.names: dict[str, object] = {**NAMES, **places, "uv": installation.find_uv()}

    def run(self, line: str, *more: object) -> None:
        """Print a command and run it. Raises what it raises; SdkError for a program that is not ours."""
        program, *words = [word.format_map(self.names) for word in shlex.split(line)]
        words += map(str, more)
        log.log_note(log.paint_text(f"$ {format_line(program, words)}", "bold"))
        if program not in COMMANDS:
            env = interpreters.compose_uv_environment(self.env)
            process.run_command([program, *words], env=env, on_line=log.log_note, check=errors.SdkError)
            return
        module, name = COMMANDS[program]
        ours: click.Command = getattr(import_module(module), name)
        if code := ours.main(args=words, prog_name=Path(program).name, standalone_mode=False):
            raise click.exceptions.Exit(code)  # of one that has told its failures itself

    def run_once(self, place: str, source: str, *lines: str) -> None:
        """Run what makes a folder, ``{place}``, unless it was made from the fingerprint ``source``."""
        folder = self.names["place"] = self.folder / place
        if miniature.read_mark(folder) == source:
            log.log_note(f"{folder} is up to date")
            return
        for line in lines:
            self.run(line)
        miniature.mark_folder(folder, source)

    def find_wheels(self, *patterns: str) -> list[Path]:
        """Return the wheels that patterns below the folder name, in their order."""
        return [wheel for pattern in patterns for wheel in sorted(self.folder.glob(f"{pattern}.whl"))]

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show one step with its time. Where it fails, show the end of the log file as well."""
        self.number += 1
        label, begin = f"[{self.number:>2}/{STEPS}] {title}", time.monotonic()
        path = self.folder / "demo.log"
        progress.show_live_line(f"{label} …")
        try:
            with (
                path.open("w" if self.number == 1 else "a", encoding="utf-8", buffering=1) as file,
                contextlib.redirect_stdout(file),
                contextlib.redirect_stderr(file),
                log.write_log_to(file),
            ):
                log.log_note(label)
                yield
        except BaseException:
            progress.show_live_line("")
            tail = path.read_text(encoding="utf-8").splitlines()[-TAIL_LINES:]
            log.log_note("\n  ".join([f"{label} failed; the end of {path}:", *tail]))
            raise
        progress.show_live_line("")
        log.log_note(f"{label:<66} {tables.format_duration(time.monotonic() - begin):>7}")

    def make_inputs(self) -> None:
        """Make the inputs, where they are not there yet; ``{pytorch}`` and ``{triton}`` are repositories."""
        cache = user_folders.find_cache_folder(self.env, sys.platform)
        hipify = miniature.fetch_hipify(cache, env=self.env)
        upstream = self.folder / "upstream"
        repositories = miniature.make_repositories(miniature.SOURCE, upstream, hipify=hipify, env=self.env)
        self.names |= {name: repository.url for name, repository in repositories.items()}
        for place, version, targets in (
            ("rocm-artifacts", miniature.ROCM_VERSION, miniature.TARGETS),
            ("earlier-rocm/artifacts", miniature.EARLIER_ROCM_VERSION, miniature.TARGETS[:1]),
        ):
            rocm, artifacts = miniature.SOURCE / "rocm", self.folder / place
            miniature.make_artifacts(rocm, artifacts, version=version, targets=targets, env=self.env)

    def build(self) -> None:
        """Build the wheels, package torch in two more ways, and build for an earlier ROCm.

        The earlier ROCm has checkouts and a work directory of its own, as on a machine that builds nothing
        else: in a checkout that both use, only one can build at a time.
        """
        with self.step("make the inputs: repositories, hipify, ROCm artifacts"):
            self.make_inputs()
        with self.step(f"make Python packages of ROCm {miniature.ROCM_VERSION}"):
            self.run(PACKAGES + "rocm-artifacts --output-dir {out}/rocm-packages")
        with self.step("lock: pin every repository"):  # torch's names the others, and all other commits
            origins = "--pytorch-origin {pytorch} --triton-origin {triton}"
            self.run(f"rocm-wheels lock make {origins} --rocm {{rocm}} --gfx {{targets}} -o {{lock}}")
        with self.step("check out and hipify"):
            self.run("rocm-wheels checkout --lock {lock} --source-dir {out}/sources")
        with self.step(f"build and check five wheels for {' and '.join(miniature.TARGETS)}"):
            self.run(BUILD + "wheels" + WITH_ROCM)
        with self.step("make a fat and a split torch of it, install both"):
            self.run(BUILD + "fat pytorch --packaging fat" + WITH_ROCM)
            self.run(BUILD + "split pytorch --packaging split" + WITH_ROCM)
            # the fat one without any package of ROCm; of the split one the code for one GPU, by an extra
            fat, split, triton = self.find_wheels("fat/torch-*", "split/torch-*", "wheels/triton-*")
            self.names |= {"fat": fat, "version": split.name.split("-")[1], "triton_wheel": triton}
            links = "--find-links {out}/split --find-links {out}/rocm-packages/dist"
            for name, words in (("fat", "{fat}"), ("split", "torch[device-gfx942]=={version} " + links)):
                self.run_once(
                    f"installed/{name}",
                    fingerprint_wheels([*self.find_wheels(f"{name}/*"), triton]),
                    VENV,
                    "{uv} pip install --quiet --python {place}/bin/python {triton_wheel} " + words,
                    "{place}/bin/python -I -c {import_torch}",
                )
        with self.step(f"build torch and triton for ROCm {miniature.EARLIER_ROCM_VERSION} as well"):
            self.run(PACKAGES + "earlier-rocm/artifacts --output-dir {out}/earlier-rocm/packages")
            sources = " --source-dir {out}/earlier-rocm/sources"
            self.run("rocm-wheels checkout torch triton --lock {lock}" + sources)
            links = " --find-links {out}/earlier-rocm/packages/dist --rocm-extras device-gfx942"
            against = " --rocm =={earlier_rocm} --gfx gfx942 --install-rocm" + links
            self.run(BUILD + "earlier-rocm/wheels" + against + sources)

    def index(self) -> None:
        """Make variants of the wheels and an index of them, and install from it.

        What is published is never replaced: wheels of the same names and other bytes begin an index anew.
        """
        torch = self.find_wheels("wheels/torch-*", "earlier-rocm/wheels/torch-*")
        triton = self.find_wheels("wheels/triton-*")
        release, released = self.folder / "release", fingerprint_wheels([*torch, *triton])
        self.names |= {"release": release, "index": (release / "index").as_uri()}
        with self.step("make variant wheels, and an index of them"):
            miniature.make_folder(release, released, lambda beside: None)
            self.run("rocm-wheels wheel stamp --output-dir {release}/variants", *torch)
            self.run("rocm-wheels wheel stamp --null --output-dir {release}/variants", *triton)
            plain = self.find_wheels("release/variants/torch-*-rocm7.1_*", "release/variants/triton-*-null")
            self.run("rocm-wheels wheel retag --label '' --output-dir {release}/plain", *plain)
            variants = self.find_wheels("release/plain/*", "release/variants/*")
            self.run("rocm-wheels index build {release}/index", *variants)
            rocm = self.find_wheels("earlier-rocm/packages/dist/*", "rocm-packages/dist/*")
            self.run("rocm-wheels index build {release}/index", *rocm)
            self.run("rocm-wheels index verify {release}/index")
        with self.step("install from the index by pip and by uv"):
            # pip takes the index alone, and so leaves out what these wheels require; uv takes ROCm from its
            # packages and a compiler from the index that it is told to use otherwise. uv remembers files of
            # an index by their names, also when another release is begun at the same place
            pins = " ".join("==".join(w.name.split("-")[:2]) for w in self.find_wheels("release/plain/*"))
            alone = "{place}/bin/pip install --disable-pip-version-check --no-deps --index-url {index} "
            self.run_once("installed/by-pip", released, VENV + " --seed", alone + pins)
            others = "{uv} pip install --python {place}/bin/python --preview-features wheel-variants " + pins
            links = " --index {index} --find-links {out}/rocm-packages/dist"
            refresh = " --refresh-package torch --refresh-package triton"
            self.run_once("installed/by-uv", released, VENV, others + links + refresh)
        with self.step("choose for four machines, install for one, ask doctor"):
            for machine in MACHINES:
                self.run(f"rocm-wheels choose torch --index {{index}} --gfx {machine} --allow-cpu")
            self.names["place"] = place = self.folder / "installed" / "by-rocm-wheels"
            if not place.is_dir():
                self.run(VENV)
            stated = " --gfx gfx942 --python {place}/bin/python"
            self.run("rocm-wheels install torch triton --index {index}" + stated)
            self.run("rocm-wheels doctor" + stated)

    def release(self) -> None:
        """Release the wheels, and install them as people do who know only the channel.

        Raises DataError when the gate lets a set pass that nobody tested on a GPU.
        """
        wheels, projects = self.find_wheels("wheels/*"), " torch torchaudio torchvision apex triton"
        with self.step("stage the wheels as a set"):
            releases, made_of = self.folder / "releases", fingerprint_wheels(wheels)
            miniature.make_folder(releases, made_of, lambda beside: (beside / "store").mkdir())
            self.run("rocm-wheels set stage {store} --lock {lock} --family multi-arch", *wheels)
        (staged,) = (releases / "store/multi-arch/sets").iterdir()
        self.names |= {"set": staged.name, "tested": self.folder / "installed/to-be-tested"}
        with self.step("install the staged set, test it, record the evidence"):
            log.log_note("the smoke tests of the CPU half that calculate nothing: this torch has no tensors")
            self.run_once(
                "releases/results",
                f"{staged.name} in week {int(time.time() // WEEK)}",
                "rocm-wheels set check {store} --set {set} --output-dir {place}",
                "rocm-wheels install --index {store}/multi-arch/sets/{set}/simple --venv {tested}"
                " --gfx gfx942 --rocm-index {out}/rocm-packages/dist" + projects,
                "rocm-wheels test smoke --python {tested}/bin/python --wheels {out}/wheels"
                " --output-dir {place}/smoke -- -k {selection}",
            )
            results = " --from {out}/releases/results/smoke/results.json"
            self.run("rocm-wheels set evidence add {store} --set {set}" + results)
        of_set = " {store} --set {set} --channel nightly"
        with self.step("ask the gate: blocked, nothing was tested on a GPU"):
            self.meet_gate("rocm-wheels set gate --explain" + of_set)
        with self.step("name the exception, promote the set to nightly"):
            self.run("rocm-wheels set gate --policy {out}/releases/policy.yaml" + of_set)
            self.run("rocm-wheels set promote --policy {out}/releases/policy.yaml" + of_set)
            self.run("rocm-wheels set list {store} --channel nightly")
        with self.step("install from the channel"):
            self.names["channel"] = (releases / "store/multi-arch/simple/nightly").as_uri()
            channel = " --index {channel} --find-links {out}/rocm-packages/dist"
            install = "{uv} pip install --quiet --python {place}/bin/python" + channel + projects
            look = "{place}/bin/python -I -c {import_all}"
            self.run_once("installed/from-the-release", staged.name, VENV, install, look)

    def meet_gate(self, line: str) -> None:
        """Have the gate block the set, then write down the exception that it takes."""
        try:
            self.run(line)
        except errors.ReleaseError as blocked:
            log.log_note(errors.explain_error(blocked))
            log.log_note(f"exit code {blocked.exit_code}, as expected: nobody signed, and no GPU tested it")
        else:
            raise errors.DataError("the gate passed a set that no GPU tested")
        rules = (project_names.get_data_folder() / "release_policy.yaml").read_text(encoding="utf-8")
        unsigned = rules.replace("    rules:\n", "    signed: false\n    rules:\n", 1)
        policy = self.folder / "releases/policy.yaml"
        policy.write_text(f"{unsigned.rstrip()}\n{POLICY_EXCEPTION}", encoding="utf-8")
        log.log_note(f"in {policy} nightly takes what nobody signed, and:\n{POLICY_EXCEPTION}")

    def format_summary(self, duration: str) -> str:
        """Return what was made and where to look next, in eleven lines."""
        wheels, (torch,) = self.find_wheels("wheels/*"), self.find_wheels("wheels/torch-*")
        work = self.folder / "sources" / ".rocm-wheels"
        report = ["--work-dir", str(work), "-o", str(self.folder / "report.html")]
        return SUMMARY.format(
            duration=duration,
            out=self.folder,
            count=len(wheels),
            projects=", ".join(wheel.name.split("-")[0] for wheel in wheels),
            show=format_line("rocm-wheels", ["wheel", "show", str(torch)]),
            report=format_line("rocm-wheels", ["runs", "report", *report]),
        )


@command.command("demo")
@catalogue.OUTPUT_DIR.but(
    help="Where everything goes; the wheels are in its folder wheels.  [default: demo-output in the clone]"
)
def demo(output_dir: Path | None) -> None:
    """Build real wheels with real AMD device code from a miniature of PyTorch and of ROCm.

    Then make variants and an index of them, and install from it with pip, uv and rocm-wheels. Then release
    them: stage a set, test what needs no GPU, see the gate block it, name an exception, promote.

    Needs git, a C++ compiler and the package index, but no GPU and no ROCm. A second run does nothing. Every
    command and its output goes into demo.log in the output folder.

    \b
    Example:
      python3 build_tools/demo.py --output-dir demo-output
    """
    begin = time.monotonic()
    installation.require_extras("the demo", "build", "release")
    folder = (output_dir or _script.CLONE / "demo-output").absolute()
    boundary.pop_starting_python(os.environ)  # all of it is for the Python that the environments are made of
    if not folder.exists():
        log.log_note(f"the demo takes {COSTS}, {folder} included")
    with files.lock_folder(folder, purpose="demo"):
        demonstration = Demo(folder, boundary.read_environment())
        demonstration.build()
        demonstration.index()
        demonstration.release()
    click.echo(demonstration.format_summary(tables.format_duration(time.monotonic() - begin)))
