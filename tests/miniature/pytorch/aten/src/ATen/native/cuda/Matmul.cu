#include <ATen/Functions.h>
#include <ATen/native/cuda/DeviceVector.cuh>
#include <minigemm/gemm.cuh>

namespace at {

int matmul_cuda(int m, int n, int k, const Numbers& a, const Numbers& b, Numbers& y) {
    native::DeviceVector device_a(a.size), device_b(b.size), device_y(y.size);
    C10_CUDA_RETURN_IF_FAILED(device_a.copy_from(a));
    C10_CUDA_RETURN_IF_FAILED(device_b.copy_from(b));
    C10_CUDA_RETURN_IF_FAILED(device_y.allocate());
    C10_CUDA_RETURN_IF_FAILED(minigemm::sgemm(m, n, k, device_a.data, device_b.data, device_y.data, cudaStream_t{}));
    return device_y.copy_to(y);
}

}  // namespace at
