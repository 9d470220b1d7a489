// Shared memory of the block that runs: there is only ever one.
#pragma once
#include <cstddef>
#include <string>

namespace cpu_cuda {

constexpr size_t kStaticSharedLimit = 48 << 10;
constexpr size_t kSharedLimit = 227 << 10;

// A launch begins: static variables get new places. Static and dynamic memory together may take
// what is allowed: 48 KB until cuFuncSetAttribute raises it.
void shared_begin_launch(size_t dynamic_bytes, size_t allowed_bytes);
// A block begins: nothing of the last block's may be left.
void shared_begin_block();
// What the block wrote beside its variables; empty if nothing.
std::string shared_check();

}  // namespace cpu_cuda
