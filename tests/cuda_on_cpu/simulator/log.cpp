#include "log.h"

#include <cstdio>
#include <vector>

namespace {

// A long session that never clears the log must not fill the memory.
constexpr size_t kMost = 1 << 16;

std::vector<CpuCudaLogEntry>& entries() {
  static auto* list = new std::vector<CpuCudaLogEntry>;
  return *list;
}

}  // namespace

namespace cpu_cuda {

void log_entry(const CpuCudaLogEntry& entry) {
  if (entries().size() < kMost) entries().push_back(entry);
}

void log_event(CpuCudaEvent kind, uint64_t bytes, int captured, const char* name) {
  CpuCudaLogEntry entry{};
  entry.kind = kind;
  entry.bytes = bytes;
  entry.captured = captured;
  snprintf(entry.name, sizeof entry.name, "%s", name);
  log_entry(entry);
}

}  // namespace cpu_cuda

extern "C" {
size_t cpu_cuda_log_size() { return entries().size(); }
void cpu_cuda_log_get(size_t i, CpuCudaLogEntry* entry) { *entry = entries()[i]; }
void cpu_cuda_log_clear() { entries().clear(); }
}
