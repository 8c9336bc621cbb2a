"""Source trees: which commit of which repository, checked out, patched and hipified.

A ``Pin`` says which commit (options, torch's pins, release line, recipe: ``pins``); a ``Lock`` holds pins
for all projects (``lock``, ``resolve_lock``, ``lock_diff``). ``checkout`` brings a working tree to a pin:
refuse own work (``own_changes``), fetch (``network``, ``mirrors``, ``submodules``), ``git checkout``, ``git
submodule update``; ``patches`` and ``hipify`` commit on top (``commits``), tagged with the names of TheRock.
What was left is a ``CheckoutState``, which also says what is half done; ``trees`` says what is there now.
"""
