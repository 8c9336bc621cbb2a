/* libamdhip64 of a machine that has the driver but no GPU: everything is answered, nothing is run.
 *
 * Constructors of libraries with device code register it here when they are loaded. We keep the
 * count and the names, so that a test can see that they did.
 */
#include <stddef.h>
#include <stdio.h>

enum { success = 0, invalid_value = 1, no_device = 100 };
enum { most = 256 };

struct dim3 {
    unsigned x, y, z;
};

static const char* kernels[most];
static int kernel_count;
static int binary_count;

/* The record that clang writes for each source file: it points to the bundle of code objects. */
struct fat_binary {
    unsigned magic, version;
    const void* bundle;
    void* unused;
};

void** __hipRegisterFatBinary(const void* record) {
    static const void* bundles[most];
    const struct fat_binary* binary = record;
    const void** slot = &bundles[binary_count % most];
    *slot = binary->bundle;
    binary_count++;
    return (void**)slot;
}

void __hipUnregisterFatBinary(void** handle) {
    (void)handle;
    binary_count--;
}

void __hipRegisterFunction(void** handle, const void* host, char* device, const char* name, int limit, void* thread,
                           void* block, void* block_size, void* grid_size, int* warp_size) {
    (void)handle, (void)host, (void)device, (void)limit, (void)thread, (void)block, (void)block_size;
    (void)grid_size, (void)warp_size;
    if (kernel_count < most) kernels[kernel_count++] = name;
}

void __hipRegisterVar(void** handle, void* host, char* device, const char* name, int is_extern, size_t bytes,
                      int constant, int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)is_extern, (void)bytes, (void)constant, (void)global;
}

int __hipPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void* stream) {
    (void)grid, (void)block, (void)shared, (void)stream;
    return success;
}

int __hipPopCallConfiguration(struct dim3* grid, struct dim3* block, size_t* shared, void** stream) {
    struct dim3 one = {1, 1, 1};
    *grid = *block = one;
    *shared = 0;
    *stream = NULL;
    return success;
}

int hipLaunchKernel(const void* kernel, struct dim3 grid, struct dim3 block, void** arguments, size_t shared,
                    void* stream) {
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return no_device;
}

int hipGetDeviceCount(int* count) {
    if (count == NULL) return invalid_value;
    *count = 0;
    return no_device;
}

int hipRuntimeGetVersion(int* version) {
    if (version == NULL) return invalid_value;
    *version = HIP_VERSION;
    return success;
}

int hipGetLastError(void) { return no_device; }
int hipDeviceSynchronize(void) { return no_device; }
int hipFree(void* pointer) { return pointer == NULL ? success : invalid_value; }

int hipMalloc(void** pointer, size_t bytes) {
    (void)bytes;
    if (pointer == NULL) return invalid_value;
    *pointer = NULL;
    return no_device;
}

int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
    (void)to, (void)from, (void)bytes, (void)kind;
    return no_device;
}

const char* hipGetErrorString(int error) {
    static char unknown[32];
    if (error == success) return "no error";
    if (error == no_device) return "no ROCm-capable device is detected";
    snprintf(unknown, sizeof unknown, "HIP error %d", error);
    return unknown;
}

/* Not in HIP: what has been registered, for tests. */
int miniature_fat_binaries(void) { return binary_count; }
int miniature_kernels(void) { return kernel_count; }
const char* miniature_kernel(int index) { return index < kernel_count ? kernels[index] : NULL; }
