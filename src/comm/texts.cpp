#include "comm/texts.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace millrace::comm {
namespace {

constexpr int64_t kLongest = int64_t{64} << 20;

}  // namespace

std::vector<std::string> gather_texts(Group& group, const std::string& own) {
  const auto members = static_cast<size_t>(group.size());
  const std::vector<int64_t> length = {static_cast<int64_t>(own.size())};
  std::vector<int64_t> lengths(members);
  group.all_gather(std::span<const int64_t>(length), std::span(lengths));
  const auto longest = static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end()));
  if (static_cast<int64_t>(longest) > kLongest) {
    fail_input("A text of {} bytes is too long to send; the most is {}.", longest, kLongest);
  }
  std::string part = own;
  part.resize(longest);
  std::string whole(longest * members, ' ');
  if (longest > 0) {
    group.all_gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(whole)),
                     static_cast<int64_t>(longest));
  }
  std::vector<std::string> texts;
  for (size_t member = 0; member < members; ++member) {
    texts.push_back(whole.substr(member * longest, static_cast<size_t>(lengths[member])));
  }
  return texts;
}

std::vector<std::string> collect_texts(Group& group, const std::string& own, int root) {
  constexpr int kTag = 1;
  const std::vector<int64_t> length = {static_cast<int64_t>(own.size())};
  std::vector<int64_t> lengths(static_cast<size_t>(group.size()));
  group.all_gather(std::span<const int64_t>(length), std::span(lengths));
  if (group.rank() != root) {
    if (!own.empty()) group.send(root, std::span<const char>(own), kTag);
    return {};
  }
  std::vector<std::string> texts;
  for (int member = 0; member < group.size(); ++member) {
    std::string text(static_cast<size_t>(lengths[static_cast<size_t>(member)]), ' ');
    if (member == root) {
      text = own;
    } else if (!text.empty()) {
      group.receive(member, std::span<char>(text), kTag);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string broadcast_text(Group& group, const std::string& text, int root) {
  std::vector<int64_t> length = {static_cast<int64_t>(text.size())};
  group.broadcast(std::span(length), root);
  std::string whole = text;
  whole.resize(static_cast<size_t>(length[0]));
  if (!whole.empty()) group.broadcast(std::span(whole), root);
  return whole;
}

}  // namespace millrace::comm
