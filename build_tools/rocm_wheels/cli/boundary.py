"""The boundary between commands and the shell: exit codes, and how errors look."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

import click

from rocm_wheels.core import environment_numbers, errors, installation, log, progress, shell, user_folders

if TYPE_CHECKING:
    from types import FrameType

    from rocm_wheels.pipeline import forks

INTERRUPTED = 130
PIPE_CLOSED = 141  # as a shell says of a program that SIGPIPE has ended
_STARTED_BY_VARIABLE = "ROCM_WHEELS_STARTED_BY"
_RECORD_VARIABLE = (
    "ROCM_WHEELS_RECORD"  # set for the steps of a run, which says itself that it was interrupted
)
# a terminal that was closed, a session that was lost: nothing that we started may go on alone
_END_SIGNALS = ("SIGTERM", "SIGHUP")


def read_environment() -> dict[str, str]:
    """Return a copy of the process's environment: read here once, handed down from here.

    Settings of all commands in the configuration file stand in it as their variables, where those are not
    set. Raises UsageError for a variable of ours that is to hold a number and holds none; DataError for a
    setting that is none.
    """
    from rocm_wheels.cli import config

    env = dict(os.environ)
    environment_numbers.check_numbers(env)
    return {**{name: text for name, (text, _) in config.read_settings().items()}, **env}


def pop_starting_python(env: MutableMapping[str, str]) -> Path:
    """Return the interpreter that a script was started by, which may have changed to another; else our own.

    The script's note of it is taken out of ``env``: it is not for programs that are started from here.
    """
    return Path(env.pop(_STARTED_BY_VARIABLE, "") or sys.executable)


def read_build_environment() -> dict[str, str]:
    """Return a copy of the process's environment, on Windows with Visual Studio's compilers."""
    from rocm_wheels.compile.variables import add_visual_studio

    return add_visual_studio(leave_shell(read_environment()), sys.platform)


_SHELL_VARIABLE = "ROCM_WHEELS_SHELL"


def enter_shell(env: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` for a shell that is opened from ``env``, with a note of what they were outside."""
    changed = {name: [env.get(name), value] for name, value in variables.items() if env.get(name) != value}
    return {**variables, _SHELL_VARIABLE: json.dumps(changed)}


def leave_shell(env: dict[str, str]) -> dict[str, str]:
    """Return the environment outside a shell of ours: in it a build is what it is anywhere else.

    What somebody has set there since stays.
    """
    note = env.pop(_SHELL_VARIABLE, None)
    if note is None:
        return env
    try:
        changed: dict[str, list[str | None]] = json.loads(note)
        for name, (before, value) in changed.items():
            if env.get(name) == value:
                env.pop(name)
                env.update({} if before is None else {name: before})
    except (ValueError, TypeError, AttributeError) as damage:
        raise errors.UsageError(f"{_SHELL_VARIABLE} is damaged", tip=f"unset {_SHELL_VARIABLE}") from damage
    return env


_MOST_SUMMARY_BYTES = 1 << 20  # of a step: of a longer one GitHub shows nothing at all
_SUMMARY_END = "\n\n**cut here: GitHub takes 1 MiB of a summary**\n"


def append_step_summary(env: Mapping[str, str], text: str) -> None:
    """Append Markdown to the page of a job at GitHub, if there is one; what fails there is a warning.

    What is too long for it is cut, and says so. What no UTF-8 can be made of, as of an odd file name, is
    written with a backslash.
    """
    if page := env.get("GITHUB_STEP_SUMMARY"):
        content = text.encode("utf-8", errors="backslashreplace")
        try:
            with open(page, "ab") as file:
                room = _MOST_SUMMARY_BYTES - os.fstat(file.fileno()).st_size
                if len(content) > room:
                    cut = content[: max(room - len(_SUMMARY_END), 0)].decode("utf-8", errors="ignore")
                    content = f"{cut}{_SUMMARY_END}".encode()
                    log.log_warning("the step summary is cut: GitHub takes 1 MiB of it")
                file.write(content)
        except OSError as failure:
            log.log_warning(f"the step summary cannot be written: {failure.strerror} ({page})")


def format_command_line() -> str:
    """Return the line that people gave, ready for a shell, without credentials."""
    return shell.format_command([Path(sys.argv[0]).name, *sys.argv[1:]])


