// Counts heap allocations while a training step runs. oneDNN makes a few small ones of its own
// in each call (its argument maps); Millrace itself must make none, and nobody a large one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/parallel.h"
#include "compile/compiler.h"
#include "models/models.h"
#include "runtime/session.h"

namespace {

constexpr size_t kLarge = 4096;
std::atomic<bool> counting = false;
thread_local bool in_team = false;  // others may do as they like
std::atomic<int> ours = 0;
std::atomic<int> large = 0;
std::atomic<int> of_libraries = 0;

bool called_from_kernel_library(void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::strstr(info.dli_fname, "libdnnl") != nullptr ||
         std::strstr(info.dli_fname, "libgomp") != nullptr;
}

void* allocate(size_t size, size_t alignment, void* caller) {
  if (in_team && counting.load(std::memory_order_relaxed)) {
    if (size >= kLarge) ++large;
    if (called_from_kernel_library(caller)) {
      ++of_libraries;
    } else {
      ++ours;
    }
  }
  void* memory = nullptr;
  if (alignment > alignof(std::max_align_t)) {
    if (::posix_memalign(&memory, alignment, size) != 0) memory = nullptr;
  } else {
    memory = std::malloc(size == 0 ? 1 : size);
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, 0, __builtin_return_address(0)); }
void* operator new[](size_t size) { return allocate(size, 0, __builtin_return_address(0)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace millrace::runtime {
namespace {

TEST(Allocation, ATrainingStepAllocatesNothing) {
  models::ModelOptions model_options = models::default_options("resnet18");
  model_options.batch = 4;
  model_options.image = 64;
  compile::CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::winograd;
  options.kernels.threads = 2;
  const compile::Program program =
      compile::compile_training(models::build_model("resnet18", model_options), options);
  backend::Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(1);
  kernels::StepState step = {1, 0, 0.01f};
  session.run(program, step);
  device.run([] { parallel_ranges(2, 0, [](int, int64_t, int64_t) { in_team = true; }); });

  counting = true;
  for (step.step = 1; step.step < 4; ++step.step) session.run(program, step);
  counting = false;
  EXPECT_EQ(ours.load(), 0);
  EXPECT_EQ(large.load(), 0);
  EXPECT_GT(of_libraries.load(), 0) << "the counter did not see oneDNN's own allocations";
}

}  // namespace
}  // namespace millrace::runtime
