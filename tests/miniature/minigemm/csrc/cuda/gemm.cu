#include <minigemm/gemm.cuh>

namespace minigemm {

constexpr int tile = 16;

__global__ void sgemm_kernel(int m, int n, int k, const float* a, const float* b, float* y) {
    __shared__ float left[tile][tile], right[tile][tile];
    const int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += tile) {
        const int ka = start + threadIdx.x, kb = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        right[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < tile; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) y[row * n + column] = sum;
}

cudaError_t sgemm(int m, int n, int k, const float* a, const float* b, float* y, cudaStream_t stream) {
    const dim3 grid((n + tile - 1) / tile, (m + tile - 1) / tile);
    sgemm_kernel<<<grid, dim3(tile, tile), 0, stream>>>(m, n, k, a, b, y);
    return cudaGetLastError();
}

}  // namespace minigemm
