#pragma once

#include <ATen/Functions.h>
#include <c10/cuda/CUDAException.h>

namespace at {
namespace native {

constexpr int block_size = 256;

inline int blocks_for(size_t count) { return static_cast<int>((count + block_size - 1) / block_size); }

// Numbers in the memory of the GPU; given back at the end of the scope.
struct DeviceVector {
    float* data = nullptr;
    size_t bytes;

    explicit DeviceVector(size_t count) : bytes(count * sizeof(float)) {}
    DeviceVector(const DeviceVector&) = delete;
    ~DeviceVector() { (void)cudaFree(data); }

    cudaError_t allocate() { return cudaMalloc(&data, bytes); }
    cudaError_t copy_from(const Numbers& host) {
        C10_CUDA_RETURN_IF_FAILED(allocate());
        return cudaMemcpy(data, host.data, bytes, cudaMemcpyHostToDevice);
    }
    cudaError_t copy_to(Numbers& host) const {
        return cudaMemcpy(host.data, data, bytes, cudaMemcpyDeviceToHost);
    }
};

}  // namespace native
}  // namespace at
