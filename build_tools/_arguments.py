"""Command lines of the scripts that have the standard library only."""

import argparse
from typing import Any


class OnceParser(argparse.ArgumentParser):
    """A parser that refuses an option given twice; argparse takes the last value, and says nothing."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.register("action", None, _TakeOnce)
        self.register("action", "store_true", _SwitchOnce)


class _TakeOnce(argparse.Action):
    _taken = False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: "str | None" = None) -> None:
        if self._taken and option_string:
            parser.error(f"{option_string} is given more than once; give it once")
        self._taken = True
        setattr(namespace, self.dest, self.nargs == 0 or values)


class _SwitchOnce(_TakeOnce):
    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, default=False, **settings)
