// The memory that a model's programs work in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// One anonymous mapping of exactly the size asked for, filled with zeros. Throws JobError where the
// machine cannot give it.
class Arena {
 public:
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Bytes that were ever touched, in whole pages.
  int64_t resident_bytes() const;

 private:
  int64_t bytes_;
  int64_t mapped_;
  std::byte* data_ = nullptr;
};

}  // namespace millrace
