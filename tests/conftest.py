"""What all tests start from: signals as a terminal leaves them, no hurry, and who runs which module when."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# an example that takes long on a busy machine is no fault of what it tests
hypothesis.settings.register_profile("any-machine", deadline=None)
hypothesis.settings.load_profile("any-machine")

# A test, its fixtures included, takes at most two minutes on a busy machine: after this long it waits for
# what will not come. What it does when it is told so may wait for ever too, and is told so again.
LIMIT, AGAIN = 900.0, 60.0  # seconds
REAL_LIMIT = 6 * 3600.0  # of tests/real, whose fixtures make a root, ROCm's packages and configured trees

INTEGRATION = Path(__file__).with_name("integration")

# Modules that share what is long to make: a finished demo, which is new for the first of them only, a
# world of tiny projects in which ROCm is installed, the wheel of this project. On few cores one worker
# takes them all.
SHARED = (
    (
        "test_demo",
        "test_docs_commands",
        "test_build_sets",
        "test_build_again",
        "test_build_against",
        "test_build_packaging",
        "test_repair_demo",
        "test_audit_demo",
        "test_develop",
        "test_therock_scripts",
    ),
    (
        *("test_build_faults", "test_build_faults_disk", "test_build_faults_killed"),
        *("test_build_configured_first", "test_build_tools", "test_build_counts"),
        *("test_build_edits", "test_build_installed_rocm", "test_foreign_recipe", "test_build_tested"),
        *("test_build_cells", "test_snakemake"),
    ),
    ("test_light_install", "test_shipped"),
)
FEW = 6
YIELDING = 5  # how nice a worker is: three of them weigh as much as one that is not (335 of 1024 each)

# The modules that take longest, longest first (`--durations=0` tells). They begin before all others, so
# that no worker is left with a long one at the end; where in the list exactly says only how even the end is.
LONG = (
    *SHARED[0],
    *SHARED[1],
    *("test_snakemake_slurm", "test_quickstart", "test_torch_across_pythons", "test_patches"),
    *("test_checkout_killed", "test_reproduce", "test_build_asan"),  # by now there is the demo that they read
    *("test_own_work", "test_checkout", "test_lock", "test_submodules"),
    *(
        "test_build_trees",
        "test_status",
        "test_sources_wrong_inputs",
        "test_selftest",
        "test_compiler_caches",
    ),
    *("test_views_platforms", "test_hipify", "test_install", "test_python_packages"),
    *("test_index", "test_smoke_tests", "test_mirrors", "test_fetch_artifacts", "test_sdk_install"),
    *("test_sources_names", "test_network", "test_promote", "test_checkout_several", "test_torch_tests_run"),
    *("test_views", "test_wheel_rewrite_installs", "test_real_torch", "test_build_locked", "test_stage"),
    *("test_checkout_triton_vision_apex", "test_clean", "test_checkout_locked"),
)


# Marks of tests that run only where they are asked for by name: by hand, or at night.
BY_NAME = ("exhaustive", "public-wheels")


def pytest_configure(config: pytest.Config) -> None:
    """Take back what a terminal has otherwise: signals under nohup, compiled modules in an image, width.

    And leave out what nobody asked for by name, whichever other marks ``-m`` names.

    Tests that send an ignored signal would wait for ever. Where ``PYTHONDONTWRITEBYTECODE`` is set, as
    images of containers do, each of the thousands of processes of the suite compiles all that it imports.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["COLUMNS"] = "400"  # a row of a table is a line, whatever the paths of the tests' folders are
    sys.dont_write_bytecode = False
    gc.disable()  # until all tests are collected: what is imported and collected stays to the end
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        signal.signal(hangup, signal.SIG_DFL)
    expression = config.option.markexpr
    left_out = " and ".join(f"not {mark}" for mark in BY_NAME if mark not in expression)
    if left_out:
        config.option.markexpr = f"({expression}) and {left_out}" if expression else left_out


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the worker that has the first of ``SHARED`` have a core to itself, and the others what is left.

    Those modules come one after the other. On two cores, shared by four workers, they were the last that
    ended, by minutes, with one core idle.
    """
    workers = getattr(item.config, "workerinput", {"workercount": 1})["workercount"]
    yields = workers > (os.cpu_count() or 1) and item.path.stem not in SHARED[0]
    if yields and hasattr(os, "nice") and os.nice(0) < YIELDING:
        os.nice(YIELDING - os.nice(0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Have a test that hangs fail with the stacks of all threads, wherever it hangs, and the suite go on.

    pytest-timeout has no clock any more once a test has failed, so none for fixtures that end after that;
    with workers its other way, to end the process, has the scheduler begin the same test again.
    """
    if not hasattr(signal, "SIGALRM"):
        return (yield)
    limit = REAL_LIMIT if item.get_closest_marker("real") else LIMIT
    signal.signal(signal.SIGALRM, partial(fail_with_stacks, limit))
    signal.setitimer(signal.ITIMER_REAL, limit, AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fail_with_stacks(limit: float, *_: object) -> None:
    """Fail the test that runs, with what every thread of this process does."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stacks:
        faulthandler.dump_traceback(stacks)
        stacks.seek(0)
        pytest.fail(f"the test has not ended in {limit:.0f} s\n{stacks.read()}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the long modules where several workers share the suite, and always with the demo itself."""
    shared = hasattr(config, "workerinput")
    order = LONG if shared else SHARED[0]
    rank = {INTEGRATION / f"{name}.py": n for n, name in enumerate(order)}
    if gone := [path.name for path in rank if not path.exists()]:
        raise pytest.UsageError(f"tests/conftest.py orders modules that are not there: {', '.join(gone)}")
    # workers then take what is left of integration, and at the end the units, which take a second
    items.sort(key=lambda item: rank.get(item.path, len(rank) + (shared and item.path.parent != INTEGRATION)))


def pytest_collection_finish() -> None:
    """Collect garbage again, and look no more through the million objects that all tests are made of."""
    gc.freeze()
    gc.enable()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="sample"),
        pytest.param(True, id="exhaustive", marks=pytest.mark.exhaustive),
    ],
)
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Tell a test whether it does all that it knows, or a sample of it: the suite runs samples."""
    return bool(request.param)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Start half as many workers again as there are cores: tests wait for what they start, and for disks.

    Two more at least: three left two cores idle for a third of the time.
    """
    cores = yield
    return cores if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") else cores + max(2, cores // 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker take all modules that share something, where there are few workers."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    first = {f"{name}.py": f"{names[0]}.py" for names in SHARED for name in names}

    class Modules(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder, _, name = super()._split_scope(nodeid).rpartition("/")
            return f"{folder}/{first.get(name, name) if self.numnodes <= FEW else name}"

        def schedule(self) -> None:
            """Give a worker that takes the place of one that crashed enough to begin.

            It gets one module then, and a worker begins its last test when it hears of another, or of the
            end: with a module of one test neither would come, and the run would stand still.
            """
            is_replacing = self.collection is not None
            super().schedule()
            if is_replacing:
                super().schedule()

    return Modules(config, log)
