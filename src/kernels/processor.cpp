#include "kernels/processor.h"

#include <fmt/format.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>

namespace millrace::kernels {
namespace {

// Each set of instructions is a set of bits that contains those of the sets below it.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 >= line.size()) continue;
    const std::string_view key =
        std::string_view(line).substr(0, line.find_last_not_of(" \t:", colon) + 1);
    if (key == "model name" || key == "CPU part" || key == "cpu") return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string processor_description() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}, isa {}, oneDNN {}.{}.{}", processor_name(),
                     static_cast<int>(dnnl::get_effective_cpu_isa()), version->major,
                     version->minor, version->patch);
}

bool has_native_bf16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

bool can_compute_bf16() { return has(dnnl::cpu_isa::avx512_core); }

VectorInstructions vector_instructions() {
  if (has(dnnl::cpu_isa::avx512_core)) return VectorInstructions::avx512;
  if (has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma")) return VectorInstructions::avx2;
  return VectorInstructions::none;
}

}  // namespace millrace::kernels
