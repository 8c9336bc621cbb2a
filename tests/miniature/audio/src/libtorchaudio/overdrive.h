#pragma once

#include <vector>

namespace torchaudio {

// The sound of a guitar amplifier that is turned up too far: x - x³ / 3 inside [-1, 1].
void overdrive_cpu(std::vector<float>& samples, float gain);

// The same on a GPU. Returns HIP's error number.
int overdrive_cuda(std::vector<float>& samples, float gain);

}  // namespace torchaudio
