#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>

namespace at {
namespace native {

constexpr int tile = 16;

// A tile goes through shared memory, so that both reads and writes are side by side.
__global__ void transpose_kernel(int rows, int columns, const float* x, float* y) {
    __shared__ float part[tile][tile + 1];
    const int column = blockIdx.x * tile + threadIdx.x, row = blockIdx.y * tile + threadIdx.y;
    if (row < rows && column < columns) part[threadIdx.y][threadIdx.x] = x[row * columns + column];
    __syncthreads();
    const int to_column = blockIdx.y * tile + threadIdx.x, to_row = blockIdx.x * tile + threadIdx.y;
    if (to_row < columns && to_column < rows) y[to_row * rows + to_column] = part[threadIdx.x][threadIdx.y];
}

}  // namespace native

int transpose_cuda(int rows, int columns, const Numbers& x, Numbers& y) {
    native::DeviceVector device_x(x.size), device_y(y.size);
    C10_CUDA_RETURN_IF_FAILED(device_x.copy_from(x));
    C10_CUDA_RETURN_IF_FAILED(device_y.allocate());
    const dim3 grid((columns + native::tile - 1) / native::tile, (rows + native::tile - 1) / native::tile);
    native::transpose_kernel<<<grid, dim3(native::tile, native::tile)>>>(rows, columns, device_x.data, device_y.data);
    C10_CUDA_RETURN_IF_FAILED(cudaGetLastError());
    return device_y.copy_to(y);
}

}  // namespace at
