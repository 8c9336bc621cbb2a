/* OpenBLAS as ROCm brings it. */
#ifndef HOST_MATH_CBLAS_H
#define HOST_MATH_CBLAS_H
#ifdef __cplusplus
extern "C"
#endif
int openblas_get_version(char* text, unsigned size);
#endif
