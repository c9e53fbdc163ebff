#include "comm/mpi_transport.h"

#include <algorithm>
#include <utility>

#include "comm/ordered_sum.h"

namespace millrace {
namespace {

constexpr int64_t kChunkBytes = int64_t{2} << 20;
constexpr int64_t kBroadcastPiece = int64_t{1} << 20;

enum Tag : int { kTermsTag = 1, kSumsTag, kGatherTag, kBroadcastTag, kBarrierTag, kMessageTag };

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator, std::vector<std::string> names)
    : endpoint_(communicator, std::move(names)),
      buffer_(new char[static_cast<size_t>(buffer_bytes())]),
      sources_(static_cast<size_t>(size())) {}

int64_t MpiTransport::buffer_bytes() const { return kChunkBytes * 2 * (size() - 1); }

template <typename Body>
double MpiTransport::collective(Body&& body) {
  try {
    endpoint_.check();
    return body();
  } catch (...) {
    for (MpiTransfers& transfers : exchanges_) transfers.abandon();
    for (MpiTransfers& transfers : results_) transfers.abandon();
    arrival_.abandon();
    transfers_.abandon();
    throw;
  }
}

double MpiTransport::all_reduce(void* data, int64_t count, ElementType type) {
  return collective([&] {
    if (size() == 1) return 0.0;
    char* whole = static_cast<char*>(data);
    const int64_t total = chunks(count, element_bytes(type));
    double waited = 0;
    if (total > 0) start_exchange(whole, count, type, 0);
    for (int64_t index = 0; index < total; ++index) {
      if (index + 1 < total) start_exchange(whole, count, type, index + 1);
      waited += endpoint_.finish(exchanges_[index % 2], Operation::kAllReduce);
      const Range own = chunk(count, element_bytes(type), rank(), index);
      sum_chunk(whole, whole + own.begin, count, type, index);
      start_handing_back(whole, count, type, index);
      if (index > 0) waited += endpoint_.finish(results_[(index + 1) % 2], Operation::kAllReduce);
    }
    if (total > 0) waited += endpoint_.finish(results_[(total + 1) % 2], Operation::kAllReduce);
    return waited;
  });
}

double MpiTransport::reduce_scatter(const void* whole, void* part, int64_t count,
                                    ElementType type) {
  return collective([&] {
    const char* input = static_cast<const char*>(whole);
    const int64_t total = chunks(count, element_bytes(type));
    double waited = 0;
    if (total > 0) start_exchange(input, count, type, 0);
    for (int64_t index = 0; index < total; ++index) {
      if (index + 1 < total) start_exchange(input, count, type, index + 1);
      waited += endpoint_.finish(exchanges_[index % 2], Operation::kReduceScatter);
      sum_chunk(input, static_cast<char*>(part) + index * kChunkBytes, count, type, index);
    }
    return waited;
  });
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
      endpoint_.start_receive(transfers_, from, output + begin, bytes, kGatherTag);
      endpoint_.start_send(transfers_, (rank() + step) % size(), part, own_size, kGatherTag);
    }
    parallel_copy(output + own_begin, part, own_size);
    return endpoint_.finish(transfers_, Operation::kAllGather);
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
        endpoint_.start_receive(arrival_, parent, piece, length, kBroadcastTag);
        waited += endpoint_.finish(arrival_, Operation::kBroadcast);
      }
      for (int child = reach / 2; child > 0; child /= 2) {
        if (place + child >= size()) continue;
        endpoint_.start_send(transfers_, (place + child + root) % size(), piece, length,
                             kBroadcastTag);
      }
    }
    return waited + endpoint_.finish(transfers_, Operation::kBroadcast);
  });
}

double MpiTransport::barrier() {
  return collective([&] {
    double waited = 0;
    for (int distance = 1; distance < size(); distance *= 2) {
      const int from = (rank() + size() - distance) % size();
      endpoint_.start_receive(transfers_, from, nullptr, 0, kBarrierTag);
      endpoint_.start_send(transfers_, (rank() + distance) % size(), nullptr, 0, kBarrierTag);
      waited += endpoint_.finish(transfers_, Operation::kBarrier);
    }
    return waited;
  });
}

double MpiTransport::send(int to, const void* data, int64_t bytes, int tag) {
  endpoint_.check();
  MpiTransfers transfers;
  endpoint_.start_send(transfers, to, data, bytes, kMessageTag + tag);
  return finish_message(transfers, Operation::kSend);
}

double MpiTransport::receive(int from, void* data, int64_t bytes, int tag) {
  endpoint_.check();
  MpiTransfers transfers;
  endpoint_.start_receive(transfers, from, data, bytes, kMessageTag + tag);
  return finish_message(transfers, Operation::kReceive);
}

double MpiTransport::finish_message(MpiTransfers& transfers, Operation operation) {
  try {
    return endpoint_.finish(transfers, operation);
  } catch (...) {
    transfers.abandon();
    throw;
  }
}

MpiTransport::Range MpiTransport::chunk(int64_t count, int64_t item_bytes, int member,
                                        int64_t index) const {
  const int64_t end = part_begin(count, member + 1, size()) * item_bytes;
  const int64_t begin = part_begin(count, member, size()) * item_bytes + index * kChunkBytes;
  return {begin, std::clamp<int64_t>(end - begin, 0, kChunkBytes)};
}

int64_t MpiTransport::chunks(int64_t count, int64_t item_bytes) const {
  const int64_t largest_part = (count + size() - 1) / size() * item_bytes;
  return (largest_part + kChunkBytes - 1) / kChunkBytes;
}

char* MpiTransport::arrived(int64_t index, int member) {
  const int slot = member < rank() ? member : member - 1;
  return buffer_.get() + (index % 2 * (size() - 1) + slot) * kChunkBytes;
}

void MpiTransport::start_exchange(const char* whole, int64_t count, ElementType type,
                                  int64_t index) {
  MpiTransfers& transfers = exchanges_[index % 2];
  const Range own = chunk(count, element_bytes(type), rank(), index);
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    const Range theirs = chunk(count, element_bytes(type), member, index);
    if (own.size > 0) {
      endpoint_.start_receive(transfers, member, arrived(index, member), own.size, kTermsTag);
    }
    if (theirs.size > 0) {
      endpoint_.start_send(transfers, member, whole + theirs.begin, theirs.size, kTermsTag);
    }
  }
}

void MpiTransport::sum_chunk(const char* whole, char* target, int64_t count, ElementType type,
                             int64_t index) {
  const Range own = chunk(count, element_bytes(type), rank(), index);
  if (own.size == 0) return;
  for (int member = 0; member < size(); ++member) {
    sources_[static_cast<size_t>(member)] =
        member == rank() ? whole + own.begin : arrived(index, member);
  }
  void* const only_target = target;
  ordered_sum(sources_, std::span(&only_target, 1), own.size / element_bytes(type), type);
}

// Receives may only be started once the terms that lay there have left.
void MpiTransport::start_handing_back(char* whole, int64_t count, ElementType type, int64_t index) {
  MpiTransfers& transfers = results_[index % 2];
  const Range own = chunk(count, element_bytes(type), rank(), index);
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    const Range theirs = chunk(count, element_bytes(type), member, index);
    if (theirs.size > 0) {
      endpoint_.start_receive(transfers, member, whole + theirs.begin, theirs.size, kSumsTag);
    }
    if (own.size > 0) {
      endpoint_.start_send(transfers, member, whole + own.begin, own.size, kSumsTag);
    }
  }
}

}  // namespace millrace
