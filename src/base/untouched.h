// Memory for large arrays that are written in full anyway.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace millrace {

// Elements that a vector makes without a value stay as they are, so that no one thread touches all
// memory beforehand; large blocks ask for huge pages. For types without constructors.
template <typename T>
struct UntouchedAllocator {
  static_assert(std::is_trivially_default_constructible_v<T>);
  using value_type = T;
  static constexpr std::align_val_t kHugePage{size_t{2} << 20};
  static constexpr size_t kLarge = 2 * static_cast<size_t>(kHugePage);

  UntouchedAllocator() = default;
  template <typename Other>
  explicit UntouchedAllocator(const UntouchedAllocator<Other>&) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLarge) return static_cast<T*>(::operator new(bytes));
    void* memory = ::operator new(bytes, kHugePage);
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }

  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kLarge) return ::operator delete(memory);
    ::operator delete(memory, kHugePage);
  }

  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Values>
  void construct(U* place, Values&&... values) {
    ::new (static_cast<void*>(place)) U(std::forward<Values>(values)...);
  }

  bool operator==(const UntouchedAllocator&) const { return true; }
};

template <typename T>
using UntouchedVector = std::vector<T, UntouchedAllocator<T>>;

}  // namespace millrace
