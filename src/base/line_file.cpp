#include "base/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace millrace {
namespace {

constexpr size_t kMostWaiting = size_t{64} << 20;

}  // namespace

LineFile::LineFile(const std::filesystem::path& path, std::string_view kept)
    : place_(find_output_place(path)) {
  if (place_.kind != OutputKind::special) {
    write_text(path, kept);
    size_ = static_cast<int64_t>(kept.size());
  }
  descriptor_ = ::open(place_.target.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail_input("Cannot write '{}': {}.", path.string(), std::strerror(errno));
}

LineFile::~LineFile() {
  if (place_.kind != OutputKind::special) ::fsync(descriptor_);
  ::close(descriptor_);
}

void LineFile::add(std::string_view line) { add_piece(std::string(line) + "\n"); }

void LineFile::add_piece(std::string_view piece) {
  if (waiting_.size() + piece.size() > kMostWaiting) return;
  waiting_.append(piece);
  if (write_waiting()) failure_.clear();
}

bool LineFile::write_waiting() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == static_cast<ssize_t>(waiting_.size())) {
      size_ += written;
      waiting_.clear();
      continue;
    }
    failure_ = fmt::format("Cannot write '{}': {}.", place_.path.string(),
                           std::strerror(written < 0 ? errno : ENOSPC));
    if (written <= 0) return false;
    if (place_.kind == OutputKind::special) {
      waiting_.erase(0, static_cast<size_t>(written));
    } else if (::ftruncate(descriptor_, size_) != 0) {
      waiting_.erase(0, static_cast<size_t>(written));
      size_ += written;
    }
    return false;
  }
  return true;
}

}  // namespace millrace
