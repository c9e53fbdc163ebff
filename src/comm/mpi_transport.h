// Collectives over MPI point-to-point transfers.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi_endpoint.h"
#include "comm/transport.h"

namespace millrace {

// Sums travel in chunks: each member collects a chunk of its own part from all others, adds them
// in the order of the members, and hands the sum back, while the next chunk is already on its way.
// MPI's own all-reduce leaves the order of the additions open, and its waits cannot be ended.
//
// Holds two chunks per other member from the start; no operation allocates buffers.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm communicator, std::vector<std::string> names);

  int size() const override { return endpoint_.size(); }
  int rank() const override { return endpoint_.rank(); }
  std::string name(int member) const override { return endpoint_.name(member); }

  int64_t buffer_bytes() const override;

  double all_reduce(void* data, int64_t count, ElementType type) override;
  double reduce_scatter(const void* whole, void* part, int64_t count, ElementType type) override;
  double all_gather(const void* part, void* whole, int64_t count, int64_t item_bytes) override;
  double broadcast(void* data, int64_t bytes, int root) override;
  double barrier() override;
  double send(int to, const void* data, int64_t bytes, int tag) override;
  double receive(int from, void* data, int64_t bytes, int tag) override;

  void fail(const std::string& reason) override { endpoint_.fail(reason); }
  void set_deadline(double seconds) override { endpoint_.set_deadline(seconds); }

 private:
  // Runs a collective; if it throws, no transfer touches the caller's buffers any more.
  template <typename Body>
  double collective(Body&& body);

  double finish_message(MpiTransfers& transfers, Operation operation);

  struct Range {
    int64_t begin;  // bytes
    int64_t size;
  };
  Range chunk(int64_t count, int64_t item_bytes, int member, int64_t index) const;
  int64_t chunks(int64_t count, int64_t item_bytes) const;
  char* arrived(int64_t index, int member);
  void start_exchange(const char* whole, int64_t count, ElementType type, int64_t index);
  void sum_chunk(const char* whole, char* target, int64_t count, ElementType type, int64_t index);
  void start_handing_back(char* whole, int64_t count, ElementType type, int64_t index);

  MpiEndpoint endpoint_;
  std::unique_ptr<char[]> buffer_;
  std::vector<const void*> sources_;
  std::array<MpiTransfers, 2> exchanges_;
  std::array<MpiTransfers, 2> results_;
  MpiTransfers arrival_;
  MpiTransfers transfers_;
};

}  // namespace millrace
