// Device memory: an arena that the host cannot touch, with a fence around every allocation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace cpu_cuda {

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  void set_limit(size_t bytes);
  size_t limit() const { return limit_; }
  size_t in_use() const { return in_use_; }

  // Null when the limit would be passed.
  void* allocate(size_t bytes);
  bool free(void* address);
  // Whether [address, address + bytes) lies in one allocation.
  bool contains(const void* address, size_t bytes) const;
  // Whether the address lies where device memory is handed out.
  bool is_device(const void* address) const;
  // Looks at all fences; empty when they stand. A broken one is mended.
  std::string check_fences();
  // What lies at an address, for an error message.
  std::string describe(const void* address) const;

  // While one of these lives, device memory may be touched.
  class Open {
   public:
    Open();
    ~Open();
  };

 private:
  DeviceMemory();
  void reserve();
  void protect(bool open);

  std::map<uintptr_t, size_t> allocations_;  // begin -> bytes
  std::map<uintptr_t, size_t> holes_;        // in the arena
  size_t limit_, in_use_ = 0;
  char* arena_ = nullptr;
  size_t arena_bytes_ = 0, arena_used_ = 0;
  int open_ = 0;
};

}  // namespace cpu_cuda
