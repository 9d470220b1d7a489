// The runtime API, as far as TVM's runtime calls it. Built as libcudart.so.13.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "copy.h"
#include "log.h"
#include "memory.h"
#include "stream.h"

using namespace cpu_cuda;

namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::lock_guard<std::recursive_mutex>;

// As an H200 has, so that grids sized by it are the real ones.
constexpr int kMultiProcessors = 132;

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t report(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

struct Event {
  Clock::time_point when;
};

Stream* stream(cudaStream_t handle) { return stream_of(handle); }

// The numbers of both APIs agree.
cudaError_t same(CUresult code) { return report(static_cast<cudaError_t>(code)); }

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = 64;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiProcessors;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = 65536;
      break;
    case cudaDevAttrClockRate:
      *value = 1000000;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = cudaDeviceProp{};
  strcpy(properties->name, "CPU-executed CUDA");
  properties->totalGlobalMem = DeviceMemory::instance().limit();
  properties->major = 9;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->multiProcessorCount = kMultiProcessors;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = DeviceMemory::instance().limit();
  size_t used = DeviceMemory::instance().in_use();
  *free = used < *total ? *total - used : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  Lock lock(device_mutex());
  if (forbidden_by_capture()) return report(cudaErrorStreamCaptureUnsupported);
  *address = DeviceMemory::instance().allocate(bytes);
  if (!*address) return report(cudaErrorMemoryAllocation);
  log_event(kCpuCudaAllocate, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  Lock lock(device_mutex());
  if (!address) return cudaSuccess;
  if (!DeviceMemory::instance().free(address)) return report(cudaErrorInvalidValue);
  log_event(kCpuCudaFree, 0);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  *address = malloc(bytes ? bytes : 1);
  return report(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* address) {
  free(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return same(copy(to, from, bytes, kind, stream(handle)));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t handle) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle);
}

cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  *handle = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  return cudaStreamCreate(handle);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  delete stream(handle);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  Lock lock(device_mutex());
  log_event(kCpuCudaSynchronize, 0, 0, "cudaStreamSynchronize");
  if (forbidden_by_capture()) return report(cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  delete reinterpret_cast<Event*>(handle);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t) {
  reinterpret_cast<Event*>(handle)->when = Clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  Lock lock(device_mutex());
  log_event(kCpuCudaSynchronize, 0, 0, "cudaEventSynchronize");
  if (forbidden_by_capture()) return report(cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  std::chrono::duration<float, std::milli> passed =
      reinterpret_cast<Event*>(end)->when - reinterpret_cast<Event*>(begin)->when;
  *milliseconds = passed.count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  return same(cuStreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return same(cuStreamEndCapture(handle, graph));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return same(cuGraphInstantiateWithFlags(exec, graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return same(cuGraphDestroy(graph)); }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return same(cuGraphExecDestroy(exec)); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return same(cuGraphLaunch(exec, handle));
}

cudaError_t cudaGetLastError() {
  cudaError_t code = last_error;
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return error_text().c_str();
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureImplicit:
      return "cudaErrorStreamCaptureImplicit";
    default:
      return "a CUDA error";
  }
}

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(code);
}
}
