"""Source trees: which commit of which repository, checked out, patched and hipified.

A ``Pin`` says which commit (options, torch's pins, release line, recipe: ``pins``); a ``Lock`` holds pins
for all projects (``lock``, ``resolve_lock``, ``lock_diff``). ``checkout`` brings a working tree to a pin:
commits come by ``network`` and ``mirrors``, submodules by ``submodules``, files by ``tree_writer``;
``patches`` and ``hipify`` commit on top, tagged with the names of TheRock. What was left is a
``CheckoutState``; ``tree_identity`` says what a tree holds now, and ``own_work`` keeps what somebody else
put there.
"""
