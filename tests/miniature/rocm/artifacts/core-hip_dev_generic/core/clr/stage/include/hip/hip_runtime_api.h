/* The host's side of HIP: plain C. */
#ifndef HIP_HIP_RUNTIME_API_H
#define HIP_HIP_RUNTIME_API_H

#include <hip/hip_version.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidDeviceFunction = 98,
    hipErrorNoDevice = 100,
    hipErrorNoBinaryForGpu = 209
} hipError_t;

typedef enum hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault = 4
} hipMemcpyKind;

typedef struct ihipStream_t* hipStream_t;

typedef struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
#endif
} dim3;

hipError_t hipGetDeviceCount(int* count);
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipGetLastError(void);
hipError_t hipDeviceSynchronize(void);
const char* hipGetErrorString(hipError_t error);
hipError_t hipMalloc(void** pointer, size_t bytes);
hipError_t hipFree(void* pointer);
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);

#ifdef __cplusplus
}
template <typename T>
static inline hipError_t hipMalloc(T** pointer, size_t bytes) {
    return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
#endif
#endif
