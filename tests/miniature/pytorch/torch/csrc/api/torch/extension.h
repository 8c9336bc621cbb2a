// All that an extension needs: compiled against torch/include, linked with c10, torch_cpu and torch_hip.
#pragma once

#include <ATen/Functions.h>
#include <c10/core/Error.h>
