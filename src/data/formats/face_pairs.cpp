#include "data/formats/face_pairs.h"

#include <limits>

#include "data/formats/byte_cursor.h"
#include "data/pickle/opcodes.h"
#include "data/pickle/pickle.h"

namespace millrace {
namespace {

FacePairs pairs_of(const Pickle& pickle) {
  using Kind = PickleValue::Kind;
  const std::vector<PickleId>& lists = pickle.elements(pickle.root());
  if (lists.size() != 2) fail_data("it holds {} objects where two lists belong", lists.size());
  const std::vector<PickleId>& images = pickle.elements(lists[0]);
  const std::vector<PickleId>& same = pickle.elements(lists[1]);
  if (images.size() != 2 * same.size() || same.empty()) {
    fail_data("it has {} images and {} answers where two images belong to each", images.size(),
              same.size());
  }
  FacePairs pairs;
  for (const PickleId id : images) {
    const PickleValue& image = pickle[id];
    if (image.kind != Kind::bytes) fail_data("it has an image that is not bytes");
    pairs.images.push_back(std::as_bytes(std::span(image.text)));
  }
  for (const PickleId id : same) {
    const PickleValue& answer = pickle[id];
    const bool is_answer = answer.kind == Kind::boolean || answer.kind == Kind::integer;
    if (!is_answer || answer.integer < 0 || answer.integer > 1) {
      fail_data("it has an answer that is not a boolean");
    }
    pairs.same.push_back(answer.integer == 1);
  }
  return pairs;
}

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

}  // namespace millrace
