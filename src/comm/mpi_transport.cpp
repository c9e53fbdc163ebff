#include "comm/mpi_transport.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/narrowing.h"
#include "comm/ordered_sum.h"

namespace millrace::comm {
namespace {

constexpr int64_t kChunkBytes = int64_t{512} << 10;
constexpr auto kLongestCancel = std::chrono::milliseconds(300);
constexpr int64_t kBroadcastPiece = int64_t{1} << 20;

enum Tag : int { kTermsTag = 1, kSumsTag, kGatherTag, kBroadcastTag, kBarrierTag, kMessageTag };

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<MpiEndpoint> endpoint, int member, bool sums)
    : endpoint_(std::move(endpoint)),
      member_(member),
      buffer_bytes_(sums ? kChunkBytes * kWindow * (endpoint_->size() - 1) : 0),
      buffer_(new char[static_cast<size_t>(buffer_bytes_)]),
      sources_(static_cast<size_t>(endpoint_->size())) {
  for (MpiTransfers& transfers : exchanges_) transfers.member = member;
  for (MpiTransfers& transfers : results_) transfers.member = member;
  arrival_.member = transfers_.member = member;
}

double MpiTransport::finish(MpiTransfers& transfers, Operation operation) {
  return endpoint_->finish(transfers, operation, deadline_);
}

template <typename Body>
double MpiTransport::collective(Body&& body) {
  try {
    endpoint_->check();
    return body();
  } catch (...) {
    const auto patience = std::chrono::steady_clock::now() + kLongestCancel;
    for (MpiTransfers& transfers : exchanges_) transfers.abandon(patience);
    for (MpiTransfers& transfers : results_) transfers.abandon(patience);
    arrival_.abandon(patience);
    transfers_.abandon(patience);
    throw;
  }
}

double MpiTransport::all_reduce(void* data, int64_t count, ElementType type) {
  return collective([&] {
    const Terms terms = {count, 1, type};
    char* whole = static_cast<char*>(data);
    double waited = exchange_all(Operation::all_reduce, whole, terms, [&](int64_t index) {
      sum_chunk(whole, whole + chunk(terms, rank(), index).begin, terms, index, is_narrowed(type));
      const double seconds = finish_handing_back(whole, terms, index - kWindow);
      start_handing_back(whole, terms, index);
      return seconds;
    });
    const int64_t total = chunks(terms);
    for (int64_t index = total - kWindow; index < total; ++index) {
      waited += finish_handing_back(whole, terms, index);
    }
    return waited;
  });
}

double MpiTransport::reduce_scatter(const void* whole, void* part, int64_t count, int64_t block,
                                    ElementType type) {
  return collective([&] {
    const Terms terms = {count, block, type};
    const char* input = static_cast<const char*>(whole);
    return exchange_all(Operation::reduce_scatter, input, terms, [&](int64_t index) {
      sum_chunk(input, static_cast<char*>(part) + index * kChunkBytes, terms, index, false);
      return 0.0;
    });
  });
}

template <typename Use>
double MpiTransport::exchange_all(Operation operation, const char* whole, const Terms& terms,
                                  Use&& use) {
  const int64_t total = chunks(terms);
  double waited = 0;
  for (int64_t index = 0; index < std::min<int64_t>(total, kWindow); ++index) {
    start_exchange(whole, terms, index);
  }
  for (int64_t index = 0; index < total; ++index) {
    waited += finish(exchanges_[static_cast<size_t>(index % kWindow)], operation);
    waited += use(index);
    if (index + kWindow < total) start_exchange(whole, terms, index + kWindow);
  }
  return waited;
}

double MpiTransport::all_gather(const void* part, void* whole, int64_t count, int64_t item_bytes) {
  return collective([&] {
    char* output = static_cast<char*>(whole);
    const int64_t own_begin = part_begin(count, rank(), size()) * item_bytes;
    const int64_t own_size = part_begin(count, rank() + 1, size()) * item_bytes - own_begin;
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      const int64_t begin = part_begin(count, from, size()) * item_bytes;
      const int64_t bytes = part_begin(count, from + 1, size()) * item_bytes - begin;
      endpoint_->start_receive(transfers_, from, output + begin, bytes, kGatherTag);
      endpoint_->start_send(transfers_, (rank() + step) % size(), part, own_size, kGatherTag);
    }
    parallel_copy(output + own_begin, part, own_size);
    return finish(transfers_, Operation::all_gather);
  });
}

// Along a binomial tree, piece by piece, so that every level of the tree is busy.
double MpiTransport::broadcast(void* data, int64_t bytes, int root) {
  return collective([&] {
    const int place = (rank() - root + size()) % size();
    int reach = 1;
    while (reach < size() && (place & reach) == 0) reach *= 2;
    const int parent = (place - reach + root + size()) % size();
    double waited = 0;
    for (int64_t begin = 0; begin < bytes; begin += kBroadcastPiece) {
      char* piece = static_cast<char*>(data) + begin;
      const int64_t length = std::min(kBroadcastPiece, bytes - begin);
      if (place != 0) {
        endpoint_->start_receive(arrival_, parent, piece, length, kBroadcastTag);
        waited += finish(arrival_, Operation::broadcast);
      }
      for (int child = reach / 2; child > 0; child /= 2) {
        if (place + child >= size()) continue;
        endpoint_->start_send(transfers_, (place + child + root) % size(), piece, length,
                              kBroadcastTag);
      }
    }
    return waited + finish(transfers_, Operation::broadcast);
  });
}

