#include "comm/mpi_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace millrace::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailureTag = 0;
constexpr int kPollsBetweenListening = 32;
constexpr int64_t kLargestPiece = int64_t{1} << 30;
constexpr size_t kLongestSentence = 1000;
constexpr auto kEagerWait = std::chrono::microseconds(300);
constexpr auto kShortestNap = std::chrono::microseconds(50);
constexpr auto kLongestNap = std::chrono::microseconds(500);
constexpr int kIdlePerNap = 100;
constexpr auto kFailureFarewell = std::chrono::seconds(1);
constexpr auto kOthersTell = std::chrono::seconds(3);

double seconds_waited_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return std::string(text.data(), static_cast<size_t>(length));
}

// Calls piece(offset, bytes) for pieces that MPI can count; once for an empty message.
template <typename Piece>
void for_each_piece(int64_t bytes, Piece&& piece) {
  int64_t done = 0;
  do {
    const int64_t length = std::min(kLargestPiece, bytes - done);
    piece(done, static_cast<int>(length));
    done += length;
  } while (done < bytes);
}

}  // namespace

void expect_joined(int code) {
  if (code == MPI_SUCCESS) return;
  std::this_thread::sleep_for(kOthersTell);
  fail_job("MPI cannot join the ranks: {}.", error_text(code));
}

void MpiTransfers::clear() {
  requests.clear();
  peers.clear();
  expected.clear();
}

// Receives write into their buffers and sends may be read by the other process until they end, so
// both are waited for; what will not end is left to the end of the job.
void MpiTransfers::abandon(Clock::time_point patience) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] != MPI_REQUEST_NULL && expected[i] >= 0) MPI_Cancel(&requests[i]);
  }
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    int done = 0;
    do {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    } while (!done && Clock::now() < patience);
    if (!done) MPI_Request_free(&request);
  }
  clear();
}

MpiEndpoint::MpiEndpoint(MPI_Comm communicator, std::vector<std::string> names,
                         std::vector<int> ranks)
    : communicator_(communicator), names_(std::move(names)), ranks_(std::move(ranks)) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &process_);
  MPI_Comm_size(communicator_, &processes_);
  std::vector<int> members_of(static_cast<size_t>(processes_), 0);
  for (const int rank : ranks_) {
    lanes_.push_back(members_of[static_cast<size_t>(rank)]++);
    lane_count_ = std::max(lane_count_, lanes_.back() + 1);
  }
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &largest, &found);
  const int64_t needed = int64_t{lane_count_} * lane_count_ * kLargestTag;
  if (found && needed > *largest) {
    MPI_Comm_free(&communicator_);
    fail_input("This MPI has too few tags for {} devices in one process; use more processes.",
               lane_count_);
  }
}

// Freeing a communicator takes all members; after a failure nobody can count on them.
MpiEndpoint::~MpiEndpoint() {
  if (!failed_) {
    MPI_Comm_free(&communicator_);
    return;
  }
  const Clock::time_point start = Clock::now();
  int done = 0;
  while (!done && Clock::now() - start < kFailureFarewell) {
    MPI_Testall(static_cast<int>(farewells_.size()), farewells_.data(), &done, MPI_STATUSES_IGNORE);
    if (!done) std::this_thread::sleep_for(kShortestNap);
  }
}

int MpiEndpoint::tag_between(int from, int to, int tag) const {
  const int pair =
      lanes_[static_cast<size_t>(from)] * lane_count_ + lanes_[static_cast<size_t>(to)];
  return pair * kLargestTag + tag;
}

void MpiEndpoint::check() {
  listen();
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  throw JobError(failure_);
}

void MpiEndpoint::start_send(MpiTransfers& transfers, int to, const void* data, int64_t bytes,
                             int tag) {
  const int rank = ranks_[static_cast<size_t>(to)];
  tag = tag_between(transfers.member, to, tag);
  for_each_piece(bytes, [&](int64_t offset, int length) {
    MPI_Request request = MPI_REQUEST_NULL;
    expect_success(MPI_Isend(static_cast<const char*>(data) + offset, length, MPI_BYTE, rank, tag,
                             communicator_, &request),
                   transfers.member, "send");
    transfers.requests.push_back(request);
    transfers.peers.push_back(to);
    transfers.expected.push_back(-1);
  });
}

void MpiEndpoint::start_receive(MpiTransfers& transfers, int from, void* data, int64_t bytes,
                                int tag) {
  const int rank = ranks_[static_cast<size_t>(from)];
  tag = tag_between(from, transfers.member, tag);
  for_each_piece(bytes, [&](int64_t offset, int length) {
    MPI_Request request = MPI_REQUEST_NULL;
    expect_success(MPI_Irecv(static_cast<char*>(data) + offset, length, MPI_BYTE, rank, tag,
                             communicator_, &request),
                   transfers.member, "receive");
    transfers.requests.push_back(request);
    transfers.peers.push_back(from);
    transfers.expected.push_back(length);
  });
}

