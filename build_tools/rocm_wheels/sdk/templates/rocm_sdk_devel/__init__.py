"""Headers, CMake packages and links of ROCm, as an archive that ``rocm-sdk init`` unpacks."""