double MpiTransport::barrier() {
  return collective([&] {
    double waited = 0;
    for (int distance = 1; distance < size(); distance *= 2) {
      const int from = (rank() + size() - distance) % size();
      endpoint_->start_receive(transfers_, from, nullptr, 0, kBarrierTag);
      endpoint_->start_send(transfers_, (rank() + distance) % size(), nullptr, 0, kBarrierTag);
      waited += finish(transfers_, Operation::barrier);
    }
    return waited;
  });
}

double MpiTransport::send(int to, const void* data, int64_t bytes, int tag) {
  endpoint_->check();
  MpiTransfers transfers = {.member = member_};
  endpoint_->start_send(transfers, to, data, bytes, kMessageTag + tag);
  return finish_message(transfers, Operation::send);
}

double MpiTransport::receive(int from, void* data, int64_t bytes, int tag) {
  endpoint_->check();
  MpiTransfers transfers = {.member = member_};
  endpoint_->start_receive(transfers, from, data, bytes, kMessageTag + tag);
  return finish_message(transfers, Operation::receive);
}

double MpiTransport::finish_message(MpiTransfers& transfers, Operation operation) {
  try {
    return finish(transfers, operation);
  } catch (...) {
    transfers.abandon(std::chrono::steady_clock::now() + kLongestCancel);
    throw;
  }
}

MpiTransport::Range MpiTransport::part(const Terms& terms, int member) const {
  const int64_t blocks = terms.count / terms.block;
  const int64_t block_bytes = terms.block * element_bytes(terms.type);
  const int64_t begin = part_begin(blocks, member, size()) * block_bytes;
  return {begin, part_begin(blocks, member + 1, size()) * block_bytes - begin};
}

MpiTransport::Range MpiTransport::chunk(const Terms& terms, int member, int64_t index) const {
  const Range whole = part(terms, member);
  const int64_t before = index * kChunkBytes;
  return {whole.begin + before, std::clamp<int64_t>(whole.size - before, 0, kChunkBytes)};
}

int64_t MpiTransport::elements(const Terms& terms, const Range& range) {
  return range.size / element_bytes(terms.type);
}

int64_t MpiTransport::travelling(const Terms& terms, const Range& range) {
  return elements(terms, range) * travelling_bytes(terms.type);
}

int64_t MpiTransport::chunks(const Terms& terms) const {
  if (size() > 1 && buffer_bytes_ == 0) {
    fail_job("{} asks for a sum over a group that was made for messages.", name(member_));
  }
  int64_t largest = 0;
  for (int member = 0; member < size(); ++member) {
    largest = std::max(largest, part(terms, member).size);
  }
  return (largest + kChunkBytes - 1) / kChunkBytes;
}

char* MpiTransport::arrived(int64_t index, int member) {
  const int slot = member < rank() ? member : member - 1;
  return buffer_.get() + (index % kWindow * (size() - 1) + slot) * kChunkBytes;
}

// A chunk that travels in 16 bits takes half of its place on arrival; those of the terms that leave
// for the same member wait in the other half.
void MpiTransport::start_exchange(const char* whole, const Terms& terms, int64_t index) {
  MpiTransfers& transfers = exchanges_[static_cast<size_t>(index % kWindow)];
  const Range own = chunk(terms, rank(), index);
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    const Range theirs = chunk(terms, member, index);
    char* place = arrived(index, member);
    if (own.size > 0) {
      endpoint_->start_receive(transfers, member, place, travelling(terms, own), kTermsTag);
    }
    if (theirs.size == 0) continue;
    const char* leaving = whole + theirs.begin;
    if (is_narrowed(terms.type)) {
      narrow(terms.type, reinterpret_cast<const float*>(leaving), elements(terms, theirs),
             place + kChunkBytes / 2);
      leaving = place + kChunkBytes / 2;
    }
    endpoint_->start_send(transfers, member, leaving, travelling(terms, theirs), kTermsTag);
  }
}

void MpiTransport::sum_chunk(const char* whole, char* target, const Terms& terms, int64_t index,
                             bool narrow_target) {
  const Range own = chunk(terms, rank(), index);
  if (own.size == 0) return;
  for (int member = 0; member < size(); ++member) {
    sources_[static_cast<size_t>(member)] =
        member == rank() ? whole + own.begin : arrived(index, member);
  }
  void* const only_target = target;
  const std::span targets(&only_target, 1);
  if (is_narrowed(terms.type)) {
    ordered_narrowed_sum(sources_, targets, elements(terms, own), terms.type,
                         {rank(), narrow_target});
  } else {
    ordered_sum(sources_, targets, elements(terms, own), terms.type);
  }
}

// Receives may only be started once the terms that lay there have left. What travels in 16 bits
// takes the first half of the chunk's own memory until all of it has come.
void MpiTransport::start_handing_back(char* whole, const Terms& terms, int64_t index) {
  MpiTransfers& transfers = results_[static_cast<size_t>(index % kWindow)];
  const Range own = chunk(terms, rank(), index);
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    const Range theirs = chunk(terms, member, index);
    if (theirs.size > 0) {
      endpoint_->start_receive(transfers, member, whole + theirs.begin, travelling(terms, theirs),
                               kSumsTag);
    }
    if (own.size > 0) {
      endpoint_->start_send(transfers, member, whole + own.begin, travelling(terms, own), kSumsTag);
    }
  }
}

double MpiTransport::finish_handing_back(char* whole, const Terms& terms, int64_t index) {
  if (index < 0) return 0;
  const double waited =
      finish(results_[static_cast<size_t>(index % kWindow)], Operation::all_reduce);
  if (!is_narrowed(terms.type)) return waited;
  for (int member = 0; member < size(); ++member) {
    const Range range = chunk(terms, member, index);
    widen_in_place(terms.type, whole + range.begin, elements(terms, range));
  }
  return waited;
}

}  // namespace millrace::comm
