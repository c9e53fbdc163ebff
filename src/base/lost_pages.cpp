#include "base/lost_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

#include "base/error.h"

namespace millrace {
namespace {

// Never freed, as a signal handler may be looking at it; of a file that is closed it is used again.
struct Mapping {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;  // 0: free
  Mapping* next = nullptr;
  std::string path;
};

// All that a signal handler can reach.
std::atomic<Mapping*> mappings = nullptr;
std::atomic<const Mapping*> lost = nullptr;
uintptr_t page_size = 4096;
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

std::mutex& mutex_of_mappings() {
  static std::mutex mutex;
  return mutex;
}

bool replace_page(uintptr_t address) {
  void* page = reinterpret_cast<void*>(address / page_size * page_size);  // NOLINT: as told
  return ::mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

void handle(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_of_a_page = info->si_code == BUS_ADRERR;
  for (const Mapping* each = mappings; is_of_a_page && each != nullptr; each = each->next) {
    if (address < each->begin || address >= each->end) continue;
    if (!replace_page(address)) break;
    const Mapping* none = nullptr;
    lost.compare_exchange_strong(none, each);
    return;
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void survive_lost_pages() {
  page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void expect_no_lost_pages() {
  const Mapping* mapping = lost;
  if (mapping == nullptr) return;
  fail_input("'{}' cannot be read any more: it was made shorter, or its disk fails.",
             mapping->path);
}

void note_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_of_mappings());
  Mapping* mapping = mappings;
  while (mapping != nullptr && (mapping->end != 0 || mapping == lost)) mapping = mapping->next;
  if (mapping == nullptr) {
    mapping = new Mapping;  // NOLINT: kept
    mapping->next = mappings;
    mappings = mapping;
  }
  mapping->path = path.string();
  mapping->begin = reinterpret_cast<uintptr_t>(bytes.data());
  mapping->end = mapping->begin + bytes.size();
}

void forget_mapping(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_of_mappings());
  for (Mapping* each = mappings; each != nullptr; each = each->next) {
    if (each->begin == reinterpret_cast<uintptr_t>(bytes.data())) each->begin = each->end = 0;
  }
}

}  // namespace millrace