class Output:
    """A standard stream that ends no command in a traceback when it cannot be written to.

    Of stderr (``number`` 2) messages are lost then, and no result changes; what is lost of stdout is a
    UsageError. A pipe that nobody reads ends us (BrokenPipeError). ``buffer`` takes bytes as they are.
    """

    def __init__(self, stream: Any, number: int = 1) -> None:
        self.stream, self.number = stream, number
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    @property
    def buffer(self) -> Output:
        """The stream of bytes below."""
        return Output(self.stream.buffer, self.number)

    def write(self, text: Any) -> int:
        """Write text."""
        return int(self._try_to(self.stream.write, text))

    def flush(self) -> None:
        """Have it arrive."""
        self._try_to(self.stream.flush)

    def _try_to(self, work: Callable[..., Any], *values: Any) -> Any:
        try:
            if self.failure is None:  # click tries streams, and forgets what it hears
                return work(*values)
        except BrokenPipeError:
            raise
        except OSError as failure:
            self.failure = failure
            _send_nowhere(self.number)  # what is still to be written, when Python ends at the latest
        if self.failure is not None and self.number == 1:
            text = f"cannot write to standard output: {self.failure.strerror}"
            raise errors.UsageError(text, tip="send it to a file, a pipe or /dev/null")
        return sum(map(len, values))


