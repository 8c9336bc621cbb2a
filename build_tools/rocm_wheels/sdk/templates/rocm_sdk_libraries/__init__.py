"""The math and communication libraries of ROCm, without device code."""
