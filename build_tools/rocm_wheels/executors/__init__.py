"""Who runs the steps of a plan, if not this machine: an engine that a plan is written for (``snakemake``)."""
