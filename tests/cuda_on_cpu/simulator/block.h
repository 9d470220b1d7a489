// One thread block: its threads as fibres, and what they wait for.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "abi.h"
#include "fibre.h"
#include "schedule.h"
#include "vector_types.h"

namespace cpu_cuda {

constexpr int kWarpSize = 32;
constexpr int kMaxThreads = 1024;

struct Thread {
  uint3 index;
  int warp, lane;
  Fibre* fibre = nullptr;
  bool finished = false;
  // What it waits for, for the deadlock report; null while it can run.
  const char* waits_for = nullptr;
  int line = 0;
  unsigned mask = 0;
  // What it brings to a warp collective and takes from it.
  uint64_t value = 0, result = 0;
  unsigned operand = 0, met = 0;
  int width = kWarpSize;
};

// Lanes of one warp on their way to the same collective.
struct Meeting {
  int kind, line;
  unsigned mask;
  unsigned arrived;
};

struct Warp {
  unsigned alive = 0;
  std::vector<Meeting> meetings;
};

class BlockRunner {
 public:
  // Runs one block to its end. Returns false if it failed; `error()` then says how.
  bool run(const CpuCudaKernel& kernel, void** arguments, uint3 block, dim3 extent,
           Random& random);
  const std::string& error() const { return error_; }
  bool running() const { return current_ != nullptr; }
  // Whether an address lies in the guard pages or stacks of the threads.
  bool is_stack(const void* address) const { return stacks_.contains(address); }

  unsigned barrier(int predicate, int line);
  uint64_t collective(int kind, unsigned mask, uint64_t value, unsigned operand, int width,
                      int line);
  unsigned met() const { return current_->met; }
  void yield();
  [[noreturn]] void fail(std::string what);
  // From a signal handler: fails at once, or as soon as the runner is done with its own data.
  void time_is_up(double limit);
  void begin_launch() { time_is_up_ = false; }

  static BlockRunner& instance();

 private:
  BlockRunner();
  static void fibre_main();
  void set_up(dim3 extent, Random& random);
  void work();
  void enter(Thread* thread);
  // Chooses who runs next; null when nobody can.
  Thread* choose(bool prefer_fresh);
  void leave(bool prefer_fresh);
  void finish();
  void release_barrier();
  bool complete(Warp& warp, int first_thread, size_t meeting);
  void wake(std::vector<Thread*>& threads);
  [[noreturn]] void stuck();
  [[noreturn]] void too_slow();
  Fibre* free_fibre();
  std::string where(const Thread& thread) const;

  StackPool stacks_;
  std::vector<Fibre> fibres_;
  std::vector<Fibre*> free_;
  Fibre outer_;
  Fibre* fibre_ = nullptr;    // that runs now
  Thread* start_ = nullptr;   // whom a free fibre, once entered, is to run

  const CpuCudaKernel* kernel_ = nullptr;
  void** arguments_ = nullptr;
  Random* random_ = nullptr;
  Order order_ = Order::kForward;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<uint32_t> fresh_;  // threads that have not begun, in their order
  size_t next_fresh_ = 0;
  std::deque<Thread*> ready_;
  Thread* current_ = nullptr;
  int living_ = 0;

  std::vector<Thread*> at_barrier_;
  std::vector<Thread*> woken_;  // kept for its storage
  int barrier_line_ = 0;
  unsigned barrier_votes_ = 0;

  // Between a call from the kernel and the return to it.
  volatile bool inside_ = true;
  volatile bool time_is_up_ = false;
  double time_limit_ = 0;

  bool failed_ = false;
  std::string error_;
};

}  // namespace cpu_cuda
