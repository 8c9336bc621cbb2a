"""Who runs the steps of a plan, if not this machine: the protocol ``Executor`` and its table ``EXECUTORS``.

A plan file goes in; jobs that call ``run-step`` are submitted in the order of the plan, and the state of each
step is read from the queue and from what its jobs wrote beside the plan. ``slurm``: one job or array task a
step. A new executor is one file and one row of the table.
"""
