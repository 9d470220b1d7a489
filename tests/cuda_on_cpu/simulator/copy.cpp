#include "copy.h"

#include <cstring>

#include "log.h"
#include "memory.h"

namespace cpu_cuda {

namespace {

CUresult copy_now(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  DeviceMemory& memory = DeviceMemory::instance();
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes == 0) return CUDA_SUCCESS;
  if ((to_device && !memory.contains(to, bytes)) ||
      (from_device && !memory.contains(from, bytes))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DeviceMemory::Open open;
  memmove(to, from, bytes);
  return CUDA_SUCCESS;
}

// What the address says of the memory, as unified addressing does.
cudaMemcpyKind kind_of(void* to, const void* from, size_t bytes) {
  DeviceMemory& memory = DeviceMemory::instance();
  bool to_device = memory.contains(to, bytes), from_device = memory.contains(from, bytes);
  if (to_device) return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

}  // namespace

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream* stream) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  if (kind == cudaMemcpyDefault) kind = kind_of(to, from, bytes);
  bool capture = stream && stream->capturing;
  log_event(kind == cudaMemcpyHostToDevice   ? kCpuCudaCopyToDevice
            : kind == cudaMemcpyDeviceToHost ? kCpuCudaCopyToHost
                                             : kCpuCudaCopyOnDevice,
            bytes, capture);
  if (capture) {
    stream->capturing->nodes.push_back([=] { return copy_now(to, from, bytes, kind); });
    return CUDA_SUCCESS;
  }
  if (forbidden_by_capture()) {
    return set_error(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                     "a copy on another stream during a capture");
  }
  return copy_now(to, from, bytes, kind);
}

}  // namespace cpu_cuda
