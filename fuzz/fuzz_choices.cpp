// The caches of measurements in the home directory, which anything may have written.
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_target.h"
#include "kernels/convolution_choices.h"
#include "mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const int file = ::memfd_create("choices", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  refuse_or_accept([&] {
    const kernels::ConvolutionChoices choices(fmt::format("/proc/self/fd/{}", file), "a processor");
    sink = choices.warning().size();
  });
  ::close(file);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_json(data, size, most, seed);
}
