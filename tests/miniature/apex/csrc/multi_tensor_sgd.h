#pragma once

#include <stddef.h>

// parameters -= rate * gradients. Returns HIP's error number.
int multi_tensor_sgd_cuda(size_t count, float* parameters, const float* gradients, float rate);
