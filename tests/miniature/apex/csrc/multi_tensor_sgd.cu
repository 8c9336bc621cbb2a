#include <cuda_runtime.h>

#include "multi_tensor_sgd.h"

__global__ void sgd_kernel(int count, float rate, const float* gradients, float* parameters) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += 64 * blockDim.x) {
        parameters[i] -= rate * gradients[i];
    }
}

int multi_tensor_sgd_cuda(size_t count, float* parameters, const float* gradients, float rate) {
    const size_t bytes = count * sizeof(float);
    float *device_parameters = nullptr, *device_gradients = nullptr;
    cudaError_t error = cudaMalloc(&device_parameters, bytes);
    if (error == cudaSuccess) error = cudaMalloc(&device_gradients, bytes);
    if (error == cudaSuccess) error = cudaMemcpy(device_parameters, parameters, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaMemcpy(device_gradients, gradients, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
        sgd_kernel<<<64, 256>>>(static_cast<int>(count), rate, device_gradients, device_parameters);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) error = cudaMemcpy(parameters, device_parameters, bytes, cudaMemcpyDeviceToHost);
    (void)cudaFree(device_parameters);
    (void)cudaFree(device_gradients);
    return error;
}
