#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sanitizer.h"

namespace cpu_cuda {

namespace {

constexpr size_t kAlignment = 256;  // what cudaMalloc promises
constexpr size_t kFence = 256;
constexpr int kFenceByte = 0xfe;
// New memory holds NaN in every floating type and -1 in every integer one, because a real
// device's does not hold zeros either.
constexpr int kFreshByte = 0xff;
constexpr size_t kPage = 4096;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

const unsigned char* fence_pattern() {
  static unsigned char pattern[kFence + kAlignment];
  static bool filled = (memset(pattern, kFenceByte, sizeof pattern), true);
  (void)filled;
  return pattern;
}

// The fence behind an allocation begins with its last byte, not with the next aligned address.
size_t back_fence(size_t bytes) { return round_up(bytes, kAlignment) - bytes + kFence; }

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* memory = new DeviceMemory;  // tensors may outlive static destruction
  return *memory;
}

DeviceMemory::DeviceMemory() : limit_(size_t{4} << 30) {}

void DeviceMemory::set_limit(size_t bytes) { limit_ = bytes; }

void DeviceMemory::reserve() {
  // Address space is free: fences and holes must not make a request fail that the limit allows.
  arena_bytes_ = size_t{1} << 36;
  void* p = mmap(nullptr, arena_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (p == MAP_FAILED) {
    arena_bytes_ = 0;
    return;
  }
  arena_ = static_cast<char*>(p);
}

void* DeviceMemory::allocate(size_t bytes) {
  if (bytes == 0) bytes = 1;
  if (bytes > limit_ || in_use_ > limit_ - bytes) return nullptr;
  if (address_sanitizer()) {
    // Its red zones are seen at the access itself. They begin behind the last whole word: an
    // atomic on a byte swaps the word around it, which on a device is always there.
    void* p = nullptr;
    size_t words = round_up(bytes, 4);
    if (posix_memalign(&p, kAlignment, words) != 0) return nullptr;
    memset(p, kFreshByte, bytes);
    memset(static_cast<char*>(p) + bytes, kFenceByte, words - bytes);
    allocations_[reinterpret_cast<uintptr_t>(p)] = bytes;
    in_use_ += bytes;
    return p;
  }
  if (arena_ == nullptr) reserve();
  size_t total = kFence + bytes + back_fence(bytes);
  char* place = nullptr;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < total) continue;
    place = reinterpret_cast<char*>(hole->first);
    size_t left = hole->second - total;
    holes_.erase(hole);
    if (left) holes_[reinterpret_cast<uintptr_t>(place) + total] = left;
    break;
  }
  Open open;
  if (place == nullptr) {
    if (arena_used_ + total > arena_bytes_) return nullptr;
    place = arena_ + arena_used_;
    arena_used_ += total;
    protect(true);
  }
  memset(place, kFenceByte, kFence);
  memset(place + kFence, kFreshByte, bytes);
  memset(place + kFence + bytes, kFenceByte, back_fence(bytes));
  allocations_[reinterpret_cast<uintptr_t>(place + kFence)] = bytes;
  in_use_ += bytes;
  return place + kFence;
}

bool DeviceMemory::free(void* address) {
  auto it = allocations_.find(reinterpret_cast<uintptr_t>(address));
  if (it == allocations_.end()) return false;
  size_t bytes = it->second;
  allocations_.erase(it);
  in_use_ -= bytes;
  if (address_sanitizer()) {
    ::free(address);
    return true;
  }
  uintptr_t begin = reinterpret_cast<uintptr_t>(address) - kFence;
  size_t total = kFence + bytes + back_fence(bytes);
  if (total >= (size_t{1} << 20)) {
    Open open;  // give the pages back: the limit is larger than a small machine's memory
    uintptr_t first = round_up(begin, kPage), last = (begin + total) / kPage * kPage;
    madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && begin + total == next->first) {
    total += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      total += previous->second;
      holes_.erase(previous);
    }
  }
  // The less is in use, the less there is to protect.
  if (begin + total == reinterpret_cast<uintptr_t>(arena_) + arena_used_) {
    arena_used_ = begin - reinterpret_cast<uintptr_t>(arena_);
  } else {
    holes_[begin] = total;
  }
  return true;
}

bool DeviceMemory::contains(const void* address, size_t bytes) const {
  uintptr_t p = reinterpret_cast<uintptr_t>(address);
  auto it = allocations_.upper_bound(p);
  if (it == allocations_.begin()) return false;
  --it;
  return p - it->first <= it->second && bytes <= it->second - (p - it->first);
}

bool DeviceMemory::is_device(const void* address) const {
  const char* p = static_cast<const char*>(address);
  if (arena_ && p >= arena_ && p < arena_ + arena_bytes_) return true;
  return contains(address, 0);
}

std::string DeviceMemory::check_fences() {
  std::string broken;
  bool own = !address_sanitizer();
  for (auto [begin, bytes] : allocations_) {
    char* p = reinterpret_cast<char*>(begin);
    size_t behind = own ? back_fence(bytes) : round_up(bytes, 4) - bytes;
    for (auto [at, size] : {std::pair<char*, size_t>{p - kFence, own ? kFence : 0},
                            std::pair<char*, size_t>{p + bytes, behind}}) {
      if (memcmp(at, fence_pattern(), size) == 0) continue;
      size_t i = 0;
      while (static_cast<unsigned char>(at[i]) == kFenceByte) ++i;
      if (broken.empty()) {
        broken = "wrote out of bounds, at byte offset " + std::to_string(at + i - p) +
                 " of an allocation of " + std::to_string(bytes) + " bytes";
      }
      memset(at, kFenceByte, size);
    }
  }
  return broken;
}

std::string DeviceMemory::describe(const void* address) const {
  char text[160];
  uintptr_t p = reinterpret_cast<uintptr_t>(address);
  snprintf(text, sizeof text, "address %p", address);
  auto it = allocations_.upper_bound(p);
  if (it != allocations_.begin() && is_device(address)) {
    --it;
    snprintf(text, sizeof text, "address %p, byte offset %td of an allocation of %zu bytes",
             address, static_cast<ptrdiff_t>(p - it->first), it->second);
  }
  return text;
}

void DeviceMemory::protect(bool open) {
  if (arena_used_ == 0) return;
  mprotect(arena_, round_up(arena_used_, kPage), open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

DeviceMemory::Open::Open() {
  DeviceMemory& memory = instance();
  if (memory.open_++ == 0) memory.protect(true);
}

DeviceMemory::Open::~Open() {
  DeviceMemory& memory = instance();
  if (--memory.open_ == 0) memory.protect(false);
}

}  // namespace cpu_cuda

extern "C" void cpu_cuda_set_memory_limit(size_t bytes) {
  cpu_cuda::DeviceMemory::instance().set_limit(bytes);
}
extern "C" size_t cpu_cuda_memory_in_use() { return cpu_cuda::DeviceMemory::instance().in_use(); }
