// A compiled kernel module, loaded.
#pragma once
#include <map>
#include <string>

#include "launch.h"

namespace cpu_cuda {

struct Module {
  void* library = nullptr;
  std::string path;
  int file = -1;
  std::map<std::string, Function> functions;
};

// `image` is what the compile callback returned: "cpu-cuda", a 64-bit size, a shared object.
CUresult load_module(Module** module, const void* image);
void unload_module(Module* module);

}  // namespace cpu_cuda
