"""From a source tree to a wheel.

A ``BuildRequest`` says what is built; ``compose_environment`` makes its variables (recipe, SDK, compiler
cache, ``hooks`` of the project); ``build_wheel`` runs the project's own front end in the build tree of its
configuration and returns a ``BuiltWheel``. What went wrong is read from the log (``BuildFailure``).
"""
