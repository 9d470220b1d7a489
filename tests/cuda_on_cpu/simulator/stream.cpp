#include "stream.h"

namespace cpu_cuda {

namespace {

Stream* capturing = nullptr;

}  // namespace

Stream* stream_of(void* handle) {
  // 0, 1 and 2 are the default, the legacy and the per-thread stream.
  return reinterpret_cast<uintptr_t>(handle) <= 2 ? nullptr : static_cast<Stream*>(handle);
}

Stream* capturing_stream() { return capturing; }

void begin_capture(Stream* stream) {
  stream->capturing = new Graph;
  stream->spoiled = false;
  capturing = stream;
}

Graph* end_capture(Stream* stream) {
  Graph* graph = stream->capturing;
  stream->capturing = nullptr;
  capturing = nullptr;
  if (stream->spoiled) {
    delete graph;
    return nullptr;
  }
  return graph;
}

bool forbidden_by_capture() {
  if (!capturing) return false;
  capturing->spoiled = true;
  return true;
}

}  // namespace cpu_cuda
