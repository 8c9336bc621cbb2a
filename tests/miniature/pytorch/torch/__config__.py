"""How this torch was built."""

from torch import _C


def show():
    """Return it as text."""
    return _C._show_config()
