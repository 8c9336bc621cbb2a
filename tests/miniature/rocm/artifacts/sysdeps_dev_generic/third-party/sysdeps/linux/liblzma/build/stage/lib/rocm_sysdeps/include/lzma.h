/* A system library as ROCm brings it: its own name, so that it never meets the system's. */
#ifndef ROCM_SYSDEPS_LZMA_H
#define ROCM_SYSDEPS_LZMA_H
#ifdef __cplusplus
extern "C"
#endif
int lzma_get_version(char* text, unsigned size);
#endif
