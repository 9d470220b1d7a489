#include "fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sanitizer.h"

#if defined(__x86_64__)
// swapcontext() saves the signal mask, a system call a switch. Threads of a block switch tens of
// thousands of times a launch and never change it, so only what the calling convention asks for
// is saved here.
extern "C" void cpu_cuda_switch(void** save, void* load);
asm(R"(
.text
.hidden cpu_cuda_switch
.type cpu_cuda_switch, @function
.globl cpu_cuda_switch
cpu_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cpu_cuda_switch, .-cpu_cuda_switch
)");
#endif

namespace cpu_cuda {

namespace {

// The two sides of the latest switch: the entered side has to tell AddressSanitizer of it.
Fibre* left = nullptr;
Fibre* entered = nullptr;
// The extent of the operating system's stack, which AddressSanitizer tells those who leave it.
const void* outer_bottom = nullptr;
size_t outer_bytes = 0;

}  // namespace

Fibre::Fibre(void (*entry)(), char* stack, size_t bytes, size_t skew)
    : entry_(entry), stack_(stack), bytes_(bytes), skew_(skew) {
  reset();
}

void Fibre::arrive(void* fake_stack) {
  if (!address_sanitizer()) return;
  const void* bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
  if (left->stack_ == nullptr) {
    outer_bottom = bottom;
    outer_bytes = bytes;
  }
}

void Fibre::begin() {
  arrive(nullptr);
  entered->entry_();
  abort();
}

void Fibre::reset() {
  fake_stack_ = nullptr;
  // What was running here never returned, so its frames' red zones are still there.
  if (address_sanitizer()) __asan_unpoison_memory_region(stack_, bytes_);
#if defined(__x86_64__)
  uintptr_t top = reinterpret_cast<uintptr_t>(stack_ + bytes_ - skew_) & ~uintptr_t{15};
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // as if called: the stack is 8 off a multiple of 16 at entry
  *--slot = reinterpret_cast<void*>(&Fibre::begin);
  for (int i = 0; i < 6; ++i) *--slot = nullptr;
  stack_pointer_ = slot;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes_ - skew_;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fibre::begin, 0);
#endif
}

void Fibre::switch_to(Fibre& other) {
  left = this;
  entered = &other;
  if (address_sanitizer()) {
    __sanitizer_start_switch_fiber(&fake_stack_, other.stack_ ? other.stack_ : outer_bottom,
                                   other.stack_ ? other.bytes_ : outer_bytes);
  }
#if defined(__x86_64__)
  cpu_cuda_switch(&stack_pointer_, other.stack_pointer_);
#else
  swapcontext(&context_, &other.context_);
#endif
  arrive(fake_stack_);
}

StackPool::StackPool(size_t count, size_t bytes_each) : count_(count) {
  guard_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  stride_ = bytes_each + guard_;
  void* p = mmap(nullptr, count * stride_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    perror("cuda_on_cpu: reserving the threads' stacks");
    abort();
  }
  base_ = static_cast<char*>(p);
  for (size_t i = 0; i < count; ++i) mprotect(base_ + i * stride_, guard_, PROT_NONE);
}

bool StackPool::contains(const void* address) const {
  const char* p = static_cast<const char*>(address);
  return p >= base_ && p < base_ + count_ * stride_;
}

}  // namespace cpu_cuda
