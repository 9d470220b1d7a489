// Copies between host and device memory, at once or into a graph.
#pragma once
#include <cuda.h>
#include <driver_types.h>

#include "stream.h"

namespace cpu_cuda {

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream* stream);

}  // namespace cpu_cuda
