// A stack of its own, and the switch from one to another. Nothing here knows of CUDA.
#pragma once
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cpu_cuda {

class Fibre {
 public:
  // The context that the operating system gave us.
  Fibre() = default;
  // A context that will run `entry`, which must never return, on `stack`.
  Fibre(void (*entry)(), char* stack, size_t bytes, size_t skew);

  // Leaves this context for another; returns when somebody switches back.
  void switch_to(Fibre& other);
  // Forgets what ran here, so that the next switch starts `entry` afresh.
  void reset();

  char* stack() const { return stack_; }
  size_t stack_bytes() const { return bytes_; }

 private:
  void (*entry_)() = nullptr;
  char* stack_ = nullptr;
  size_t bytes_ = 0;
  size_t skew_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
  static void begin();
  static void arrive(void* fake_stack);
};

// The stacks of all threads of a block, in one reservation with a guard page under each.
class StackPool {
 public:
  StackPool(size_t count, size_t bytes_each);
  char* stack(size_t i) const { return base_ + i * stride_ + guard_; }
  size_t bytes() const { return stride_ - guard_; }
  bool contains(const void* address) const;

 private:
  char* base_;
  size_t count_, stride_, guard_;
};

}  // namespace cpu_cuda
