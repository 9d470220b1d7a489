#include "shared.h"

#include <cstring>

#include "abi.h"
#include "block.h"
#include "sanitizer.h"

unsigned cpu_cuda_launch_number = 0;

namespace {

constexpr size_t kGap = 64;  // between variables, for the fences
constexpr size_t kArena = 2 * cpu_cuda::kStaticSharedLimit;
constexpr size_t kTail = 4096;  // fence behind dynamic shared memory
constexpr int kFenceByte = 0xfe;
constexpr int kFreshByte = 0xcd;  // no NaN: -431602080.0f, and a large negative integer

alignas(1024) unsigned char arena[kArena];
size_t arena_used, static_bytes, dynamic_bytes, allowed_bytes;

}  // namespace

alignas(1024) unsigned char cpu_cuda_dynamic_shared[cpu_cuda::kSharedLimit + kTail];

namespace {

struct Region {
  unsigned char* begin;
  size_t bytes;   // for the kernel
  size_t behind;  // fence
};
std::vector<Region>& regions() {
  static std::vector<Region> list;
  return list;
}

// The kernel may use `bytes` of it; the rest is fence.
void fence(const Region& region) {
  if (cpu_cuda::address_sanitizer()) {
    __asan_unpoison_memory_region(region.begin, region.bytes);
    __asan_poison_memory_region(region.begin + region.bytes, region.behind);
  } else {
    memset(region.begin + region.bytes, kFenceByte, region.behind);
  }
  memset(region.begin, kFreshByte, region.bytes);
}

}  // namespace

namespace cpu_cuda {

void shared_begin_launch(size_t bytes, size_t allowed) {
  ++cpu_cuda_launch_number;
  if (address_sanitizer()) {
    __asan_unpoison_memory_region(arena, sizeof arena);
    __asan_unpoison_memory_region(cpu_cuda_dynamic_shared, sizeof cpu_cuda_dynamic_shared);
  }
  arena_used = static_bytes = 0;
  dynamic_bytes = bytes;
  allowed_bytes = allowed;
  regions().clear();
  regions().push_back({cpu_cuda_dynamic_shared, bytes, kTail});
}

void shared_begin_block() {
  for (const Region& region : regions()) fence(region);
}

std::string shared_check() {
  if (address_sanitizer()) return "";
  for (const Region& region : regions()) {
    for (size_t i = 0; i < region.behind; ++i) {
      if (region.begin[region.bytes + i] == kFenceByte) continue;
      return "wrote out of bounds, at byte offset " + std::to_string(region.bytes + i) + " of " +
             std::to_string(region.bytes) + " bytes of " +
             (region.begin == cpu_cuda_dynamic_shared ? "dynamic" : "static") + " shared memory";
    }
  }
  return "";
}

}  // namespace cpu_cuda

extern "C" void* cpu_cuda_static_shared(size_t bytes, size_t alignment) {
  if (alignment < 8) alignment = 8;  // of AddressSanitizer's shadow
  size_t begin = (arena_used + alignment - 1) / alignment * alignment;
  static_bytes += bytes;
  if (static_bytes > cpu_cuda::kStaticSharedLimit || begin + bytes + 2 * kGap > kArena ||
      static_bytes + dynamic_bytes > allowed_bytes) {
    cpu_cuda::BlockRunner::instance().fail("too much shared memory: " +
                                           std::to_string(static_bytes) + " bytes static and " +
                                           std::to_string(dynamic_bytes) + " dynamic");
  }
  size_t behind = kGap + (8 - bytes % 8) % 8;
  arena_used = begin + bytes + behind;
  regions().push_back({arena + begin, bytes, behind});
  fence(regions().back());
  return arena + begin;
}
