#include <ATen/Functions.h>
#include <c10/core/Error.h>

namespace at {

void relu_cpu(Numbers& x) {
    C10_CHECK(x.size, "relu of nothing");
    for (size_t i = 0; i < x.size; i++) x.data[i] = x.data[i] > 0.0f ? x.data[i] : 0.0f;
}

}  // namespace at
