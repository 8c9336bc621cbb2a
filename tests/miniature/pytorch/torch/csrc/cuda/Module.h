// torch.cuda: what Python sees of the device. hipify translates this file where it lies.
#pragma once

// the name of the runtime; CUuuid is defined in either cuda.h or driver_types.h
inline const char* device_runtime() { return "cudaRuntime"; }
