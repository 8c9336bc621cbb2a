"""ROCm's profilers of applications: rocprofiler-systems and rocprofiler-compute."""
