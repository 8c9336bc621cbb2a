// The functions of this library. Those ending in _cuda run on a GPU and return HIP's error
// number: 0 when all went well, 100 without a GPU.
#pragma once

#include <stddef.h>

namespace at {

extern const char* const operators[];  // the names of all of them, then a null

// Numbers of the host. Every pass over a kernel file would read <vector>, for ten times as long as all else.
struct Numbers {
    const size_t size;
    float* const data;

    explicit Numbers(size_t count) : size(count), data(new float[count]) {}
    Numbers(const Numbers&) = delete;
    ~Numbers() { delete[] data; }
};

void relu_cpu(Numbers& x);

// y = a * x + y
int saxpy_cuda(float a, const Numbers& x, Numbers& y);
int relu_cuda(Numbers& x);
int sum_cuda(const Numbers& x, float& sum);
// y (columns × rows) = x (rows × columns), transposed
int transpose_cuda(int rows, int columns, const Numbers& x, Numbers& y);
// y (m × n) = a (m × k) times b (k × n)
int matmul_cuda(int m, int n, int k, const Numbers& a, const Numbers& b, Numbers& y);

namespace cuda {
int device_count();
}  // namespace cuda
}  // namespace at
