#include "train/centre_shards.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/file.h"
#include "base/parts.h"
#include "train/checkpoint_directory.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

std::string metadata_of(int64_t begin, int64_t end, int64_t classes) {
  return fmt::format("{} to {} of {}", begin, end, classes);
}

int64_t row_bytes_of(const data::SafetensorsTensor& tensor) {
  int64_t elements = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) elements *= tensor.shape[i];
  return elements * static_cast<int64_t>(data::safetensors_element_size(tensor.dtype));
}

// Calls body(shard, tensor, first row, bytes of some rows) in the order in which shards hold them.
template <typename Body>
void each_piece(const std::vector<int64_t>& bounds,
                const std::vector<data::SafetensorsTensor>& tensors, Body&& body) {
  std::vector<std::byte> bytes;
  for (size_t shard = 0; shard + 1 < bounds.size(); ++shard) {
    for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const int64_t row = row_bytes_of(tensors[tensor]);
      each_few_rows(bounds[shard], bounds[shard + 1], row, [&](int64_t first, int64_t count) {
        bytes.resize(static_cast<size_t>(count * row));
        body(shard, tensor, first, std::span<std::byte>(bytes));
      });
    }
  }
}

}  // namespace

void each_few_rows(int64_t begin, int64_t end, int64_t row_bytes,
                   const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  const int64_t few = std::max<int64_t>(1, kBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t first = begin; first < end; first += few) body(first, std::min(few, end - first));
}

ShardWriter::ShardWriter(std::filesystem::path directory,
                         std::vector<data::SafetensorsTensor> tensors, std::vector<int64_t> bounds)
    : tensors_(std::move(tensors)), bounds_(std::move(bounds)) {
  const size_t count = bounds_.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    std::vector<data::SafetensorsTensor> parts = tensors_;
    for (data::SafetensorsTensor& part : parts) part.shape.at(0) = bounds_[i + 1] - bounds_[i];
    const std::string range = metadata_of(bounds_[i], bounds_[i + 1], bounds_.back());
    files_.push_back(std::make_unique<data::SafetensorsWriter>(
        directory / shard_name(i, count), parts,
        std::map<std::string, std::string>{{"classes", range}}));
  }
}

