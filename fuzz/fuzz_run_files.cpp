// What `report` finds in a directory: summaries, plans, traces and metrics of any bytes. The first
// byte chooses the name that the rest is given. Files lie in memory and are not flushed, for speed.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz_target.h"
#include "mutator.h"
#include "report/run_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  static const std::filesystem::path directory =
      std::filesystem::path("/dev/shm") / fmt::format("fuzz-run-files-{}", ::getpid());
  if (size == 0) return 0;
  std::filesystem::create_directories(directory);
  const char* names[] = {"run.json", "run.jsonl", "run.trace"};
  const std::filesystem::path path = directory / names[data[0] % 3];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  refuse_or_accept([&] { sink = report::read_runs(path).runs.size(); });
  std::filesystem::remove(path);
  return 0;
}

// The name stays, what the file holds is changed.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  if (size < 2 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, most);
  return 1 + millrace::mutate_json(data + 1, size - 1, most - 1, seed);
}
