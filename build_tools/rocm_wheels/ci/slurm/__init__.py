"""A plan as jobs of a Slurm cluster: scripts that call ``run-step``, and what became of each.

The state is what ``squeue`` says and what our jobs write down themselves, never accounting: many sites have
none. The same step of several Pythons is one array of jobs (``arrays``): one call of sbatch, one line in
squeue. Steps that work in one source tree are one at a time in it (``%1``), in whatever order; a step that
needs that of its own Python waits for this task alone (``aftercorr``).
"""
