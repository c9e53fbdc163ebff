// Runs a fuzz target without libFuzzer: every corpus file as it is, then mutations of them that
// depend on the run's number alone, half of them made by the target's own mutator if it has one.
// usage: fuzz_X -runs=N CORPUS_DIRECTORY
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "fuzz_target.h"
#include "mutator.h"

namespace {

using millrace::Random;

std::string mutate(const std::vector<std::string>& corpus, uint64_t run) {
  const Random random(0x66757A7A, run);
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) {
    return random.below(draw++, std::max<uint64_t>(1, bound));
  };
  std::string bytes = corpus[below(corpus.size())];
  const uint64_t changes = 1 + below(8);
  for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const uint64_t at = below(bytes.size());
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1 << below(8));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(32)));
        break;
      case 4:
        bytes.erase(at, 1 + below(16));
        break;
      case 5: {
        static constexpr uint32_t kEdges[] = {0,      1,      0x7f,       0xff,
                                              0x7fff, 0xffff, 0x7fffffff, 0xffffffff};
        const uint32_t word = kEdges[below(8)];
        std::memcpy(bytes.data() + at, &word, std::min<uint64_t>(4, bytes.size() - at));
        break;
      }
      default: {
        const std::string& other = corpus[below(corpus.size())];
        const uint64_t from = below(other.size());
        bytes.replace(at, std::string::npos, other.substr(from, below(other.size() - from) + 1));
      }
    }
  }
  return bytes;
}

uint64_t mutations = 0;  // of the run's own mutator, so far

std::string mutate_by_format(const std::vector<std::string>& corpus, uint64_t run) {
  const Random random(0x666F726D, run);
  std::string bytes = corpus[random.below(0, corpus.size())];
  const size_t size = bytes.size();
  bytes.resize(2 * size + 256);
  bytes.resize(LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(bytes.data()), size, bytes.size(),
                                       static_cast<unsigned>(run)));
  return bytes;
}

}  // namespace

extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t most, unsigned) {
  return LLVMFuzzerMutate(data, size, most);
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most) {
  const std::string bytes =
      mutate({std::string(reinterpret_cast<const char*>(data), size)}, ++mutations);
  const size_t kept = std::min(bytes.size(), most);
  std::memcpy(data, bytes.data(), kept);
  return kept;
}

int main(int argc, char** argv) {
  uint64_t runs = 1000000;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "-runs=", 6) == 0) {
      runs = std::strtoull(argv[i] + 6, nullptr, 10);
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        corpus.push_back(millrace::read_text(entry.path()));
      }
    }
  }
  std::sort(corpus.begin(), corpus.end());
  if (corpus.empty()) corpus.emplace_back("\0\0\0\0\0\0\0\0", 8);
  const auto run_one = [](const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  for (const std::string& bytes : corpus) run_one(bytes);
  for (uint64_t run = 0; run < runs; ++run) {
    run_one(run % 2 == 0 ? mutate(corpus, run) : mutate_by_format(corpus, run));
  }
  std::printf("Done %llu runs\n", static_cast<unsigned long long>(runs));
  return 0;
}
