"""The compiler, the HIP runtime and the tools of ROCm."""
