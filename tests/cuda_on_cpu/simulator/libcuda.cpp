// The driver API, as far as TVM's runtime calls it. Built as libcuda.so.1.
#include <cuda.h>

#include <cstdio>
#include <cstring>

#include "copy.h"
#include "log.h"
#include "module.h"
#include "stream.h"

using namespace cpu_cuda;

namespace {

// A captured launch outlives the arguments it was called with.
std::function<CUresult()> recorded(const Function& function, const LaunchShape& shape,
                                   void** arguments) {
  std::vector<std::vector<char>> copies;
  for (size_t i = 0; i < function.kernel.argument_count; ++i) {
    const char* p = static_cast<const char*>(arguments[i]);
    copies.emplace_back(p, p + function.kernel.argument_sizes[i]);
  }
  return [&function, shape, copies]() mutable {
    std::vector<void*> pointers;
    for (auto& copy : copies) pointers.push_back(copy.data());
    return launch(function, shape, pointers.data(), true);
  };
}

}  // namespace

extern "C" {

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  snprintf(name, static_cast<size_t>(length), "CPU-executed CUDA");
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  // TVM prints this and nothing else, so it says what is known.
  *name = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : error_text().c_str();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char** text) { return cuGetErrorName(code, text); }

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  Module* loaded = nullptr;
  CUresult code = load_module(&loaded, image);
  *module = reinterpret_cast<CUmodule>(loaded);
  return code;
}

CUresult cuModuleUnload(CUmodule module) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  unload_module(reinterpret_cast<Module*>(module));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto& functions = reinterpret_cast<Module*>(module)->functions;
  auto it = functions.find(name);
  if (it == functions.end()) {
    return set_error(CUDA_ERROR_NOT_FOUND, "no kernel " + std::string(name));
  }
  *function = reinterpret_cast<CUfunction>(&it->second);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > 227 << 10) {
      return set_error(CUDA_ERROR_INVALID_VALUE, std::to_string(value) +
                                                     " bytes of dynamic shared memory; a block " +
                                                     "has 227 KB");
    }
    auto& changed = *reinterpret_cast<Function*>(function);
    changed.dynamic_shared_limit = value;
    changed.opted_in = true;
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** arguments,
                          void**) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  const Function& function = *reinterpret_cast<Function*>(handle);
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    CUlaunchAttributeID id = config->attrs[i].id;
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) shape.overlapped = true;
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE || id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      return set_error(CUDA_ERROR_INVALID_VALUE,
                       "cooperative and cluster launches are not simulated: blocks run one "
                       "after another");
    }
  }
  Stream* stream = stream_of(config->hStream);
  if (stream && stream->capturing) {
    stream->capturing->nodes.push_back(recorded(function, shape, arguments));
    CpuCudaLogEntry entry{};
    entry.kind = kCpuCudaLaunch;
    entry.captured = 1;
    snprintf(entry.name, sizeof entry.name, "%s", function.kernel.name);
    memcpy(entry.grid, shape.grid, sizeof entry.grid);
    memcpy(entry.block, shape.block, sizeof entry.block);
    entry.bytes = shape.dynamic_shared;
    entry.overlapped = shape.overlapped;
    log_entry(entry);
    return CUDA_SUCCESS;
  }
  if (forbidden_by_capture()) {
    return set_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                     "a kernel was launched on another stream during a capture");
  }
  return launch(function, shape, arguments, false);
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(1);  // there is one
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
              cudaMemcpyDefault, stream_of(handle));
}

CUresult cuStreamCreate(CUstream* handle, unsigned) {
  *handle = reinterpret_cast<CUstream>(new Stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) {
  delete stream_of(handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  Stream* stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (capturing_stream()) return CUDA_ERROR_ILLEGAL_STATE;
  begin_capture(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  Stream* stream = stream_of(handle);
  if (!stream || !stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  Graph* captured = end_capture(stream);
  *graph = reinterpret_cast<CUgraph>(captured);
  if (captured) return CUDA_SUCCESS;
  return set_error(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                   "something was done during the capture that no graph can hold");
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(new Graph{*reinterpret_cast<Graph*>(graph)});
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete reinterpret_cast<Graph*>(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  if (forbidden_by_capture()) {
    return set_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a graph launched during a capture");
  }
  log_event(kCpuCudaGraphLaunch, 0);
  for (auto& node : reinterpret_cast<Graph*>(exec)->nodes) {
    if (node() != CUDA_SUCCESS) return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return set_error(CUDA_ERROR_NOT_SUPPORTED, "tensor maps are not simulated");
}
}
