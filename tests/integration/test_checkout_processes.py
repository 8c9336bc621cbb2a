"""How often git is started: what a checkout of many submodules spends its time on, held without a clock."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sources import Tree, Upstream

from rocm_wheels.models import project
from rocm_wheels.sources import checkout, tree_status

SUBMODULES = 2
WHY = """\
{what} started git {count} times, more than the {bound} that a tree with {modules} submodules may take. Each
start is milliseconds, and PyTorch has 40 submodules: ask git for several things at once, or
pass on what was asked already. A step that has to ask more: raise the bound here, and say so. Started were:
{commands}"""


def started(trace: Path) -> Counter[str]:
    """Count the git commands that we started, by what they are; those that git starts are its own affair."""
    found: Counter[str] = Counter()
    for file in trace.iterdir():
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "start" and "/" not in event["sid"]:
                words = event["argv"]
                while words[1] == "-c":
                    words = words[2:]
                found[" ".join(words[1:3])] += 1
    return found


# what → how often git may be started for the root and for each submodule; one of them reads the index, each
# time that the repositories of a tree are listed, and two make a commit with upstream's dates
BOUNDS: dict[str, tuple[int, int]] = {
    "first": (32, 22),  # three for what hipify did there
    "nothing to do": (6, 2),
    "status": (8, 4),
    "another ref": (32, 32),  # twice what there is, own work above all: before a server is asked, and after
    "not hipified": (13, 12),
    "another ref, not hipified": (10, 10),  # and one for one that stays
}


def test_git_is_started_as_often_as_needed(upstream: Upstream, tmp_path: Path) -> None:
    tree = Tree(upstream, tmp_path / "tree")

    def check_out(ref: str, *, hipify: bool = True) -> Callable[[dict[str, str]], object]:
        request = tree.request(ref, hipify=hipify)
        return lambda env: checkout.checkout_project(request, env=env, python=Path(sys.executable))

    runs = {
        "first": check_out("main"),
        "nothing to do": check_out("main"),
        "status": lambda env: tree_status.read_tree_status(
            project.load_project("pytorch"), tmp_path / "tree", env=env
        ),
        "another ref": check_out("feature"),
        "not hipified": check_out("feature", hipify=False),
        "another ref, not hipified": check_out("main", hipify=False),
    }
    assert runs.keys() == BOUNDS.keys()
    for what, run in runs.items():
        trace = tmp_path / what
        trace.mkdir()
        run({**upstream.env, "GIT_TRACE2_EVENT": str(trace)})
        commands = started(trace)
        root, each = BOUNDS[what]
        said = {
            "what": what,
            "count": commands.total(),
            "bound": root + each * SUBMODULES,
            "modules": SUBMODULES,
            "commands": "\n".join(f"{number:4} git {words}" for words, number in commands.most_common()),
        }
        assert 0 < commands.total() <= root + each * SUBMODULES, WHY.format(**said)
