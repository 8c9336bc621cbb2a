#pragma once

#include <vector>

namespace vision {

// Boxes are x1, y1, x2, y2, best first. keep[i] is 1 unless a better box overlaps box i by more
// than threshold (area of the intersection over area of the union). Returns HIP's error number.
int nms_cuda(const std::vector<float>& boxes, float threshold, std::vector<int>& keep);

}  // namespace vision