void ShardWriter::write(const RowSource& source) {
  std::exception_ptr failure;
  each_piece(bounds_, tensors_, [&](size_t shard, size_t tensor, int64_t first, auto bytes) {
    source(tensor, first, bytes);
    if (failure) return;
    try {
      files_[shard]->append(bytes.data(), bytes.size());
    } catch (const InputError&) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

std::vector<CheckpointFile> ShardWriter::commit() {
  std::vector<CheckpointFile> described;
  for (size_t i = 0; i < files_.size(); ++i) {
    const data::SafetensorsWriter::Written written = files_[i]->commit();
    described.push_back({shard_name(i, files_.size()), written.bytes, written.crc32,
                         ClassSpan{bounds_[i], bounds_[i + 1]}});
  }
  return described;
}

ShardReader::ShardReader(const std::filesystem::path& checkpoint, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    if (!file.classes) continue;
    const std::filesystem::path path = checkpoint / file.name;
    const data::SafetensorsFile& shard = files_.emplace_back(path);
    bounds_.push_back(file.classes->end);
    std::vector<data::SafetensorsTensor> tensors;
    for (const data::SafetensorsEntry& entry : shard.entries()) {
      if (entry.shape.empty() || entry.shape[0] != file.classes->end - file.classes->begin) {
        fail_input("'{}' gives tensor '{}' the shape {} but its classes are {} to {}.",
                   path.string(), entry.name, graph::to_string(entry.shape), file.classes->begin,
                   file.classes->end);
      }
      tensors.push_back({.name = entry.name, .dtype = entry.dtype, .shape = entry.shape});
      tensors.back().shape[0] = 0;
    }
    if (files_.size() == 1) tensors_ = tensors;
    const auto same = [](const data::SafetensorsTensor& a, const data::SafetensorsTensor& b) {
      return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
    };
    if (!std::equal(tensors.begin(), tensors.end(), tensors_.begin(), tensors_.end(), same)) {
      fail_input("'{}' does not have the tensors of the checkpoint's first shard.", path.string());
    }
  }
  for (data::SafetensorsTensor& tensor : tensors_) tensor.shape[0] = classes();
}

void ShardReader::read(size_t tensor, int64_t first, std::span<std::byte> bytes) const {
  const int64_t row = row_bytes_of(tensors_[tensor]);
  const int64_t last = first + static_cast<int64_t>(bytes.size()) / row;
  for (size_t i = 0; i < files_.size(); ++i) {
    const int64_t from = std::max(first, bounds_[i]);
    const int64_t to = std::min(last, bounds_[i + 1]);
    if (from >= to) continue;
    const auto part = files_[i].entries()[tensor].data.subspan(
        static_cast<size_t>((from - bounds_[i]) * row), static_cast<size_t>((to - from) * row));
    std::memcpy(bytes.data() + (from - first) * row, part.data(), part.size());
    forget_pages(part);
  }
}

std::vector<data::SafetensorsTensor> centre_tensors(const JobState& state) {
  std::vector<data::SafetensorsTensor> tensors;
  for (const JobTensor& tensor : state.tensors()) {
    if (tensor.in_rows()) tensors.push_back(describe_tensor(tensor));
  }
  return tensors;
}

std::unique_ptr<ShardWriter> write_centres(const JobState& state,
                                           const std::filesystem::path* directory) {
  std::vector<size_t> places;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (state.tensors()[i].in_rows()) places.push_back(i);
  }
  if (places.empty()) return nullptr;
  const std::vector<int64_t> bounds = state.row_bounds(places.front());
  const RowSource source = [&](size_t tensor, int64_t first, std::span<std::byte> bytes) {
    state.read_rows(places[tensor], first, bytes);
  };
  std::unique_ptr<ShardWriter> writer;
  std::exception_ptr failure;
  if (directory != nullptr) {
    try {
      writer = std::make_unique<ShardWriter>(*directory, centre_tensors(state), bounds);
      writer->write(source);
      return writer;
    } catch (const InputError&) {
      if (writer) throw;  // all rows have been asked for
      failure = std::current_exception();
    }
  }
  each_piece(bounds, centre_tensors(state), [&](size_t, size_t tensor, int64_t first, auto bytes) {
    source(tensor, first, bytes);
  });
  if (failure) std::rethrow_exception(failure);
  return nullptr;
}

void load_centres(JobState& state, const std::filesystem::path& checkpoint,
                  const Manifest& manifest) {
  std::unique_ptr<ShardReader> reader;
  std::map<std::string, size_t> numbers;
  if (state.holds_values()) {
    reader = std::make_unique<ShardReader>(checkpoint, manifest);
    for (size_t i = 0; i < reader->tensors().size(); ++i) numbers[reader->tensors()[i].name] = i;
    size_t found = 0;
    for (const data::SafetensorsTensor& wanted : centre_tensors(state)) {
      const auto at = numbers.find(wanted.name);
      const data::SafetensorsTensor* has =
          at == numbers.end() ? nullptr : &reader->tensors()[at->second];
      if (has == nullptr || has->shape != wanted.shape || has->dtype != wanted.dtype) {
        fail_input("'{}' does not fit the model: its shards have {} where {} {} is needed.",
                   checkpoint.string(),
                   has == nullptr ? fmt::format("no tensor '{}'", wanted.name)
                                  : fmt::format("'{}' as {} {}", wanted.name, has->dtype,
                                                graph::to_string(has->shape)),
                   wanted.dtype, graph::to_string(wanted.shape));
      }
      ++found;
    }
    if (found != numbers.size()) {
      fail_input("'{}' does not fit the model: its shards have {} tensors where {} are needed.",
                 checkpoint.string(), numbers.size(), found);
    }
  }
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    const JobTensor& tensor = state.tensors()[i];
    if (!tensor.in_rows()) continue;
    each_few_rows(0, tensor.shape.at(0), tensor.row_bytes(), [&](int64_t first, int64_t count) {
      bytes.resize(static_cast<size_t>(count * tensor.row_bytes()));
      if (reader) reader->read(numbers.at(tensor.name), first, bytes);
      state.write_rows(i, first, bytes);
    });
  }
}

void cut_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& target,
                    int64_t shards) {
  Manifest manifest = verify_checkpoint(checkpoint);
  const ShardReader reader(checkpoint, manifest);
  if (reader.empty()) {
    fail_input("'{}' has no class centres; only a model trained with ‹head› has.",
               checkpoint.string());
  }
  const int64_t most = std::min<int64_t>(reader.classes(), kMostShards);
  if (shards < 1 || shards > most) {
    fail_input("‹shards› is {}; the head's {} classes can lie in 1 to {}.", shards,
               reader.classes(), most);
  }
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i <= shards; ++i)
    bounds.push_back(part_begin(reader.classes(), static_cast<int>(i), static_cast<int>(shards)));
  PartialCheckpoint partial(target);
  ShardWriter writer(partial.path(), reader.tensors(), bounds);
  writer.write([&](size_t tensor, int64_t first, std::span<std::byte> bytes) {
    reader.read(tensor, first, bytes);
  });
  std::vector<CheckpointFile> files = writer.commit();
  for (const CheckpointFile& file : manifest.files) {
    if (file.classes) continue;
    write_copy(checkpoint / file.name, partial.path() / file.name);
    files.push_back(file);
  }
  manifest.files = std::move(files);
  partial.publish(manifest);
  if (!partial.not_flushed().empty()) throw InputError(partial.not_flushed());
}

}  // namespace millrace::train
