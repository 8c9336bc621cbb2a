"""Check the command lines of a benchmark before they run: ours, and those of ROCm/TheRock's scripts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CLONE / "tests" / "worlds"))
from commands import find_faults  # noqa: E402

# script: command: options, as TheRock's own --help names them (commit in the file)
PEER_OPTIONS = json.loads((CLONE / "tests" / "data" / "peer_options.json").read_text(encoding="utf-8"))


def check_lines(lines: Iterable[Sequence[str | Path]]) -> None:
    """Print the lines of ours and of the peer; end with 1 when one has a command or option that is not there.

    Lines of other programs are printed alone.
    """
    faults: list[str] = []
    for line in lines:
        words = [str(word) for word in line]
        print(shlex.join(words))
        if words[1:3] == ["-m", "rocm_wheels"]:
            faults += find_faults(shlex.join(["rocm-wheels", *words[3:]]))
        elif len(words) > 1 and Path(words[1]).is_relative_to(CLONE):
            script = Path(words[1]).relative_to(CLONE).as_posix()
            faults += find_faults(shlex.join([script, *words[2:]]))
        elif len(words) > 1 and words[1].endswith(".py") and Path(words[1]).name in PEER_OPTIONS["scripts"]:
            faults += _find_peer_faults(Path(words[1]).name, words[2:])
    if faults:
        sys.exit("\n".join(faults))


def _find_peer_faults(script: str, words: Sequence[str]) -> list[str]:
    commands = PEER_OPTIONS["scripts"][script]
    if not words or words[0] not in commands:
        return [f"TheRock's {script} has no command {' '.join(words[:1])}"]
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return [
        f"TheRock's {script} {words[0]} has no option {option}"
        for option in options
        if option not in commands[words[0]]
    ]
