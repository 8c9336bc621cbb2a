#!/usr/bin/env python3
"""Summarize reports of tests for a job's page at GitHub."""

import _script

if __name__ == "__main__":
    _script.run("rocm_wheels.cli.therock:summary_script")
