#include "launch.h"

#include <cstdio>

#include "block.h"
#include "fault.h"
#include "log.h"
#include "memory.h"
#include "shared.h"

extern uint3 blockIdx;
extern dim3 blockDim, gridDim;

namespace cpu_cuda {

namespace {

std::string text;

CUresult refuse(const Function& function, const std::string& why) {
  return set_error(CUDA_ERROR_INVALID_VALUE, "kernel " + std::string(function.kernel.name) + ", " +
                                                 why);
}

}  // namespace

const std::string& error_text() { return text; }

CUresult set_error(CUresult code, std::string why) {
  static const std::pair<CUresult, const char*> names[] = {
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}};
  const char* name = "CUDA error";
  for (auto [known, its_name] : names) {
    if (known == code) name = its_name;
  }
  text = std::string(name) + ": " + std::move(why);
  return code;
}

std::recursive_mutex& device_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

CUresult launch(const Function& function, const LaunchShape& shape, void** arguments,
                bool replay) {
  std::lock_guard<std::recursive_mutex> lock(device_mutex());
  CpuCudaLogEntry entry{};
  entry.kind = kCpuCudaLaunch;
  entry.captured = replay ? 2 : 0;
  snprintf(entry.name, sizeof entry.name, "%s", function.kernel.name);
  std::copy(shape.grid, shape.grid + 3, entry.grid);
  std::copy(shape.block, shape.block + 3, entry.block);
  entry.bytes = shape.dynamic_shared;
  entry.overlapped = shape.overlapped;
  log_entry(entry);

  const unsigned* g = shape.grid;
  const unsigned* b = shape.block;
  uint64_t threads = uint64_t{b[0]} * b[1] * b[2];
  if (threads == 0 || threads > kMaxThreads || b[2] > 64) return refuse(function, "block extent");
  if (g[0] == 0 || g[1] == 0 || g[2] == 0 || g[0] > 0x7fffffffu || g[1] > 65535 || g[2] > 65535) {
    return refuse(function, "grid extent");
  }
  if (shape.dynamic_shared > static_cast<size_t>(function.dynamic_shared_limit)) {
    return refuse(function, std::to_string(shape.dynamic_shared) +
                                " bytes of dynamic shared memory, and cuFuncSetAttribute allowed " +
                                std::to_string(function.dynamic_shared_limit));
  }

  BlockRunner& runner = BlockRunner::instance();
  Random random(schedule().seed);
  blockDim = dim3{b[0], b[1], b[2]};
  gridDim = dim3{g[0], g[1], g[2]};
  size_t blocks = size_t{g[0]} * g[1] * g[2];
  Order order = schedule().blocks;
  std::vector<uint32_t> shuffled;
  if (order == Order::kShuffled) shuffled = permutation(order, blocks, random);

  DeviceMemory::Open open;
  runner.begin_launch();
  FaultHandlers handlers;
  Watchdog watchdog;
  shared_begin_launch(shape.dynamic_shared,
                      function.opted_in ? kSharedLimit : kStaticSharedLimit);
  std::string failure;
  CUresult code = CUDA_ERROR_LAUNCH_FAILED;
  for (size_t i = 0; i < blocks && failure.empty(); ++i) {
    size_t n = order == Order::kReversed ? blocks - 1 - i : shuffled.empty() ? i : shuffled[i];
    uint3 index = {static_cast<unsigned>(n % g[0]), static_cast<unsigned>(n / g[0] % g[1]),
                   static_cast<unsigned>(n / g[0] / g[1])};
    shared_begin_block();
    if (!runner.run(function.kernel, arguments, index, blockDim, random)) {
      failure = runner.error();
      break;
    }
    failure = shared_check();
    if (!failure.empty()) {
      failure = "kernel " + std::string(function.kernel.name) + " " + failure;
      code = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }
  std::string fences = DeviceMemory::instance().check_fences();
  if (failure.empty() && !fences.empty()) {
    failure = "kernel " + std::string(function.kernel.name) + " " + fences;
    code = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  fflush(stdout);
  return failure.empty() ? CUDA_SUCCESS : set_error(code, failure);
}

}  // namespace cpu_cuda
