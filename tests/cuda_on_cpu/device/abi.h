// What a compiled kernel module and the simulated driver say to each other.
#pragma once
#include <cstddef>
#include <cstdint>

// A module exports `const CpuCudaKernel cpu_cuda_kernels[]`, closed by a null name.
struct CpuCudaKernel {
  const char* name;
  void (*invoke)(void** arguments);  // runs one thread
  const size_t* argument_sizes;      // a captured launch has to copy its arguments
  size_t argument_count;
};

enum CpuCudaCollective : int {
  kCpuCudaSyncWarp,
  kCpuCudaShuffle,
  kCpuCudaShuffleUp,
  kCpuCudaShuffleDown,
  kCpuCudaShuffleXor,
  kCpuCudaBallot,
  kCpuCudaMatchAny,
  kCpuCudaReduceAdd,
  kCpuCudaReduceMinSigned,
  kCpuCudaReduceMaxSigned,
  kCpuCudaReduceMinUnsigned,
  kCpuCudaReduceMaxUnsigned,
  kCpuCudaReduceAnd,
  kCpuCudaReduceOr,
  kCpuCudaReduceXor,
};

extern "C" {

// Waits for every living thread of the block. Returns how many gave a nonzero
// predicate, and in the upper 16 bits how many there were.
unsigned cpu_cuda_block_barrier(int predicate, int line);

// Waits for the living lanes in `mask`, and returns what this lane gets. `operand` is the lane,
// delta or lane mask of a shuffle, `width` its segment width. For a vote, the ballot is returned.
uint64_t cpu_cuda_warp_collective(int kind, unsigned mask, uint64_t value, unsigned operand,
                                  int width, int line);

// The mask of the lanes that met in this thread's latest collective.
unsigned cpu_cuda_met();

// Lets the other threads of the block run.
void cpu_cuda_yield();

// Every atomic counts this down, and yields at zero: a loop that spins on atomics ends, and a
// shuffled schedule gets places between the barriers at which to change threads.
extern int cpu_cuda_atomics_until_yield;
void cpu_cuda_yield_at_atomic();

// Ends the launch with an error that quotes `what`. Does not return.
[[noreturn]] void cpu_cuda_fail(const char* what, const char* file, int line);

// Static shared memory is handed out at run time, once for a launch, so that it can be
// poisoned before each block, fenced, and held to the 48 KB that a kernel may have.
extern unsigned cpu_cuda_launch_number;
void* cpu_cuda_static_shared(size_t bytes, size_t alignment);

// `extern __shared__ T x[]` becomes `extern T x[] asm("cpu_cuda_dynamic_shared")`.
extern unsigned char cpu_cuda_dynamic_shared[];
}
