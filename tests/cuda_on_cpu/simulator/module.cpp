#include "module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "sanitizer.h"

namespace cpu_cuda {

namespace {

constexpr char kMagic[] = "cpu-cuda";

std::set<std::string>& loaded_paths() {
  static auto* paths = new std::set<std::string>;
  return *paths;
}

bool write_all(int file, const char* data, size_t bytes) {
  while (bytes) {
    ssize_t n = write(file, data, bytes);
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

CUresult load_module(Module** out, const void* image) {
  const char* p = static_cast<const char*>(image);
  if (memcmp(p, kMagic, 8) != 0) {
    return set_error(CUDA_ERROR_INVALID_IMAGE,
                     "the module was not compiled for the simulated device: "
                     "tvm_callback_cuda_compile is not cuda_on_cpu's");
  }
  uint64_t bytes;
  memcpy(&bytes, p + 8, sizeof bytes);
  // Every load gets a file of its own: the loader gives one handle, and so one set of
  // __device__ variables, to all that open the same file.
  int file = memfd_create("cuda_on_cpu_module", MFD_CLOEXEC);
  if (file < 0 || !write_all(file, p + 16, bytes)) {
    if (file >= 0) close(file);
    return set_error(CUDA_ERROR_INVALID_IMAGE, "cannot write the module");
  }
  // The loader also takes a file for another by its path, and descriptors are used again: more
  // slashes make another path to the same place.
  std::string path = "/proc/self/fd/" + std::to_string(file);
  while (loaded_paths().count(path)) path.insert(0, "/");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::string why = dlerror();
    close(file);
    return set_error(CUDA_ERROR_INVALID_IMAGE, why);
  }
  Module* module = new Module;
  module->library = library;
  module->path = path;
  loaded_paths().insert(path);
  module->file = file;
  if (!address_sanitizer()) {  // which reads the file again when it reports
    close(file);
    module->file = -1;
  }
  auto* kernel = static_cast<const CpuCudaKernel*>(dlsym(library, "cpu_cuda_kernels"));
  for (; kernel && kernel->name; ++kernel) module->functions[kernel->name].kernel = *kernel;
  *out = module;
  return CUDA_SUCCESS;
}

void unload_module(Module* module) {
  // To describe an address, AddressSanitizer reads about every variable it was ever told of, those
  // of closed libraries too, and then dies instead of reporting: there modules stay.
  if (!address_sanitizer()) {
    dlclose(module->library);
    loaded_paths().erase(module->path);
  }
  if (module->file >= 0) close(module->file);
  delete module;
}

}  // namespace cpu_cuda
