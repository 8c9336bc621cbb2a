#include <ATen/Functions.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace at {
namespace cuda {

int device_count() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess && std::getenv("TORCH_SHOW_DEVICE_ERRORS")) {
        std::fprintf(stderr, "torch: %s\n", cudaGetErrorString(error));
    }
    return error == cudaSuccess ? count : 0;
}

}  // namespace cuda
}  // namespace at
