#include "block.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "collective.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
int cpu_cuda_atomics_until_yield;

namespace cpu_cuda {

namespace {

// Room for the frames of -O0 and of AddressSanitizer; only what is touched costs memory.
constexpr size_t kStackBytes = 256 << 10;

std::string triple(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

}  // namespace

BlockRunner& BlockRunner::instance() {
  static BlockRunner* runner = new BlockRunner;  // kernels may outlive static destruction
  return *runner;
}

BlockRunner::BlockRunner() : stacks_(kMaxThreads, kStackBytes) {
  fibres_.reserve(kMaxThreads);
}

Fibre* BlockRunner::free_fibre() {
  if (!free_.empty()) {
    Fibre* fibre = free_.back();
    free_.pop_back();
    return fibre;
  }
  size_t i = fibres_.size();
  // Stacks lie a power of two apart, so without a skew the hot ends of all of them would fight
  // for the same lines of the first-level cache.
  fibres_.emplace_back(&BlockRunner::fibre_main, stacks_.stack(i), stacks_.bytes(),
                       i % 31 * 128);
  return &fibres_.back();
}

void BlockRunner::set_up(dim3 extent, Random& random) {
  int count = static_cast<int>(extent.x * extent.y * extent.z);
  random_ = &random;
  order_ = schedule().threads;
  threads_.assign(count, Thread{});
  warps_.resize((count + kWarpSize - 1) / kWarpSize);
  for (Warp& warp : warps_) warp = Warp{};
  for (int i = 0; i < count; ++i) {
    unsigned u = static_cast<unsigned>(i);
    threads_[i].index = {u % extent.x, u / extent.x % extent.y, u / (extent.x * extent.y)};
    threads_[i].warp = i / kWarpSize;
    threads_[i].lane = i % kWarpSize;
    warps_[i / kWarpSize].alive |= 1u << (i % kWarpSize);
  }
  fresh_ = permutation(order_, count, random);
  next_fresh_ = 0;
  ready_.clear();
  living_ = count;
  at_barrier_.clear();
  failed_ = false;
  inside_ = true;
  error_.clear();
}

bool BlockRunner::run(const CpuCudaKernel& kernel, void** arguments, uint3 block, dim3 extent,
                      Random& random) {
  set_up(extent, random);
  kernel_ = &kernel;
  arguments_ = arguments;
  blockIdx = block;
  cpu_cuda_atomics_until_yield = 1 << 12;
  Fibre* first = free_fibre();
  start_ = &threads_[fresh_[next_fresh_++]];
  fibre_ = first;
  outer_.switch_to(*first);
  current_ = nullptr;
  if (failed_) {
    // The others hang in the middle of the kernel, and will not be resumed.
    free_.clear();
    for (Fibre& fibre : fibres_) {
      fibre.reset();
      free_.push_back(&fibre);
    }
  }
  return !failed_;
}

void BlockRunner::fibre_main() { instance().work(); }

// A fibre whose thread has ended runs the next one that has not begun, so that a kernel without
// barriers needs one fibre and no switches.
void BlockRunner::work() {
  Fibre* self = fibre_;
  for (;;) {
    Thread* thread = start_;
    thread->fibre = self;
    enter(thread);
    kernel_->invoke(arguments_);
    inside_ = true;
    finish();
    Thread* next = living_ == 0 ? nullptr : choose(false);
    if (next == nullptr) {
      if (living_ != 0) stuck();
      free_.push_back(self);
      self->switch_to(outer_);
    } else if (next->fibre == nullptr) {
      start_ = next;
    } else {
      free_.push_back(self);
      fibre_ = next->fibre;
      self->switch_to(*next->fibre);
    }
  }
}

void BlockRunner::enter(Thread* thread) {
  current_ = thread;
  threadIdx = thread->index;
  if (time_is_up_) too_slow();
  inside_ = false;
}

Thread* BlockRunner::choose(bool prefer_fresh) {
  bool any_fresh = next_fresh_ < fresh_.size();
  if (ready_.empty() && !any_fresh) return nullptr;
  bool fresh = any_fresh && (ready_.empty() || prefer_fresh);
  if (order_ == Order::kShuffled && any_fresh && !ready_.empty()) fresh = random_->below(2);
  if (fresh) return &threads_[fresh_[next_fresh_++]];
  if (order_ == Order::kShuffled) std::swap(ready_.front(), ready_[random_->below(ready_.size())]);
  Thread* thread = ready_.front();
  ready_.pop_front();
  return thread;
}

// Lets others run until somebody has put the current thread into the ready queue and it is chosen.
void BlockRunner::leave(bool prefer_fresh) {
  Thread* self = current_;
  Thread* next = choose(prefer_fresh);
  if (next == nullptr) stuck();
  if (next != self) {
    Fibre* other = next->fibre;
    if (other == nullptr) {
      start_ = next;
      other = free_fibre();
    }
    fibre_ = other;
    self->fibre->switch_to(*other);
    fibre_ = self->fibre;
  }
  enter(self);
}

void BlockRunner::wake(std::vector<Thread*>& threads) {
  for (Thread* thread : threads) thread->waits_for = nullptr;
  if (order_ == Order::kReversed) std::reverse(threads.begin(), threads.end());
  auto place = order_ == Order::kEager ? ready_.begin() : ready_.end();
  ready_.insert(place, threads.begin(), threads.end());
  threads.clear();
}

void BlockRunner::release_barrier() {
  unsigned outcome = barrier_votes_ | static_cast<unsigned>(at_barrier_.size()) << 16;
  std::sort(at_barrier_.begin(), at_barrier_.end());
  for (Thread* thread : at_barrier_) thread->result = outcome;
  wake(at_barrier_);
}

unsigned BlockRunner::barrier(int predicate, int line) {
  inside_ = true;
  Thread* self = current_;
  if (at_barrier_.empty()) {
    barrier_line_ = line;
    barrier_votes_ = 0;
  } else if (barrier_line_ != line) {
    fail("__syncthreads() at line " + std::to_string(line) + " was reached while other threads" +
         " of the block wait at the one at line " + std::to_string(barrier_line_));
  }
  barrier_votes_ += predicate != 0;
  self->waits_for = "__syncthreads";
  self->line = line;
  at_barrier_.push_back(self);
  if (static_cast<int>(at_barrier_.size()) == living_) release_barrier();
  leave(false);
  return static_cast<unsigned>(self->result);
}

bool BlockRunner::complete(Warp& warp, int first_thread, size_t index) {
  Meeting meeting = warp.meetings[index];
  if ((meeting.mask & warp.alive) != meeting.arrived) return false;
  warp.meetings.erase(warp.meetings.begin() + static_cast<long>(index));
  Thread* lanes[kWarpSize] = {};
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!((meeting.arrived >> lane) & 1u)) continue;
    lanes[lane] = &threads_[first_thread + lane];
    woken_.push_back(lanes[lane]);
  }
  resolve(meeting, lanes);
  wake(woken_);
  return true;
}

