#include <cuda_runtime.h>

#include "../nms.h"

namespace vision {

__device__ float overlap(const float* a, const float* b) {
    const float left = a[0] > b[0] ? a[0] : b[0], right = a[2] < b[2] ? a[2] : b[2];
    const float top = a[1] > b[1] ? a[1] : b[1], bottom = a[3] < b[3] ? a[3] : b[3];
    if (right <= left || bottom <= top) return 0.0f;
    const float both = (right - left) * (bottom - top);
    const float area_a = (a[2] - a[0]) * (a[3] - a[1]), area_b = (b[2] - b[0]) * (b[3] - b[1]);
    return both / (area_a + area_b - both);
}

// One block. Box after box: those that are kept strike out the worse ones that they overlap.
__global__ void nms_kernel(int count, const float* boxes, float threshold, int* keep) {
    for (int best = 0; best < count; best++) {
        __syncthreads();
        if (!keep[best]) continue;
        for (int i = best + 1 + threadIdx.x; i < count; i += blockDim.x) {
            if (overlap(boxes + 4 * best, boxes + 4 * i) > threshold) keep[i] = 0;
        }
    }
}

int nms_cuda(size_t count, const float* boxes, float threshold, int* keep) {
    float* device_boxes = nullptr;
    int* device_keep = nullptr;
    const size_t bytes = 4 * count * sizeof(float), flags = count * sizeof(int);
    cudaError_t error = cudaMalloc(&device_boxes, bytes);
    if (error == cudaSuccess) error = cudaMalloc(&device_keep, flags);
    if (error == cudaSuccess) error = cudaMemcpy(device_boxes, boxes, bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaMemcpy(device_keep, keep, flags, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
        nms_kernel<<<1, 256>>>(static_cast<int>(count), device_boxes, threshold, device_keep);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) error = cudaMemcpy(keep, device_keep, flags, cudaMemcpyDeviceToHost);
    (void)cudaFree(device_boxes);
    (void)cudaFree(device_keep);
    return error;
}

}  // namespace vision
