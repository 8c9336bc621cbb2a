// The functions of this library. Those ending in _cuda run on a GPU and return HIP's error
// number: 0 when all went well, 100 without a GPU.
#pragma once

#include <vector>

namespace at {

extern const char* const operators[];  // the names of all of them, then a null

std::vector<float> relu_cpu(const std::vector<float>& x);

// y = a * x + y
int saxpy_cuda(float a, const std::vector<float>& x, std::vector<float>& y);
int relu_cuda(std::vector<float>& x);
int sum_cuda(const std::vector<float>& x, float& sum);
// y (columns × rows) = x (rows × columns), transposed
int transpose_cuda(int rows, int columns, const std::vector<float>& x, std::vector<float>& y);
// y (m × n) = a (m × k) times b (k × n)
int matmul_cuda(int m, int n, int k, const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& y);

namespace cuda {
int device_count();
}  // namespace cuda
}  // namespace at