uint64_t BlockRunner::collective(int kind, unsigned mask, uint64_t value, unsigned operand,
                                 int width, int line) {
  inside_ = true;
  Thread* self = current_;
  Warp& warp = warps_[self->warp];
  unsigned bit = 1u << self->lane;
  if (!(mask & bit)) {
    fail(std::string(collective_name(kind)) + " at line " + std::to_string(line) +
         ": the calling lane is not in its own mask");
  }
  if (width <= 0 || width > kWarpSize || (width & (width - 1))) {
    fail(std::string(collective_name(kind)) + " at line " + std::to_string(line) +
         ": the width is no power of two up to 32");
  }
  self->value = value;
  self->operand = operand;
  self->width = width;
  self->mask = mask;
  self->line = line;
  self->waits_for = collective_name(kind);
  // CUDA lets a __syncwarp() meet another one elsewhere in the code; everything else must be
  // the same instruction.
  size_t i = 0;
  for (; i < warp.meetings.size(); ++i) {
    Meeting& m = warp.meetings[i];
    if (m.kind == kind && m.mask == mask && !(m.arrived & bit) &&
        (kind == kCpuCudaSyncWarp || m.line == line)) {
      break;
    }
  }
  if (i == warp.meetings.size()) warp.meetings.push_back({kind, line, mask, 0});
  warp.meetings[i].arrived |= bit;
  complete(warp, self->warp * kWarpSize, i);
  leave(false);
  return self->result;
}

