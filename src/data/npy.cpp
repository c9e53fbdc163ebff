#include "data/npy.h"

#include <string>

#include "base/error.h"
#include "base/output_file.h"

namespace millrace::data {

void write_npy(const std::filesystem::path& path, std::span<const float> values, int64_t columns) {
  constexpr size_t kAlignment = 64;
  using namespace std::string_literals;
  const int64_t rows = columns == 0 ? 0 : static_cast<int64_t>(values.size()) / columns;
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const std::string magic = "\x93NUMPY\1\0"s;
  const size_t before = magic.size() + sizeof(uint16_t);
  header.append(kAlignment - (before + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  OutputFile file(path);
  file.write(magic);
  file.write(&length, sizeof(length));
  file.write(header);
  file.write(values.data(), values.size_bytes());
  file.commit();
}

}  // namespace millrace::data
