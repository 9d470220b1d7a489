// A kernel over a grid, now or recorded for later.
#pragma once
#include <cuda.h>

#include <mutex>
#include <string>
#include <vector>

#include "abi.h"

namespace cpu_cuda {

struct Function {
  CpuCudaKernel kernel;
  int dynamic_shared_limit = 48 << 10;  // until cuFuncSetAttribute raises it
  bool opted_in = false;                // whether it did
};

struct LaunchShape {
  unsigned grid[3], block[3];
  size_t dynamic_shared;
  bool overlapped = false;  // it need not wait for the launch before it, but waits itself
};

// Runs to the end, or returns an error whose text error_text() has.
CUresult launch(const Function& function, const LaunchShape& shape, void** arguments, bool replay);

// The text that goes with the latest error, in place of the bare name of its code.
const std::string& error_text();
CUresult set_error(CUresult code, std::string text);

// There is one device and one set of shared variables: one caller at a time.
std::recursive_mutex& device_mutex();

}  // namespace cpu_cuda
