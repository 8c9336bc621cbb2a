// A test program with a kernel of its own: BUILD_TEST compiles it, INSTALL_TEST puts it into torch/test.
#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>

#include <stdio.h>

__global__ void count_differences(int count, const float* x, const float* y, float* differences) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) differences[i] = x[i] == y[i] ? 0.0f : 1.0f;
}

static int differences(const at::Numbers& x, const at::Numbers& y, at::Numbers& result) {
    at::native::DeviceVector device_x(x.size), device_y(y.size), device_result(x.size);
    C10_CUDA_RETURN_IF_FAILED(device_x.copy_from(x));
    C10_CUDA_RETURN_IF_FAILED(device_y.copy_from(y));
    C10_CUDA_RETURN_IF_FAILED(device_result.allocate());
    count_differences<<<at::native::blocks_for(x.size), at::native::block_size>>>(
        static_cast<int>(x.size), device_x.data, device_y.data, device_result.data);
    C10_CUDA_RETURN_IF_FAILED(cudaGetLastError());
    return device_result.copy_to(result);
}

int main() {
    at::Numbers x(3), y(3), expected(3), result(3);
    for (int i = 0; i < 3; i++) {
        x.data[i] = i + 1;
        y.data[i] = 10 * x.data[i];
        expected.data[i] = 12 * x.data[i];
    }
    if (at::saxpy_cuda(2, x, y) != 0 || differences(y, expected, result) != 0) return 77;  // no GPU: skipped
    for (int i = 0; i < 3; i++)
        if (result.data[i] != 0) return 1;
    puts("saxpy is right");
    return 0;
}
