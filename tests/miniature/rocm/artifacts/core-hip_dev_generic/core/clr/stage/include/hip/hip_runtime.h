/* HIP, as much of it as small kernels need.
 *
 * Read by hipcc (once for the host, once for each GPU target) and by plain C and C++
 * compilers, which see the host's side only: `__HIP__` tells them apart.
 */
#ifndef HIP_HIP_RUNTIME_H
#define HIP_HIP_RUNTIME_H

#include <hip/hip_runtime_api.h>

#ifdef __HIP__

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((amdgpu_flat_work_group_size(1, __VA_ARGS__)))

/* <<<grid, block, shared, stream>>> calls these two: clang writes the calls. */
extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0,
                                                 hipStream_t stream = nullptr);
extern "C" hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                      hipStream_t stream);

#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
    (kernel)<<<dim3(grid), dim3(block), (shared), (stream)>>>(__VA_ARGS__)

/* threadIdx.x and its like: reading a member reads a register. The size of a block lies in the
 * packet that started the kernel (three 16-bit numbers at byte 4; HSA, "kernel dispatch packet"). */
struct __hip_thread {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ static unsigned get_x() { return __builtin_amdgcn_workitem_id_x(); }
    __device__ __forceinline__ static unsigned get_y() { return __builtin_amdgcn_workitem_id_y(); }
    __device__ __forceinline__ static unsigned get_z() { return __builtin_amdgcn_workitem_id_z(); }
};
struct __hip_block {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ static unsigned get_x() { return __builtin_amdgcn_workgroup_id_x(); }
    __device__ __forceinline__ static unsigned get_y() { return __builtin_amdgcn_workgroup_id_y(); }
    __device__ __forceinline__ static unsigned get_z() { return __builtin_amdgcn_workgroup_id_z(); }
};
struct __hip_block_size {
    __declspec(property(get = get_x)) unsigned x;
    __declspec(property(get = get_y)) unsigned y;
    __declspec(property(get = get_z)) unsigned z;
    __device__ __forceinline__ static unsigned packet(int index) {
        auto bytes = (const __attribute__((address_space(4))) unsigned short*)__builtin_amdgcn_dispatch_ptr();
        return bytes[2 + index];
    }
    __device__ __forceinline__ static unsigned get_x() { return packet(0); }
    __device__ __forceinline__ static unsigned get_y() { return packet(1); }
    __device__ __forceinline__ static unsigned get_z() { return packet(2); }
};
extern const __device__ __attribute__((weak)) __hip_thread threadIdx;
extern const __device__ __attribute__((weak)) __hip_block blockIdx;
extern const __device__ __attribute__((weak)) __hip_block_size blockDim;

static __device__ __forceinline__ void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ __forceinline__ float __expf(float x) { return __builtin_amdgcn_exp2f(x * 1.44269504f); }
static __device__ __forceinline__ float rsqrtf(float x) { return __builtin_amdgcn_rsqf(x); }

#else

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline

#endif /* __HIP__ */
#endif
