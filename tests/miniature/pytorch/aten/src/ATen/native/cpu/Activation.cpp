#include <ATen/Functions.h>
#include <c10/core/Error.h>

#include <cmath>

namespace at {

std::vector<float> silu_cpu(const std::vector<float>& x) {
    C10_CHECK(!x.empty(), "silu of nothing");
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = x[i] / (1.0f + std::exp(-x[i]));
    return y;
}

}  // namespace at
