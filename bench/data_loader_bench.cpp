// Speed of the data pipeline: data_loader_bench decode|limit|read SPECIFICATION [options].
//
//   decode  images per second through the loader: random crop, flip, normalise to 224 × 224
//   limit   images per second that libjpeg-turbo alone decodes of the same regions, from memory
//   read    bytes per second of records without decoding, every byte touched
//
// Prints one JSON object per run, so that a driver can interleave it with a peer.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "data/image/codec.h"
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

Json rates(uint64_t images, double seconds, double processor) {
  return {{"images", images},
          {"seconds", seconds},
          {"processor_milliseconds_per_image", 1e3 * processor / static_cast<double>(images)},
          {"images_per_second", static_cast<double>(images) / seconds}};
}

Json measure_decoding(std::shared_ptr<const data::RecordSource> source, int workers,
                      uint64_t images) {
  data::LoaderOptions options;
  options.transform = data::photograph_training(224);
  options.batch = 64;
  options.workers = workers;
  data::Loader loader(std::move(source), options);
  data::Batch batch;
  // Starting up is not counted, nor memory that the batches prepared ahead touch once.
  for (int i = 0; i <= options.prefetch; ++i) loader.next(batch);
  const auto start = std::chrono::steady_clock::now();
  const double processor_start = processor_seconds();
  uint64_t done = 0;
  while (done < images && loader.next(batch)) done += static_cast<uint64_t>(batch.valid);
  const double seconds = seconds_since(start);
  const double processor = processor_seconds() - processor_start;
  return rates(done, seconds, processor);
}

// The part that the recipe takes, at the size at which it takes it.
void decode_part(const data::TransformOptions& options, const data::Sample& sample, uint64_t number,
                 std::vector<uint8_t>& storage) {
  data::ImageReader reader(sample);
  const data::PixelRegion region =
      data::choose_region(options, reader.height(), reader.width(), Random(1, number));
  reader.decode(region, options.height, options.width, options.channels, false, storage);
}

Json measure_limit(const data::RecordSource& source, int workers, uint64_t images) {
  const data::TransformOptions options = data::photograph_training(224);
  std::vector<data::Sample> samples;
  for (uint64_t i = 0; i < source.count(); ++i) samples.push_back(source.read(i));
  const auto start = std::chrono::steady_clock::now();
  const double processor_start = processor_seconds();
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      std::vector<uint8_t> storage;
      for (auto i = static_cast<uint64_t>(worker); i < images;
           i += static_cast<uint64_t>(workers)) {
        decode_part(options, samples[i % samples.size()], i, storage);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return rates(images, seconds_since(start), processor_seconds() - processor_start);
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
  if (argc < 3 || (mode != "decode" && mode != "limit" && mode != "read")) {
    std::fputs("usage: data_loader_bench decode|limit|read SPECIFICATION [WORKERS [IMAGES]]\n",
               stderr);
    return 2;
  }
  std::shared_ptr<const data::RecordSource> source = data::open_source(argv[2], data::Split::train);
  const int workers = argc > 3 ? std::atoi(argv[3]) : 2;
  const uint64_t images = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : source->count();
  const Json result = mode == "decode"  ? measure_decoding(source, workers, images)
                      : mode == "limit" ? measure_limit(*source, workers, images)
                                        : measure_reading(*source);
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
