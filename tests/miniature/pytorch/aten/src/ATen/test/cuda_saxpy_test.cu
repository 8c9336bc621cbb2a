// A test program with a kernel of its own: BUILD_TEST compiles it, INSTALL_TEST puts it into torch/test.
#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>

#include <cstdio>

__global__ void count_differences(int count, const float* x, const float* y, float* differences) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) differences[i] = x[i] == y[i] ? 0.0f : 1.0f;
}

static int differences(const std::vector<float>& x, const std::vector<float>& y, std::vector<float>& result) {
    at::native::DeviceVector device_x(x.size()), device_y(y.size()), device_result(x.size());
    C10_CUDA_RETURN_IF_FAILED(device_x.copy_from(x));
    C10_CUDA_RETURN_IF_FAILED(device_y.copy_from(y));
    C10_CUDA_RETURN_IF_FAILED(device_result.allocate());
    count_differences<<<at::native::blocks_for(x.size()), at::native::block_size>>>(
        static_cast<int>(x.size()), device_x.data, device_y.data, device_result.data);
    C10_CUDA_RETURN_IF_FAILED(cudaGetLastError());
    return device_result.copy_to(result);
}

int main() {
    const std::vector<float> x = {1, 2, 3}, expected = {12, 24, 36};
    std::vector<float> y = {10, 20, 30}, result(3);
    if (at::saxpy_cuda(2, x, y) != 0 || differences(y, expected, result) != 0) return 77;  // no GPU: skipped
    for (float difference : result)
        if (difference != 0) return 1;
    std::puts("saxpy is right");
    return 0;
}
