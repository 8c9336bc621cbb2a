#pragma once

#include <vector>

// parameters -= rate * gradients. Returns HIP's error number.
int multi_tensor_sgd_cuda(std::vector<float>& parameters, const std::vector<float>& gradients, float rate);
