// Speed of the data pipeline: data_loader_bench decode|read SPECIFICATION [options].
//
//   decode  images per second through the loader: random crop, flip, normalise to 224 × 224
//   read    bytes per second of records without decoding, every byte touched
//
// Prints one JSON object per run, so that a driver can interleave it with a peer.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "base/json.h"
#include "data/loader.h"

namespace millrace {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Processor time of all threads: tells on a busy machine too.
double processor_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Json measure_decoding(std::shared_ptr<const data::RecordSource> source, int workers,
                      uint64_t images) {
  data::LoaderOptions options;
  options.transform = data::photograph_training(224);
  options.batch = 64;
  options.workers = workers;
  data::Loader loader(std::move(source), options);
  data::Batch batch;
  loader.next(batch);  // the first batch pays for starting up
  const auto start = std::chrono::steady_clock::now();
  const double processor_start = processor_seconds();
  uint64_t done = 0;
  while (done < images && loader.next(batch)) done += static_cast<uint64_t>(batch.valid);
  const double seconds = seconds_since(start);
  const double processor = processor_seconds() - processor_start;
  return {{"images", done},
          {"seconds", seconds},
          {"processor_milliseconds_per_image", 1e3 * processor / static_cast<double>(done)},
          {"images_per_second", static_cast<double>(done) / seconds}};
}

Json measure_reading(const data::RecordSource& source) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < source.count(); ++i) {
    const data::Sample sample = source.read(i);
    bytes += sample.bytes.size();
    const auto* data = reinterpret_cast<const uint8_t*>(sample.bytes.data());
    sum = std::accumulate(data, data + sample.bytes.size(), sum);
  }
  const double seconds = seconds_since(start);
  return {{"records", source.count()},
          {"bytes", bytes},
          {"checksum", sum},
          {"seconds", seconds},
          {"gigabytes_per_second", static_cast<double>(bytes) / seconds / 1e9}};
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc < 3 || (mode != "decode" && mode != "read")) {
    std::fputs("usage: data_loader_bench decode|read SPECIFICATION [WORKERS [IMAGES]]\n", stderr);
    return 2;
  }
  std::shared_ptr<const data::RecordSource> source = data::open_source(argv[2], data::Split::train);
  const int workers = argc > 3 ? std::atoi(argv[3]) : 2;
  const uint64_t images = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : source->count();
  const Json result =
      mode == "decode" ? measure_decoding(source, workers, images) : measure_reading(*source);
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  try {
    return millrace::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
