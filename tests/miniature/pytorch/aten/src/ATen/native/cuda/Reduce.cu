#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>

namespace at {
namespace native {

// One sum a block: halve the number of threads until one is left.
__global__ void sum_kernel(int count, const float* x, float* sums) {
    __shared__ float part[block_size];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < count ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned half = block_size / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

}  // namespace native

int sum_cuda(const Numbers& x, float& sum) {
    Numbers sums(native::blocks_for(x.size));
    native::DeviceVector device_x(x.size), device_sums(sums.size);
    C10_CUDA_RETURN_IF_FAILED(device_x.copy_from(x));
    C10_CUDA_RETURN_IF_FAILED(device_sums.allocate());
    native::sum_kernel<<<static_cast<unsigned>(sums.size), native::block_size>>>(
        static_cast<int>(x.size), device_x.data, device_sums.data);
    C10_CUDA_RETURN_IF_FAILED(cudaGetLastError());
    C10_CUDA_RETURN_IF_FAILED(device_sums.copy_to(sums));
    sum = 0.0f;
    for (size_t i = 0; i < sums.size; i++) sum += sums.data[i];
    return cudaSuccess;
}

}  // namespace at
