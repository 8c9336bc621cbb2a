"""The command line: the only place that reads ``os.environ``, prints results and sets exit codes."""
