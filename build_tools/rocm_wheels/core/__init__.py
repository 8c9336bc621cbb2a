"""What every other package uses: errors, the log, processes, threads, files, downloads, YAML.

``RocmWheelsError`` and its kinds end a command with an exit code; ``log_note`` and ``log_warning``
print for people, on stderr. ``run_command`` and ``capture_output`` start programs (``gpus`` has its own).
Files appear complete or not at all (``write_atomically``, ``open_hidden_file``), a folder is held by one
run at a time (``lock_folder``). ``FileDownload`` resumes; ``read_junit_report`` reads JUnit XML. What people
write as YAML becomes a frozen ``Record``, its faults told with file:line:col. ``installation`` tells which
extras are here, and how we were started. This package imports none of the others.
"""
