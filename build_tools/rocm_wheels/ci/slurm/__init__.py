"""A plan as jobs of a Slurm cluster: one script a step, which calls ``run-step``, and what became of each.

The state is what ``squeue`` says and what our jobs write down themselves, never accounting: many sites have
none. Single jobs, no arrays: steps of several Pythons or target sets work in one source tree and stand
behind one another, so that an array would run nothing side by side, and each job asks for what its own
step needs.
"""
