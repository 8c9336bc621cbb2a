"""What the words of the project mean: frozen records, read from recipes and from the tables in ``data/``,
and rules about them.

``Project`` is a recipe, ``GfxTarget`` a GPU target, ``TorchLine`` a release line, ``Lock`` a set of
sources, ``TorchBuild`` a torch that exists in a ``PackageIndex``. A table is read once (``load_…``),
typed where code reads it; its facts say who says so (``FactSource``). ``fact_tables`` has each as text.
"""
