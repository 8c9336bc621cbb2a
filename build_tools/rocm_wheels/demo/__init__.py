"""The inputs of the demonstration: small sources as git repositories, a small ROCm, PyTorch's hipify."""
