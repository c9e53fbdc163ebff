// Files of flags, for a command that has a flag of each kind.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "cli/config.h"
#include "fuzz_target.h"
#include "mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const int file = ::memfd_create("config", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  CLI::App program;
  CLI::App* train = program.add_subcommand("train");
  std::vector<std::string> configs, lists;
  std::string text, tuned;
  double rate = 0;
  bool quiet = false;
  train->add_option("--config", configs)->allow_extra_args(false);
  train->add_option("--fine-tune", tuned);
  train->add_option("--lr", rate);
  train->add_option("--model", text);
  train->add_option("--lr-milestones", lists)->delimiter(',');
  train->add_flag("--quiet", quiet);
  refuse_or_accept([&] {
    sink = cli::with_config(program, {"train", "--config", fmt::format("/proc/self/fd/{}", file)})
               .size();
  });
  ::close(file);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_parts(millrace::lines_of_text(), data, size, most, seed);
}
