#include <cuda_runtime.h>

#include "../overdrive.h"

namespace torchaudio {

__global__ void overdrive_kernel(int count, float gain, float* samples) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float x = samples[i] * gain;
    x = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
    samples[i] = x - x * x * x / 3.0f;
}

int overdrive_cuda(size_t count, float* samples, float gain) {
    const int block = 256;
    const size_t bytes = count * sizeof(float);
    float* device = nullptr;
    cudaError_t error = cudaMalloc(&device, bytes);
    if (error == cudaSuccess) error = cudaMemcpy(device, samples, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
        overdrive_kernel<<<(count + block - 1) / block, block>>>(count, gain, device);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) error = cudaMemcpy(samples, device, bytes, cudaMemcpyDeviceToHost);
    (void)cudaFree(device);
    return error;
}

}  // namespace torchaudio
