// What the lanes that met in a warp collective get from it.
#pragma once
#include "block.h"

namespace cpu_cuda {

// `lanes[i]` is lane i of the warp; only those in `meeting.arrived` take part.
void resolve(const Meeting& meeting, Thread* const* lanes);
const char* collective_name(int kind);

}  // namespace cpu_cuda
