#include "data/pickle/pickle.h"
#include "data/weights/torch_file.h"
#include "data/weights/torch_objects.h"
#include "fuzz_target.h"

namespace millrace {
namespace {

void read_all(const std::vector<data::WeightTensor>& tensors) {
  for (const data::WeightTensor& tensor : tensors) {
    if (tensor.elements() > 100'000) continue;
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    data::read_values(tensor, values);
    if (!values.empty()) sink = static_cast<uint64_t>(values.back() != 0);
  }
}

}  // namespace
}  // namespace millrace

// As a file, and as the pickle in one: checksums keep most changes from reaching that.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  refuse_or_accept([&] { read_all(data::parse_torch_file(bytes, "fuzz", size % 2 == 0)); });
  refuse_or_accept([&] {
    const std::vector<std::byte> numbers(64);
    data::TorchMemory memory;
    for (const char* key : {"0", "1", "2", "3"}) memory[key] = numbers;
    read_all(data::state_of(data::read_pickle(bytes), memory));
  });
  return 0;
}