double MpiEndpoint::finish(MpiTransfers& transfers, Operation operation, double deadline) {
  const Clock::time_point start = Clock::now();
  Clock::time_point last_progress = start;
  int unfinished = static_cast<int>(transfers.requests.size());
  for (int64_t poll = 0; unfinished > 0; ++poll) {
    const int finished = test(transfers, operation);
    unfinished -= finished;
    if (finished > 0) {
      last_progress = Clock::now();
      continue;
    }
    if (poll % kPollsBetweenListening == 0) check();
    const auto idle = Clock::now() - last_progress;
    if (deadline > 0 && std::chrono::duration<double>(idle).count() > deadline) {
      fail_all(fmt::format("{} did not join {} within {} seconds.", unfinished_peers(transfers),
                           operation_name(operation), deadline));
    }
    if (idle < kEagerWait) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(idle / kIdlePerNap, kShortestNap, kLongestNap));
    }
  }
  transfers.clear();
  return seconds_waited_since(start);
}

int MpiEndpoint::test(MpiTransfers& transfers, Operation operation) {
  constexpr int kAtOnce = 16;
  std::array<MPI_Status, kAtOnce> statuses;
  std::array<int, kAtOnce> indices;
  int finished = 0;
  const int count = static_cast<int>(transfers.requests.size());
  for (int begin = 0; begin < count; begin += kAtOnce) {
    int done = 0;
    const int code = MPI_Testsome(std::min(kAtOnce, count - begin), &transfers.requests[begin],
                                  &done, indices.data(), statuses.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
      expect_success(code, transfers.member, "transfer");
    if (done == MPI_UNDEFINED) continue;
    for (int i = 0; i < done; ++i) {
      if (code == MPI_ERR_IN_STATUS) {
        expect_success(statuses[i].MPI_ERROR, transfers.member, "transfer");
      }
      check_received(transfers, begin + indices[i], statuses[i], operation);
    }
    finished += done;
  }
  return finished;
}

void MpiEndpoint::check_received(const MpiTransfers& transfers, int index, const MPI_Status& status,
                                 Operation operation) {
  const int64_t expected = transfers.expected[static_cast<size_t>(index)];
  if (expected < 0) return;
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  if (received == expected) return;
  fail_all(fmt::format("{} sends {} bytes in {} while {} receives {}.",
                       name(transfers.peers[static_cast<size_t>(index)]), received,
                       operation_name(operation), name(transfers.member), expected));
}

void MpiEndpoint::listen() {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status = {};
  // A probe may look before it lets MPI take in what has come; the next one sees it.
  for (int attempt = 0; attempt < 3 && !found; ++attempt) {
    MPI_Improbe(MPI_ANY_SOURCE, kFailureTag, communicator_, &found, &message, &status);
  }
  if (!found) return;
  int length = 0;
  MPI_Get_count(&status, MPI_CHAR, &length);
  std::string sentence(static_cast<size_t>(length), ' ');
  MPI_Mrecv(sentence.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  set_failure(sentence, false);
}

void MpiEndpoint::fail_all(const std::string& sentence) {
  set_failure(sentence, true);
  const std::lock_guard lock(mutex_);
  throw JobError(failure_);
}

void MpiEndpoint::set_failure(const std::string& sentence, bool tell) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  failure_ = sentence.substr(0, kLongestSentence);
  failed_ = true;
  for (int process = 0; tell && process < processes_; ++process) {
    if (process == process_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(failure_.data(), static_cast<int>(failure_.size()), MPI_CHAR, process, kFailureTag,
              communicator_, &request);
    farewells_.push_back(request);
  }
}

void MpiEndpoint::expect_success(int code, int member, const char* what) {
  if (code == MPI_SUCCESS) return;
  fail_all(fmt::format("{} failed: MPI cannot {}: {}.", name(member), what, error_text(code)));
}

std::string MpiEndpoint::unfinished_peers(const MpiTransfers& transfers) const {
  std::string list;
  for (int member = 0; member < size(); ++member) {
    for (size_t i = 0; i < transfers.requests.size(); ++i) {
      if (transfers.requests[i] == MPI_REQUEST_NULL || transfers.peers[i] != member) continue;
      list += (list.empty() ? "" : ", ") + name(member);
      break;
    }
  }
  return list;
}

}  // namespace millrace::comm
