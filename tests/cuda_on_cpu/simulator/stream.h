// Streams, which run everything at once, and graphs, which are lists of what was captured.
#pragma once
#include <functional>
#include <vector>

#include "launch.h"

namespace cpu_cuda {

struct Graph {
  std::vector<std::function<CUresult()>> nodes;
};

struct Stream {
  Graph* capturing = nullptr;
  bool spoiled = false;  // something was done that a capture forbids
};

// Null for the default streams.
Stream* stream_of(void* handle);
// The stream that captures now, if any.
Stream* capturing_stream();
void begin_capture(Stream* stream);
Graph* end_capture(Stream* stream);
// True if a call that may not happen during capture happens during one; spoils the capture.
bool forbidden_by_capture();

}  // namespace cpu_cuda
