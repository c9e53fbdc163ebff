// Writes seed inputs for every fuzz target: fuzz_corpus DIRECTORY.
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/formats/face_pairs.h"
#include "data/formats/ofrecord.h"
#include "data/formats/recordio.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "data/safetensors.h"
#include "data/tools.h"
#include "planner/cluster/cluster.h"

namespace millrace {
namespace {

void save(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void make_images(const std::filesystem::path& directory) {
  for (const int channels : {1, 3}) {
    for (const int size : {1, 17, 48}) {
      data::SynthOptions options;
      options.height = size;
      options.width = size + 5;
      options.channels = channels;
      const data::Image image = data::synthesise_image(options, 1);
      const std::string name = fmt::format("{}-{}", channels, size);
      for (const int quality : {30, 90}) {
        save(directory / "jpeg" / fmt::format("{}-{}", name, quality),
             data::encode_jpeg(image.view(), quality));
      }
      save(directory / "png" / name, data::encode_png(image.view()));
    }
  }
}

void make_records(const std::filesystem::path& directory) {
  std::string ofrecord;
  std::string recordio;
  std::string index;
  for (int i = 0; i < 3; ++i) {
    const std::string image = fmt::format("image {} \x0a\x23\xd7\xce tail", i);
    const std::string message = data::encode_ofrecord(std::as_bytes(std::span(image)), i);
    const uint64_t length = message.size();
    ofrecord.append(reinterpret_cast<const char*>(&length), 8);
    ofrecord += message;
    save(directory / "ofrecord" / fmt::format("message-{}", i), std::as_bytes(std::span(message)));
    std::string payload(24, '\0');
    payload[0] = static_cast<char>(i);
    payload += std::string(static_cast<size_t>(4 * i), '\x40') + image;
    index += fmt::format("{}\t{}\n", i, recordio.size());
    recordio += data::encode_recordio(std::as_bytes(std::span(payload)));
  }
  save(directory / "ofrecord" / "file", std::as_bytes(std::span(ofrecord)));
  save(directory / "recordio" / "file", std::as_bytes(std::span(recordio)));
  save(directory / "recordio" / "index", std::as_bytes(std::span(index)));
}

void make_idx(const std::filesystem::path& directory) {
  const std::filesystem::path scratch = directory / "scratch";
  data::SynthOptions options;
  options.count = 4;
  options.height = options.width = 3;
  options.channels = 1;
  data::synth_data("idx:" + scratch.string(), options, {});
  const std::string images = read_text(scratch / "train-images-idx3-ubyte");
  std::string labels = read_text(scratch / "train-labels-idx1-ubyte");
  std::filesystem::remove_all(scratch);
  save(directory / "idx" / "images", std::as_bytes(std::span(images)));
  save(directory / "idx" / "labels", std::as_bytes(std::span(labels)));
  labels.resize(images.size(), '\0');
  const std::string both = images + labels;
  save(directory / "idx" / "both", std::as_bytes(std::span(both)));
  const std::string packed = (directory / "idx" / "packed").string();
  const gzFile file = gzopen(packed.c_str(), "wb");
  if (file == nullptr) fail_input("Cannot write '{}'.", packed);
  gzwrite(file, images.data(), static_cast<unsigned>(images.size()));
  gzclose(file);
}

void make_safetensors(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory / "safetensors");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<data::SafetensorsTensor> tensors = {
      {"weight", "F32", {2, 3}, values.data(), 24},
      {"half", "BF16", {2}, values.data(), 4},
      {"empty", "I64", {0}, nullptr, 0}};
  data::write_safetensors(directory / "safetensors" / "three", tensors, {{"step", "1"}});
  data::write_safetensors(directory / "safetensors" / "none", {}, {});
}

// Blocks of fields, with what they hold as JSON where that is no object.
std::string as_yaml(const Json& json, const std::string& indent) {
  std::string text;
  for (const auto& [name, value] : json.items()) {
    text += indent + name + ":";
    text += value.is_object() ? "\n" + as_yaml(value, indent + "  ") : " " + value.dump() + "\n";
  }
  return text;
}

void make_clusters(const std::filesystem::path& directory) {
  for (const char* folder : {"cluster", "topology"}) {
    std::filesystem::create_directories(directory / folder);
  }
  for (const std::string& name : planner::builtin_cluster_names()) {
    const Json json = planner::describe(planner::find_cluster(name, "--cluster"));
    write_text(directory / "cluster" / name, json.dump());
    write_text(directory / "cluster" / (name + ".yaml"), as_yaml(json, ""));
    std::string header, rows;
    int device = 0;
    for (const Json& row : json["topology"]) {
      header += fmt::format("\tGPU{}", device);
      rows += fmt::format("GPU{} {} 0-7\n", device++, row.get<std::string>());
    }
    write_text(directory / "topology" / name, header + "\tCPU Affinity\n" + rows);
  }
}

void make_face_pairs(const std::filesystem::path& directory) {
  const std::string image = "an image";
  data::FacePairs pairs;
  for (int i = 0; i < 4; ++i) {
    pairs.images.insert(pairs.images.end(), 2, std::as_bytes(std::span(image)));
    pairs.same.push_back(i % 2 == 0);
    const std::string bytes = data::encode_face_pairs(pairs);
    save(directory / "face_pairs" / fmt::format("own-{}", i), std::as_bytes(std::span(bytes)));
  }
  // As Python writes them: with the memo, in one piece each, and as text.
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {"\x80\x02]q\x00(U\x01xq\x01U\x02yzq\x02e]q\x03\x88\x61\x86q\x04."sv,
        "\x80\x05\x95\x20\0\0\0\0\0\0\0]\x94(C\x01x\x94h\x01\x65]\x94\x89\x61\x86\x94."sv,
        "((T\x01\0\0\0xp0\ng0\nl(I1\nlt."sv}) {
    save(directory / "face_pairs" / fmt::format("python-{}", text.size()),
         std::as_bytes(std::span(text)));
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_corpus DIRECTORY\n", stderr);
    return 2;
  }
  try {
    millrace::make_images(argv[1]);
    millrace::make_records(argv[1]);
    millrace::make_idx(argv[1]);
    millrace::make_safetensors(argv[1]);
    millrace::make_clusters(argv[1]);
    millrace::make_face_pairs(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
