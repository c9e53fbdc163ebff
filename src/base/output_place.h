// Where a file that is to be written lies, and what is there already.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

namespace millrace {

enum class OutputKind : uint8_t {
  fresh,    // nothing is there yet
  file,     // a plain file, to be replaced
  special,  // a device, a pipe or a socket, or a descriptor in /proc: written through
};

// What a user's path leads to. Plain data; the world may change after it was looked at.
struct OutputPlace {
  std::filesystem::path path;    // as the user gave it, for messages
  std::filesystem::path target;  // behind all symbolic links
  OutputKind kind = OutputKind::fresh;
  mode_t mode = 0;  // of the plain file that is there, with its owner
  uid_t owner = 0;
  gid_t group = 0;

  std::filesystem::path directory() const;  // in which the target lies
};

// Follows symbolic links, also to where nothing is yet; names may hold any bytes. Throws
// InputError for a directory, for links in a circle, and where it may not look.
OutputPlace find_output_place(const std::filesystem::path& path);

}  // namespace millrace
