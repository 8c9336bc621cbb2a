"""The host's extension under its old name; its first use compiles it."""


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    from apex.op_builder import load

    return getattr(load("apex_C"), name)
