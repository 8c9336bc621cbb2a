#pragma once

#include <stddef.h>

namespace vision {

// A box is x1, y1, x2, y2, the best one first. keep[i] is 1 unless a better box overlaps box i by more
// than threshold (area of the intersection over area of the union). Returns HIP's error number.
int nms_cuda(size_t count, const float* boxes, float threshold, int* keep);

}  // namespace vision