class PrintableOutput(Output):
    """A stream of text with which nothing commands a terminal, but for our colours (``make_printable``)."""

    @property
    def encoding(self) -> str:
        """What the stream says; click goes past a stream that says ASCII."""
        return (
            "utf-8"
            if self.stream.encoding.lower() in ("ascii", "us-ascii", "ansi_x3.4-1968")
            else self.stream.encoding
        )

    def write(self, text: Any) -> int:
        """Write text, as it may be shown."""
        return super().write(log.make_printable(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, as they may be shown."""
        for line in lines:
            self.write(line)


def run_command(command: click.Command, argv: list[str] | None = None) -> int:
    """Run a click command and return its exit code; errors are printed, never raised.

    2 usage or data, 10 sources, 11 SDK, 12 build, 14 audit, 16 checks of an installed torch, 17 the user's
    machine, 18 container engines, 130 interrupted, 141 nobody reads on (`| head`); 1 is a bug and shows its
    traceback.
    """
    _open_missing_streams()
    log.configure_log(os.environ)
    _replace_unprintable()
    with (
        contextlib.redirect_stdout(cast("TextIO", PrintableOutput(sys.stdout))),
        contextlib.redirect_stderr(cast("TextIO", Output(sys.stderr, 2))),
    ):
        return _run_in_boundary(command, argv)


_USED_BY_STEPS = (
    "rocm_wheels.cli.runs",
    "rocm_wheels.audit.verify",
    "rocm_wheels.package.repair",
    "auditwheel.policy",
)


@contextlib.contextmanager
def serve_forks() -> Iterator[forks.ForkServer | None]:
    """Have commands of ours run as forks of this process inside: to be called once all is imported.

    There is no server where forks cannot be; commands are started as programs then.
    """
    from rocm_wheels.cli import main
    from rocm_wheels.pipeline import forks

    def run(words: list[str], env: dict[str, str]) -> int:
        os.environ.clear()
        os.environ.update(env)
        return run_command(main.cli, words)

    with forks.start_fork_server(run, _USED_BY_STEPS) or contextlib.nullcontext() as server:
        yield server


def _open_missing_streams() -> None:
    """Open the descriptors 0 to 2 that the caller has closed; a file would get their numbers, and our output.

    Messages go nowhere. Nothing can be written to a stdout that was closed: who prints a result fails, which
    holds for the programs that we start too.
    """
    access = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for number, (name, flags) in enumerate(access.items()):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            stream = os.fdopen(number, mode, 1, encoding="utf-8", errors="replace", closefd=False)
            setattr(sys, name, stream)


def _run_in_boundary(command: click.Command, argv: list[str] | None) -> int:
    previous = _catch_signals()
    try:
        return _invoke_command(command, argv)
    except (BrokenPipeError, SystemExit) as leave:  # click makes the second of the first
        if (isinstance(leave, SystemExit) and leave.code != 1) or not _leave_closed_pipes():
            raise  # a pipe of ours to another program
        return PIPE_CLOSED
    finally:
        progress.show_live_line("")
        for number, handler in previous.items():
            signal.signal(number, handler)


def _invoke_command(command: click.Command, argv: list[str] | None) -> int:
    """Run a command and print its error, if it is one for people; return the exit code."""
    try:
        _check_current_folder()
        # colours are put in only where they are wanted: click is to leave them
        result = command.main(args=argv, standalone_mode=False, color=True)
        sys.stdout.flush()  # only here can a failure be caught
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (click.Abort, KeyboardInterrupt):
        progress.show_live_line("")
        if _RECORD_VARIABLE not in os.environ:
            log.log_error("interrupted\ntip: run the same command again; it continues where it stopped")
        return INTERRUPTED
    except click.ClickException as click_error:
        progress.show_live_line("")
        click_error.show(file=cast("TextIO", PrintableOutput(sys.stderr)))
        return click_error.exit_code
    except (errors.RocmWheelsError, OSError, ModuleNotFoundError, RuntimeError) as failure:
        error_shown = failure if isinstance(failure, errors.RocmWheelsError) else _convert_failure(failure)
        if error_shown is None:
            raise
        progress.show_live_line("")
        log.log_error(installation.adapt_commands(errors.explain_error(error_shown)))
        return error_shown.exit_code


def _check_current_folder() -> None:
    """Raise UsageError where the current folder is gone: nothing can be looked for in it."""
    try:
        Path.cwd()
    except OSError as gone:
        raise errors.UsageError(
            f"the current folder cannot be read: {gone.strerror}", tip="cd to a folder that is there"
        ) from None


def _convert_failure(failure: Exception) -> errors.RocmWheelsError | None:
    """Return what is shown of a failure that is the machine's, or an extra's; ``None``: it is a bug."""
    if isinstance(failure, ModuleNotFoundError):
        return installation.explain_missing_module(failure)
    if isinstance(failure, OSError):
        return convert_disk_error(failure)
    if "home directory" in str(failure):  # of pathlib
        return errors.UsageError("a home folder cannot be found", tip="set HOME, or write paths without ~")
    return None


def _send_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _leave_closed_pipes() -> bool:
    """Tell whether nobody reads stdout or stderr on; what is still printed there goes nowhere."""
    closed = [number for number in (1, 2) if _is_closed_pipe(number)]
    for number in closed:
        _send_nowhere(number)
    return bool(closed)


def _is_closed_pipe(number: int) -> bool:
    if not hasattr(select, "poll"):
        return True  # Windows: there is nobody to ask
    look = select.poll()
    look.register(number, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))


def _replace_unprintable() -> None:
    """Have stdout show ``?`` for what its encoding has not: in a pipe on Windows, or an old locale."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _catch_signals() -> dict[int, Any]:
    """Turn signals that would end us at once into an interruption; return the handlers to put back.

    SIGHUP stays ignored where the caller ignores it: nohup says that we are to go on.
    """
    numbers = [getattr(signal, name) for name in _END_SIGNALS if hasattr(signal, name)]
    ignored = [n for n in numbers if n != signal.SIGTERM and signal.getsignal(n) == signal.SIG_IGN]
    return {number: signal.signal(number, _raise_interrupt) for number in numbers if number not in ignored}


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def convert_disk_error(failure: OSError) -> errors.RocmWheelsError | None:
    """Return what is shown of a disk that is full or closed to us; ``None`` for any other failure."""
    if "No usable temporary directory" in str(failure):
        return errors.UsageError(f"{failure.strerror}", tip="set TMPDIR to a folder that is writable")
    if failure.errno not in errors.DISK_TIPS:
        return None
    name = failure.filename2 or failure.filename  # of a copy, the second is what was to be written
    where = f" ({name})" if name else ""
    tip = errors.DISK_TIPS[failure.errno]
    # of a home folder that is closed to us nothing but these need be elsewhere
    folders = (
        ("XDG_CACHE_HOME", user_folders.find_cache_folder),
        ("XDG_STATE_HOME", user_folders.find_state_folder),
    )
    is_closed = failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    for variable, find_folder in folders if is_closed and name else ():
        with contextlib.suppress(RuntimeError):  # of who has no home there is nothing to say
            if Path(os.fsdecode(name)).is_relative_to(find_folder(os.environ, sys.platform).parent):
                tip = f"{variable} names another folder"
    return errors.RocmWheelsError(f"{failure.strerror}{where}", tip=tip)
