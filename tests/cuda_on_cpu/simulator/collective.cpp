#include "collective.h"

namespace cpu_cuda {

namespace {

// CUDA leaves the value of a lane that takes no part undefined: make sure nobody likes it.
constexpr uint64_t kUndefined = 0xbad1bad2bad3bad4u;

// The source lane of a shuffle, with the clamping of PTX's shfl.sync.
int shuffle_source(int kind, int lane, unsigned operand, int width) {
  int first = lane & ~(width - 1), last = lane | (width - 1);
  int b = static_cast<int>(operand & 31u);
  int source = lane;
  switch (kind) {
    case kCpuCudaShuffle:
      return first | (b & (width - 1));
    case kCpuCudaShuffleUp:
      source = lane - b;
      return source >= first ? source : lane;
    case kCpuCudaShuffleDown:
      source = lane + b;
      return source <= last ? source : lane;
    default:
      source = lane ^ b;
      return source <= last ? source : lane;
  }
}

uint32_t reduce(int kind, uint32_t a, uint32_t b) {
  int32_t sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (kind) {
    case kCpuCudaReduceAdd:
      return a + b;
    case kCpuCudaReduceMinSigned:
      return sa < sb ? a : b;
    case kCpuCudaReduceMaxSigned:
      return sa > sb ? a : b;
    case kCpuCudaReduceMinUnsigned:
      return a < b ? a : b;
    case kCpuCudaReduceMaxUnsigned:
      return a > b ? a : b;
    case kCpuCudaReduceAnd:
      return a & b;
    case kCpuCudaReduceOr:
      return a | b;
    default:
      return a ^ b;
  }
}

}  // namespace

const char* collective_name(int kind) {
  static const char* const names[] = {
      "__syncwarp",        "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",
      "__shfl_xor_sync",   "__ballot_sync or a vote", "__match_any_sync", "__reduce_add_sync",
      "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
  return names[kind];
}

void resolve(const Meeting& meeting, Thread* const* lanes) {
  auto takes_part = [&](int lane) { return (meeting.arrived >> lane) & 1u; };
  uint64_t common = 0;
  bool first = true;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!takes_part(lane)) continue;
    uint64_t value = lanes[lane]->value;
    if (meeting.kind == kCpuCudaBallot) common |= uint64_t{value != 0} << lane;
    if (meeting.kind >= kCpuCudaReduceAdd) {
      common = first ? value
                     : reduce(meeting.kind, static_cast<uint32_t>(common),
                              static_cast<uint32_t>(value));
    }
    first = false;
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!takes_part(lane)) continue;
    Thread& self = *lanes[lane];
    self.met = meeting.arrived;
    self.result = common;
    if (meeting.kind >= kCpuCudaShuffle && meeting.kind <= kCpuCudaShuffleXor) {
      int source = shuffle_source(meeting.kind, lane, self.operand, self.width);
      self.result = takes_part(source) ? lanes[source]->value : kUndefined;
    }
    if (meeting.kind == kCpuCudaMatchAny) {
      self.result = 0;
      for (int other = 0; other < kWarpSize; ++other) {
        if (takes_part(other) && lanes[other]->value == self.value) {
          self.result |= uint64_t{1} << other;
        }
      }
    }
  }
}

}  // namespace cpu_cuda
