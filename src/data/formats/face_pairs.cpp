#include "data/formats/face_pairs.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "data/formats/byte_cursor.h"
#include "data/pickle/opcodes.h"
#include "data/pickle/pickle.h"

namespace millrace::data {
namespace {

bool is_of_numpy(const PickleValue& function, std::string_view name) {
  return function.kind == PickleValue::Kind::global && function.module.starts_with("numpy") &&
         function.text == name;
}

// What numpy saved as a call of `callable` with a type of one byte, in its three ways: an array
// that is made empty and then set, one made of a buffer, and a single value. Nothing for anything
// else.
std::optional<std::string_view> numpy_bytes(const Pickle& pickle, PickleId id) {
  using Kind = PickleValue::Kind;
  const PickleValue& object = pickle[id];
  if (object.kind != Kind::object || pickle[object.arguments].kind != Kind::sequence) return {};
  const PickleValue& function = pickle[object.callable];
  const std::vector<PickleId>* fields = &pickle[object.arguments].items;
  size_t type = 0, data = 0;
  if (is_of_numpy(function, "_reconstruct")) {
    if (object.state == kNoPickleValue || pickle[object.state].kind != Kind::sequence) return {};
    fields = &pickle[object.state].items;
    type = 2;
    data = 4;
  } else if (is_of_numpy(function, "_frombuffer")) {
    type = 1;
    data = 0;
  } else if (is_of_numpy(function, "scalar")) {
    type = 0;
    data = 1;
  } else {
    return {};
  }
  if (fields->size() <= std::max(type, data)) return {};
  const PickleValue& described = pickle[(*fields)[type]];
  if (described.kind != Kind::object || !is_of_numpy(pickle[described.callable], "dtype"))
    return {};
  const PickleValue& arguments = pickle[described.arguments];
  if (arguments.kind != Kind::sequence || arguments.items.empty()) return {};
  const std::string_view name = pickle[arguments.items[0]].text;
  const PickleValue& bytes = pickle[(*fields)[data]];
  const bool is_byte = name == "u1" || name == "i1" || name == "b1" || name == "|b1";
  if (!is_byte || bytes.kind != Kind::bytes) return {};
  return bytes.text;
}

bool answer_of(const Pickle& pickle, PickleId id) {
  using Kind = PickleValue::Kind;
  const PickleValue& answer = pickle[id];
  int64_t number = answer.integer;
  bool is_answer = answer.kind == Kind::boolean || answer.kind == Kind::integer;
  if (const auto byte = numpy_bytes(pickle, id); byte && byte->size() == 1) {
    is_answer = true;
    number = (*byte)[0];
  }
  if (!is_answer || number < 0 || number > 1) fail_data("it has an answer that is not a boolean");
  return number == 1;
}

FacePairs pairs_of(const Pickle& pickle) {
  const std::vector<PickleId>& lists = pickle.elements(pickle.root());
  if (lists.size() != 2) fail_data("it holds {} objects where two lists belong", lists.size());
  const std::vector<PickleId>& images = pickle.elements(lists[0]);
  const auto answers = numpy_bytes(pickle, lists[1]);
  const size_t count = answers ? answers->size() : pickle.elements(lists[1]).size();
  if (images.size() != 2 * count || count == 0) {
    fail_data("it has {} images and {} answers where two images belong to each", images.size(),
              count);
  }
  FacePairs pairs;
  for (const PickleId id : images) {
    const PickleValue& image = pickle[id];
    const auto array = numpy_bytes(pickle, id);
    if (image.kind != PickleValue::Kind::bytes && !array) {
      fail_data("it has an image that is not bytes");
    }
    pairs.images.push_back(std::as_bytes(std::span(array.value_or(image.text))));
  }
  if (answers) {
    for (const char byte : *answers) pairs.same.push_back(byte != 0);
    return pairs;
  }
  for (const PickleId id : pickle.elements(lists[1])) pairs.same.push_back(answer_of(pickle, id));
  return pairs;
}

class FacePairsSource : public RecordSource {
 public:
  explicit FacePairsSource(std::shared_ptr<const FacePairsFile> file) : file_(std::move(file)) {}

  uint64_t count() const override { return file_->pairs().images.size(); }
  Sample read(uint64_t index) const override {
    Sample sample;
    sample.bytes = file_->pairs().images[index];
    return sample;
  }
  RecordPlace place(uint64_t index) const override {
    const std::span<const std::byte> image = file_->pairs().images[index];
    return {file_->path().string(), index,
            static_cast<uint64_t>(image.data() - file_->bytes().data())};
  }

 private:
  std::shared_ptr<const FacePairsFile> file_;
};

void put_length(std::string& text, uint32_t length) {
  text.append(reinterpret_cast<const char*>(&length), sizeof(length));
}

}  // namespace

FacePairs parse_face_pairs(std::span<const std::byte> bytes, std::string_view file) {
  try {
    return pairs_of(read_pickle(bytes));
  } catch (const PickleFault& fault) {
    fail_input("Byte {} of '{}' is not of a verification set: {}.", fault.offset(), file,
               fault.what());
  } catch (const BadData& error) {
    fail_input("'{}' is not a verification set: {}.", file, error.what());
  }
}

std::unique_ptr<RecordSource> open_face_pairs(std::shared_ptr<const FacePairsFile> file) {
  return std::make_unique<FacePairsSource>(std::move(file));
}

std::string encode_face_pairs(const FacePairs& pairs) {
  using namespace pickle_opcode;
  std::string text = {static_cast<char>(kProtocol), 3, kEmptyList, kMark};
  for (const std::span<const std::byte> image : pairs.images) {
    if (image.size() > std::numeric_limits<uint32_t>::max()) {
      fail_input("An image of {} bytes is too large for a verification set.", image.size());
    }
    text += static_cast<char>(kBinBytes);
    put_length(text, static_cast<uint32_t>(image.size()));
    text += as_text(image);
  }
  text += {static_cast<char>(kAppends), static_cast<char>(kEmptyList), static_cast<char>(kMark)};
  for (const bool same : pairs.same) text += static_cast<char>(same ? kNewTrue : kNewFalse);
  text += {static_cast<char>(kAppends), static_cast<char>(kTuple2), static_cast<char>(kStop)};
  return text;
}

}  // namespace millrace::data
