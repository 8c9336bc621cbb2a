"""What a run would do: a graph of steps, made from what was asked and looked up, and nothing else."""
