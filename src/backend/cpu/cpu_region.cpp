#include "backend/cpu/cpu_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace millrace::backend {

int64_t whole_pages(int64_t bytes) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  return std::max(page, (bytes + page - 1) / page * page);
}

int64_t touched_bytes(std::byte* data, int64_t mapped) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<size_t>(mapped / page));
  if (::mincore(data, static_cast<size_t>(mapped), pages.data()) != 0) return 0;
  return page * std::count_if(pages.begin(), pages.end(),
                              [](unsigned char state) { return (state & 1) != 0; });
}

CpuRegion::CpuRegion(int64_t bytes) : bytes_(bytes), mapped_(whole_pages(bytes)) {
  void* address = ::mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    fail_job("The machine cannot give {} for a device's arena.",
             format_bytes(static_cast<uint64_t>(bytes)));
  }
  ::madvise(address, static_cast<size_t>(mapped_), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(address);
}

CpuRegion::~CpuRegion() { ::munmap(data_, static_cast<size_t>(mapped_)); }

DeviceAddress CpuRegion::begin() const { return DeviceAddress(reinterpret_cast<uintptr_t>(data_)); }

int64_t CpuRegion::resident_bytes() const { return touched_bytes(data_, mapped_); }

}  // namespace millrace::backend
