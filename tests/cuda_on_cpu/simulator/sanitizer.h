// AddressSanitizer's interface, called only where the process was started with it.
#pragma once
#include <cstddef>

extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom,
                                                          size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom,
                                                           size_t* size);
__attribute__((weak)) void __asan_poison_memory_region(void const volatile* p, size_t size);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile* p, size_t size);
}

namespace cpu_cuda {

inline bool address_sanitizer() { return __asan_poison_memory_region != nullptr; }

}  // namespace cpu_cuda
