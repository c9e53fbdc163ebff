// Writes a synthetic data set for the benchmarks: data_synth SPECIFICATION COUNT [WIDTH HEIGHT].
#include <cstdio>
#include <cstdlib>

#include "data/tools.h"

int main(int argc, char** argv) {
  try {
    if (argc < 3) {
      std::fputs("usage: data_synth SPECIFICATION COUNT [WIDTH HEIGHT]\n", stderr);
      return 2;
    }
    millrace::data::SynthOptions options;
    options.count = std::strtoull(argv[2], nullptr, 10);
    if (argc > 4) {
      options.width = std::atoi(argv[3]);
      options.height = std::atoi(argv[4]);
    }
    std::puts(millrace::data::synth_data(argv[1], options, {}).dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