void BlockRunner::yield() {
  inside_ = true;
  ready_.push_back(current_);
  leave(true);
}

// A thread that has ended no longer keeps the others waiting.
void BlockRunner::finish() {
  Thread* self = current_;
  self->finished = true;
  --living_;
  if (living_ > 0 && static_cast<int>(at_barrier_.size()) == living_) release_barrier();
  Warp& warp = warps_[self->warp];
  warp.alive &= ~(1u << self->lane);
  for (size_t i = 0; i < warp.meetings.size();) {
    if (!complete(warp, self->warp * kWarpSize, i)) ++i;
  }
}

std::string BlockRunner::where(const Thread& t) const {
  return "block " + triple(blockIdx.x, blockIdx.y, blockIdx.z) + " thread " +
         triple(t.index.x, t.index.y, t.index.z);
}

void BlockRunner::fail(std::string what) {
  inside_ = true;
  if (!failed_) {
    failed_ = true;
    error_ = "kernel " + std::string(kernel_->name) + ", " + where(*current_) + ": " + what;
  }
  fibre_->switch_to(outer_);
  __builtin_unreachable();
}

void BlockRunner::time_is_up(double limit) {
  time_limit_ = limit;
  time_is_up_ = true;
  if (!inside_) too_slow();
}

void BlockRunner::too_slow() {
  fail("still running after " + std::to_string(static_cast<int>(time_limit_)) +
       " s of processor time; does it wait for something that never happens?");
}

void BlockRunner::stuck() {
  std::map<std::string, std::vector<const Thread*>> groups;
  for (const Thread& t : threads_) {
    if (t.finished || !t.waits_for) continue;
    char mask[32] = "";
    if (t.mask && std::string(t.waits_for) != "__syncthreads") {
      snprintf(mask, sizeof mask, " with mask 0x%08x", t.mask);
    }
    groups[std::string(t.waits_for) + mask + " at line " + std::to_string(t.line)].push_back(&t);
  }
  std::string what = "deadlock:";
  for (const auto& [name, waiting] : groups) {
    const uint3& first = waiting.front()->index;
    what += " " + std::to_string(waiting.size()) + " thread(s), the first " +
            triple(first.x, first.y, first.z) + ", wait in " + name + ";";
  }
  int finished = static_cast<int>(threads_.size()) - living_;
  fail(what + " " + std::to_string(finished) + " have ended");
}

}  // namespace cpu_cuda

using cpu_cuda::BlockRunner;

extern "C" {

unsigned cpu_cuda_block_barrier(int predicate, int line) {
  return BlockRunner::instance().barrier(predicate, line);
}

uint64_t cpu_cuda_warp_collective(int kind, unsigned mask, uint64_t value, unsigned operand,
                                  int width, int line) {
  return BlockRunner::instance().collective(kind, mask, value, operand, width, line);
}

unsigned cpu_cuda_met() { return BlockRunner::instance().met(); }

void cpu_cuda_yield() { BlockRunner::instance().yield(); }

void cpu_cuda_yield_at_atomic() {
  // Rarely is enough to end a spin; a shuffled schedule wants it often.
  bool shuffled = cpu_cuda::schedule().threads == cpu_cuda::Order::kShuffled;
  cpu_cuda_atomics_until_yield = shuffled ? 7 : 1 << 12;
  BlockRunner::instance().yield();
}

void cpu_cuda_fail(const char* what, const char* file, int line) {
  BlockRunner::instance().fail(std::string(what) + " (" + file + ":" + std::to_string(line) + ")");
}
}
