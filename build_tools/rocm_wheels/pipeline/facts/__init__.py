"""What is looked up before a plan is made: trees, interpreters, ROCm packages, what was done before."""
