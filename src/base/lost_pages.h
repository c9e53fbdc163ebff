// Parts of mapped files that cannot be read any more: the file has become shorter since it was
// opened, or its disk or its server fails. The system ends a process that looks at one by SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace millrace {

// From now on such parts read as zeros, which `expect_no_lost_pages` tells; other causes of SIGBUS
// end the process as before. For programs, once: signals belong to them, not to libraries.
void survive_lost_pages();

// Throws InputError naming the first file of which a part was looked at in vain. Called behind
// whatever reads of a mapped file what must not be zeros. Any thread.
void expect_no_lost_pages();

// Called by MappedFile. Any thread.
void note_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path);
void forget_mapping(std::span<const std::byte> bytes);

}  // namespace millrace
