/* Ranges and marks that a profiler shows. */
#ifndef ROCTRACER_ROCTX_H
#define ROCTRACER_ROCTX_H
#ifdef __cplusplus
extern "C"
#endif
int roctx_get_version(char* text, unsigned size);
#endif
