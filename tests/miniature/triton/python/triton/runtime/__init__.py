"""What runs on the user's machine."""

import functools


def jit(function):
    """Compile a kernel when it is called; this model only runs it as it is."""

    @functools.wraps(function)
    def call(*arguments, **options):
        return function(*arguments, **options)

    return call
