#pragma once

#include <stddef.h>

namespace torchaudio {

// The sound of a guitar amplifier that is turned up too far: x - x³ / 3 inside [-1, 1].
void overdrive_cpu(size_t count, float* samples, float gain);

// The same on a GPU. Returns HIP's error number.
int overdrive_cuda(size_t count, float* samples, float gain);

}  // namespace torchaudio
