// In which order threads and blocks run. A right kernel gives the same answer under any.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cpu_cuda {

// Eager: forward, but whoever can go on does so before others, so that each warp runs up to the
// next barrier of the block while the others stand at the last one.
enum class Order : int { kForward, kReversed, kShuffled, kEager };

struct Schedule {
  Order threads = Order::kForward;
  Order blocks = Order::kForward;
  uint64_t seed = 0;
};

Schedule& schedule();

// A small generator, so that a seed means the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t next();
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }

 private:
  uint64_t state_;
};

std::vector<uint32_t> permutation(Order order, size_t n, Random& random);

}  // namespace cpu_cuda
