#pragma once

#include <cuda_runtime.h>

// Leave the function with the error number of a call that failed.
#define C10_CUDA_RETURN_IF_FAILED(call)           \
    do {                                          \
        const cudaError_t error = (call);         \
        if (error != cudaSuccess) return error;   \
    } while (0)
