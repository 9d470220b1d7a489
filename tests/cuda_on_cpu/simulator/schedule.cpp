#include "schedule.h"

#include <algorithm>
#include <numeric>

namespace cpu_cuda {

Schedule& schedule() {
  static Schedule instance;
  return instance;
}

uint64_t Random::next() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::vector<uint32_t> permutation(Order order, size_t n, Random& random) {
  std::vector<uint32_t> p(n);
  std::iota(p.begin(), p.end(), 0u);
  if (order == Order::kReversed) std::reverse(p.begin(), p.end());
  if (order == Order::kShuffled) {
    for (size_t i = n; i > 1; --i) std::swap(p[i - 1], p[random.below(i)]);
  }
  return p;
}

}  // namespace cpu_cuda

extern "C" void cpu_cuda_set_schedule(int threads, int blocks, uint64_t seed) {
  cpu_cuda::schedule() = {static_cast<cpu_cuda::Order>(threads),
                          static_cast<cpu_cuda::Order>(blocks), seed};
}
