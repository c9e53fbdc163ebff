// What `report` finds in a directory: summaries, plans, traces and metrics of any bytes. The first
// byte chooses the name that the rest is given.
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "fuzz_target.h"
#include "report/run_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  static const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-run-files-{}", ::getpid());
  if (size == 0) return 0;
  std::filesystem::create_directories(directory);
  const char* names[] = {"run.json", "run.jsonl", "run.trace"};
  const std::filesystem::path path = directory / names[data[0] % 3];
  write_text(path, {reinterpret_cast<const char*>(data) + 1, size - 1});
  refuse_or_accept([&] { sink = read_runs(path).runs.size(); });
  std::filesystem::remove(path);
  return 0;
}
