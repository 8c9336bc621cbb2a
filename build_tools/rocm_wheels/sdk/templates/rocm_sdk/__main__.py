"""The command ``rocm-sdk``: where ROCm is, what it is, whether it is whole."""

from __future__ import annotations

import argparse
import json
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run ``rocm-sdk``; returns the exit code."""
    words = _parser().parse_args(arguments)
    try:
        text, code = _answer(words)
    except (ImportError, OSError) as error:
        sys.stderr.write(f"rocm-sdk: {error}\n")
        return 1
    if text:
        sys.stdout.write(f"{text}\n")
    return code


def _answer(words: argparse.Namespace) -> tuple[str, int]:
    """Return what to print, and the exit code."""
    if words.command == "version":
        from ._dist_info import __version__

        return __version__, 0
    if words.command == "targets":
        return targets(), 0
    if words.command == "test":
        from ._checks import report

        return report()
    from ._devel import devel_root

    root = devel_root()
    if words.command == "init":
        return "" if words.quiet else f"the ROCm development tree is {root}", 0
    if words.cmake:
        return str(root / "lib" / "cmake"), 0
    return str(root / "bin") if words.bin else str(root), 0


def targets() -> str:
    """Return the gfx targets of this distribution, separated by semicolons."""
    from ._packages import package_root

    path = package_root("core") / "share" / "therock" / "dist_info.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["dist_amdgpu_targets"])
    except (ValueError, KeyError, TypeError) as cause:
        raise ImportError(f"{path} is damaged; install rocm-sdk-core again") from cause


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rocm-sdk", description="ROCm as Python packages.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    path = commands.add_parser("path", help="print a folder of the development tree")
    which = path.add_mutually_exclusive_group(required=True)
    which.add_argument("--cmake", action="store_true", help="the CMake packages, for CMAKE_PREFIX_PATH")
    which.add_argument("--bin", action="store_true", help="the programs")
    which.add_argument("--root", action="store_true", help="the root, for ROCM_HOME")
    commands.add_parser("version", help="print the version of ROCm")
    commands.add_parser("targets", help="print the gfx targets that it serves")
    init = commands.add_parser("init", help="unpack the development tree; link new device packages into it")
    init.add_argument("--quiet", action="store_true", help="print nothing")
    commands.add_parser("test", help="check that the installation is whole")
    return parser


if __name__ == "__main__":
    sys.exit(main())
