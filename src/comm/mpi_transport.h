// Collectives over MPI point-to-point transfers.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi_endpoint.h"
#include "comm/transport.h"

namespace millrace::comm {

// Sums travel in chunks: each member collects a chunk of its own part from all others, adds them
// in the order of the members, and hands the sum back, while the next chunks are on their way.
// MPI's own all-reduce leaves the order of the additions open, and its waits cannot be ended.
//
// Holds a window of chunks per other member from the start; no operation allocates buffers. Made
// without chunks it refuses sums.
class MpiTransport final : public Transport {
 public:
  // The endpoint is shared by the members of this process; `member` is one of them.
  MpiTransport(std::shared_ptr<MpiEndpoint> endpoint, int member, bool sums);

  int size() const override { return endpoint_->size(); }
  int rank() const override { return member_; }
  std::string name(int member) const override { return endpoint_->name(member); }

  int64_t buffer_bytes() const override { return buffer_bytes_; }

  double all_reduce(void* data, int64_t count, ElementType type) override;
  double reduce_scatter(const void* whole, void* part, int64_t count, int64_t block,
                        ElementType type) override;
  double all_gather(const void* part, void* whole, int64_t count, int64_t item_bytes) override;
  double broadcast(void* data, int64_t bytes, int root) override;
  double barrier() override;
  double send(int to, const void* data, int64_t bytes, int tag) override;
  double receive(int from, void* data, int64_t bytes, int tag) override;

  void stop(const std::string& sentence) override { endpoint_->stop(sentence); }
  void set_deadline(double seconds) override { deadline_ = seconds; }

 private:
  // Runs a collective; if it throws, no transfer touches the caller's buffers any more.
  template <typename Body>
  double collective(Body&& body);

  double finish(MpiTransfers& transfers, Operation operation);
  double finish_message(MpiTransfers& transfers, Operation operation);

  // Chunks on their way at once: enough that a slow line is never idle while one is added.
  static constexpr int kWindow = 8;

  // Elements to be summed, divided over the members in whole blocks.
  struct Terms {
    int64_t count;
    int64_t block;
    ElementType type;
  };
  struct Range {
    int64_t begin;  // bytes in memory
    int64_t size;
  };
  static int64_t elements(const Terms& terms, const Range& range);
  static int64_t travelling(const Terms& terms, const Range& range);  // bytes
  Range part(const Terms& terms, int member) const;
  Range chunk(const Terms& terms, int member, int64_t index) const;
  int64_t chunks(const Terms& terms) const;
  // Brings each chunk of the own part in turn and calls use(index), which returns seconds waited.
  template <typename Use>
  double exchange_all(Operation operation, const char* whole, const Terms& terms, Use&& use);
  char* arrived(int64_t index, int member);
  void start_exchange(const char* whole, const Terms& terms, int64_t index);
  void sum_chunk(const char* whole, char* target, const Terms& terms, int64_t index,
                 bool narrow_target);
  void start_handing_back(char* whole, const Terms& terms, int64_t index);
  double finish_handing_back(char* whole, const Terms& terms, int64_t index);

  const std::shared_ptr<MpiEndpoint> endpoint_;
  const int member_;
  std::atomic<double> deadline_ = 0;
  const int64_t buffer_bytes_;
  std::unique_ptr<char[]> buffer_;
  std::vector<const void*> sources_;
  std::array<MpiTransfers, kWindow> exchanges_;
  std::array<MpiTransfers, kWindow> results_;
  MpiTransfers arrival_;
  MpiTransfers transfers_;
};

}  // namespace millrace::comm
