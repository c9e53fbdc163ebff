// Kernels made of a callable: enough for everything that prepares nothing but numbers.
#pragma once

#include <memory>
#include <utility>

#include "kernels/kernel.h"

namespace millrace::kernels {

// Owns `run`, called as run(const KernelArguments&).
template <typename Run>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Run run, uint64_t workspace) : run_(std::move(run)), workspace_(workspace) {}
  uint64_t workspace_bytes() const override { return workspace_; }
  void run(const KernelArguments& arguments) override { run_(arguments); }

 private:
  Run run_;
  uint64_t workspace_;
};

template <typename Run>
std::unique_ptr<Kernel> make_function_kernel(Run run, uint64_t workspace = 0) {
  return std::make_unique<FunctionKernel<Run>>(std::move(run), workspace);
}

}  // namespace millrace::kernels
