// Directories: making them, replacing one by another, making them last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace millrace {

// Makes the directory of an output flag, with those above it. Throws InputError if it cannot.
void make_directory(const std::filesystem::path& directory, std::string_view flag);
// The directory in which an output file is to lie.
void make_directory_of(const std::filesystem::path& file, std::string_view flag);

// Flushes the entries of a directory, so that a rename inside it survives a power cut. Throws
// InputError if the disk fails; a file system that cannot do it is trusted.
void sync_directory(const std::filesystem::path& directory);

// Flushes the file system that holds the directory, with all files written to it.
void flush_file_system(const std::filesystem::path& directory);

// Gives `made` the name `target`, and what had that name before the name `former`, which must be
// free; both are flushed. At every moment `target` or, where the file system cannot exchange two
// names, `former` names the old directory or the new one. Throws InputError.
void replace_directory(const std::filesystem::path& made, const std::filesystem::path& target,
                       const std::filesystem::path& former);

// Bytes that this user can still write there.
uint64_t free_bytes(const std::filesystem::path& directory);

}  // namespace millrace
