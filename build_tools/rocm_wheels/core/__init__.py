"""What every other room stands on: errors with exit codes, the log, processes, threads, files, YAML
records.

``RocmWheelsError`` and its kinds end a command with an exit code; ``log_note`` and ``log_warning``
print for people, on stderr. Programs are started by ``run_command`` and ``capture_output`` alone. Files
appear complete or not at all (``write_atomically``, ``open_hidden_file``), a folder is held by one run
at a time (``lock_folder``). What people write as YAML becomes a frozen ``Record``, its faults told with
file:line:col. This room imports none of the others.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
