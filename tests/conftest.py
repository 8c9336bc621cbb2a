"""What all tests start from: signals as a terminal leaves them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take back signals that are ignored: under nohup, tests that send them would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        signal.signal(hangup, signal.SIG_DFL)
