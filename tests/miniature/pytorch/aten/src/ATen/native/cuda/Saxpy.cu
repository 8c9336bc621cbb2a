#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>

namespace at {
namespace native {

__global__ void saxpy_kernel(int count, float a, const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = a * x[i] + y[i];
}

}  // namespace native

int saxpy_cuda(float a, const Numbers& x, Numbers& y) {
    native::DeviceVector device_x(x.size), device_y(y.size);
    C10_CUDA_RETURN_IF_FAILED(device_x.copy_from(x));
    C10_CUDA_RETURN_IF_FAILED(device_y.copy_from(y));
    native::saxpy_kernel<<<native::blocks_for(x.size), native::block_size>>>(
        static_cast<int>(x.size), a, device_x.data, device_y.data);
    C10_CUDA_RETURN_IF_FAILED(cudaGetLastError());
    return device_y.copy_to(y);
}

}  // namespace at
