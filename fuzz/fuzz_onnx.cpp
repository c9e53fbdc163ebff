#include "fuzz_target.h"
#include "models/onnx/importer.h"

// As a file, and as the network in it; data beside the file is a small one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  refuse_or_accept([&] {
    const std::vector<std::byte> beside(4096);
    const models::onnx::Model model =
        models::onnx::parse_model(std::as_bytes(std::span(data, size)), "fuzz",
                                  [&](const std::string&) { return std::span(beside); });
    for (const int64_t classes : {0, 7}) {
      refuse_or_accept([&] {
        graph::Builder net;
        const models::onnx::ImportedNetwork network =
            models::onnx::import_model(model, {.batch = 2, .classes = classes, .image = 0}, net);
        for (const models::onnx::ImportedWeight& weight : network.weights)
          sink = touch(weight.data.bytes);
      });
    }
  });
  return 0;
}
