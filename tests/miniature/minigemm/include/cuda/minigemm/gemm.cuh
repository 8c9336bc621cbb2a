#pragma once

#include <cuda_runtime.h>

namespace minigemm {

// y (m × n) = a (m × k) times b (k × n); all row by row, in the memory of the GPU
cudaError_t sgemm(int m, int n, int k, const float* a, const float* b, float* y, cudaStream_t stream);

}  // namespace minigemm
