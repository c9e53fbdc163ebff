// Zip archives whose members are stored as they are, which is how PyTorch writes its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace::data {

// The members of an archive, by name; they point into its bytes, which must outlive it. Sizes of
// more than 4 GiB are read. Throws BadData, takes any bytes.
class ZipArchive {
 public:
  explicit ZipArchive(std::span<const std::byte> bytes);

  // The folder that holds all of it, with a slash at its end; may be empty.
  const std::string& folder() const { return folder_; }

  // A member of the folder, if there is one. Throws BadData if it is compressed or, with `checked`,
  // which reads all of it, does not match its checksum.
  std::optional<std::span<const std::byte>> find(std::string_view name, bool checked) const;

 private:
  struct Member {
    uint64_t header = 0;
    uint64_t size = 0;
    uint32_t crc32 = 0;
    uint16_t method = 0;
  };

  void read_directory(std::span<const std::byte> directory, uint64_t count);

  std::span<const std::byte> bytes_;
  std::map<std::string, Member, std::less<>> members_;
  std::string folder_;
};

}  // namespace millrace::data
