#include "comm/rank_ends.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace millrace::comm {

struct RankEnds::Other {
  enum class Kind : unsigned char { process, witness, sign };

  struct Part {
    Other* owner = nullptr;
    int descriptor = -1;
    Kind kind = Kind::sign;
  };

  int rank = 0;
  pid_t process = 0;
  std::array<Part, 4> parts = {};
  bool has_witness = false;  // and signs; else its process is watched
  bool ended_in_order = false;
};

namespace {

constexpr int kMostRanks =
    256;  // of one host; of more, ends are told in the order they are noticed
constexpr int kHighNumber = 1023;
constexpr int kFirstLooks = 200;  // for ranks that have no witness yet
constexpr int kLastLook = 800;
constexpr int kSoon = 10;  // milliseconds
constexpr int kLater = 100;
constexpr int kSettling = 300;  // in which the ends of processes are heard of

struct Introduction {
  pid_t rank = 0;
  pid_t witness = 0;
  int32_t number = 0;  // among all ranks
  int32_t local_rank = 0;
  int32_t wants_answer = 0;
};

struct Address {
  sockaddr_un place = {};
  socklen_t size = 0;
};

Address address_of(const std::string& job, int local_rank) {
  Address address;
  address.place.sun_family = AF_UNIX;
  const std::string name = "millrace-" + job + "-rank-" + std::to_string(local_rank);
  const size_t length = std::min(name.size(), sizeof(address.place.sun_path) - 1);
  ::memcpy(address.place.sun_path + 1, name.data(), length);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

// A datagram with its sender and two descriptors.
class Letter {
 public:
  explicit Letter(Introduction& introduction) : piece_{&introduction, sizeof(introduction)} {
    message_.msg_iov = &piece_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
  }

  void send(int socket, const std::array<int, 2>& descriptors, Address address) {
    message_.msg_name = &address.place;
    message_.msg_namelen = address.size;
    message_.msg_controllen = CMSG_SPACE(sizeof(descriptors));
    cmsghdr* header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(descriptors));
    ::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(descriptors));
    ::sendmsg(socket, &message_, MSG_DONTWAIT);
  }

  // False if there is none.
  bool receive(int socket) {
    length_ = ::recvmsg(socket, &message_, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length_ < 0) return false;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message_); header != nullptr;
         header = CMSG_NXTHDR(&message_, header)) {
      if (header->cmsg_level != SOL_SOCKET) continue;
      if (header->cmsg_type == SCM_CREDENTIALS && header->cmsg_len == CMSG_LEN(sizeof(ucred))) {
        ::memcpy(&sender_, CMSG_DATA(header), sizeof(sender_));
        is_signed_ = true;
      }
      if (header->cmsg_type == SCM_RIGHTS) {
        const size_t bytes = std::min(header->cmsg_len - CMSG_LEN(0), sizeof(descriptors_));
        ::memcpy(descriptors_.data(), CMSG_DATA(header), bytes);
      }
    }
    return true;
  }

  bool is_trusted() const {
    return length_ == sizeof(Introduction) && is_signed_ && sender_.uid == ::getuid() &&
           descriptors_[0] >= 0 && descriptors_[1] >= 0;
  }
  const std::array<int, 2>& descriptors() const { return descriptors_; }

 private:
  iovec piece_;
  alignas(cmsghdr)
      std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(2 * sizeof(int))> control_ = {};
  msghdr message_ = {};
  ssize_t length_ = 0;
  ucred sender_ = {};
  bool is_signed_ = false;
  std::array<int, 2> descriptors_ = {-1, -1};
};

void close_all(const std::array<int, 2>& descriptors) {
  for (const int descriptor : descriptors) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

bool is_closed(const std::array<int, 2>& signs) {
  std::array<pollfd, 2> entries = {pollfd{signs[0], POLLIN, 0}, pollfd{signs[1], POLLIN, 0}};
  return ::poll(entries.data(), entries.size(), 0) > 0;
}

// Moves a descriptor to the lowest free number that is at least `number`; leaves it if there is
// none.
void move_up_to(int& descriptor, int number) {
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, number);
  if (moved < 0) return;
  ::close(descriptor);
  descriptor = moved;
}

}  // namespace

RankSigns make_rank_signs() {
  RankSigns signs;
  for (size_t i = 0; i < 2; ++i) {
    std::array<int, 2> pipe = {-1, -1};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return signs;
    signs.read[i] = pipe[0];
    signs.write[i] = pipe[1];
  }
  rlimit most = {};
  ::getrlimit(RLIMIT_NOFILE, &most);
  const int high = static_cast<int>(std::min<rlim_t>(most.rlim_cur - 1, kHighNumber));
  move_up_to(signs.read[0], high / 2);
  move_up_to(signs.write[0], STDERR_FILENO + 1);
  move_up_to(signs.write[1], high);
  return signs;
}

RankEnds::RankEnds(const LaunchPlace& place, const JobMark& job, pid_t rank,
                   const std::array<int, 2>& signs)
    : place_(place),
      mark_(job),
      job_(job.name()),
      rank_(rank),
      signs_(signs),
      events_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const int sign : signs) watch(sign, nullptr);
  if (place.local_ranks < 2 || place.local_ranks > kMostRanks) return;
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  const Address own = address_of(job_, place.local_rank);
  if (socket_ < 0 || ::setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&own.place), own.size) != 0) {
    return;
  }
  watch(socket_, this);
  for (int other = 0; other < place.local_ranks; ++other) {
    if (other != place.local_rank) tell(other, true);
  }
}

RankEnds::~RankEnds() {
  for (const auto& other : others_) {
    for (const Other::Part& part : other->parts) {
      if (part.descriptor >= 0) ::close(part.descriptor);
    }
  }
  if (socket_ >= 0) ::close(socket_);
  if (events_ >= 0) ::close(events_);
}

void RankEnds::watch(int descriptor, void* what) const {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = what;
  ::epoll_ctl(events_, EPOLL_CTL_ADD, descriptor, &event);
}

// Nobody is there yet to be told, or not any more: that is no failure.
void RankEnds::tell(int local_rank, bool wants_answer) const {
  Introduction introduction = {rank_, ::getpid(), place_.rank, place_.local_rank,
                               wants_answer ? 1 : 0};
  Letter(introduction).send(socket_, signs_, address_of(job_, local_rank));
}

void RankEnds::hear() {
  while (true) {
    Introduction introduction;
    Letter letter(introduction);
    if (!letter.receive(socket_)) return;
    auto known = std::find_if(others_.begin(), others_.end(), [&](const auto& other) {
      return other->rank == introduction.number;
    });
    if (!letter.is_trusted() || (known != others_.end() && (*known)->has_witness)) {
      close_all(letter.descriptors());
      continue;
    }
    if (known == others_.end()) known = others_.insert(known, std::make_unique<Other>());
    Other& other = **known;
    other.rank = introduction.number;
    other.process = introduction.rank;
    other.has_witness = true;
    const auto witness = static_cast<int>(::syscall(SYS_pidfd_open, introduction.witness, 0));
    if (other.parts[0].descriptor < 0) {
      const auto process = static_cast<int>(::syscall(SYS_pidfd_open, introduction.rank, 0));
      other.parts[0] = {&other, process, Other::Kind::process};
    }
    other.parts[1] = {&other, witness, Other::Kind::witness};
    other.parts[2] = {&other, letter.descriptors()[0], Other::Kind::sign};
    other.parts[3] = {&other, letter.descriptors()[1], Other::Kind::sign};
    for (size_t i = 1; i < other.parts.size(); ++i) {
      if (other.parts[i].descriptor >= 0) watch(other.parts[i].descriptor, &other.parts[i]);
    }
    other.ended_in_order = witness < 0;
    if (is_closed(letter.descriptors())) note_early_end(other);
    if (introduction.wants_answer != 0) tell(introduction.local_rank, false);
  }
}

// Of the processes of a rank, those that it has started are younger than the rank itself.
void RankEnds::look() {
  ++looks_;
  const auto is_known = [this](pid_t process) {
    return process == rank_ || std::any_of(others_.begin(), others_.end(), [&](const auto& other) {
             return other->process == process;
           });
  };
  std::vector<RankProcess> found = find_rank_processes(mark_, place_.rank, is_known);
  std::stable_sort(found.begin(), found.end(), [](const RankProcess& a, const RankProcess& b) {
    return std::atoll(a.start.c_str()) < std::atoll(b.start.c_str());
  });
  for (const RankProcess& each : found) {
    const bool has_rank = std::any_of(others_.begin(), others_.end(),
                                      [&](const auto& other) { return other->rank == each.rank; });
    if (has_rank || !is_of_this_host(each.process)) continue;
    const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, each.process, 0));
    if (handle < 0) continue;
    others_.push_back(std::make_unique<Other>());
    Other& other = *others_.back();
    other.rank = each.rank;
    other.process = each.process;
    other.parts[0] = {&other, handle, Other::Kind::process};
    watch(handle, other.parts.data());
  }
}

// Of two ranks that have both ended, the order is known by their events alone, which began with
// this letter for the other one.
void RankEnds::note_early_end(const Other& other) {
  if (other.ended_in_order || ends_.first) return;
  if (!has_ended_ && !is_closed(signs_)) {
    ends_.own_is_first = false;
  } else if (ends_.own_is_first) {
    ends_.other_may_tell = true;
  }
}

// Ranks of this host that were not there when the own one ended, and had been there before, if at
// all, only before there was anybody to look.
void RankEnds::add_unseen() {
  if (all_known()) return;
  if (place_.local_ranks < place_.ranks) {
    ends_.rivals.push_back({});
    return;
  }
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const bool known = std::any_of(others_.begin(), others_.end(),
                                   [&](const auto& other) { return other->rank == rank; });
    if (!known && rank != place_.rank) ends_.rivals.push_back({.rank = rank});
  }
}

bool RankEnds::all_known() const {
  return static_cast<int>(others_.size()) + 1 >= place_.local_ranks;
}

bool RankEnds::is_searching() const { return !all_known() && looks_ < kLastLook; }

int RankEnds::patience() const {
  if (has_ended_) return settles_ ? kSettling : 0;
  if (is_searching()) return looks_ < kFirstLooks ? kSoon : kLater;
  return check_ ? kLater : -1;
}

RankEnds::Ends RankEnds::wait(std::function<bool()> check,
                              const std::function<bool()>& may_be_answer) {
  check_ = std::move(check);
  if (socket_ >= 0) look();
  attend(may_be_answer);
  if (socket_ >= 0 && ends_.own_is_first && !ends_.first) add_unseen();
  return ends_;
}

void RankEnds::attend(const std::function<bool()>& may_be_answer) {
  while (true) {
    epoll_event event = {};
    const int count = ::epoll_wait(events_, &event, 1, patience());
    if ((count < 0 && errno != EINTR) || (count == 0 && has_ended_)) return;
    if (count == 0 && is_searching()) look();
    if (count == 0 && check_ && !check_()) check_ = {};
    if (count != 1) continue;
    if (event.data.ptr == nullptr) {
      has_ended_ = true;
      settles_ = may_be_answer() && socket_ >= 0;
      for (const int sign : signs_) ::epoll_ctl(events_, EPOLL_CTL_DEL, sign, nullptr);
      continue;
    }
    if (event.data.ptr == this) {
      hear();
      continue;
    }
    auto* part = static_cast<Other::Part*>(event.data.ptr);
    Other& other = *part->owner;
    if (part->kind == Other::Kind::process) {
      ::epoll_ctl(events_, EPOLL_CTL_DEL, part->descriptor, nullptr);
      if (!other.has_witness) note_end(other);
      continue;
    }
    if (part->kind == Other::Kind::sign) note_end(other);
    if (part->kind == Other::Kind::witness && !has_ended_) other.ended_in_order = true;
    ::epoll_ctl(events_, EPOLL_CTL_DEL, part->descriptor, nullptr);
  }
}

void RankEnds::note_end(const Other& other) {
  if (other.ended_in_order || !ends_.own_is_first || ends_.first) return;
  const Rival rival = {other.rank, other.process, other.parts[0].descriptor, other.has_witness};
  const auto is_same = [&](const Rival& each) { return each.process == rival.process; };
  if (has_ended_) {
    if (std::none_of(ends_.rivals.begin(), ends_.rivals.end(), is_same)) {
      ends_.rivals.push_back(rival);
    }
  } else if (other.has_witness) {
    ends_.own_is_first = false;
  } else {
    ends_.first = rival;
  }
}

void RankEnds::wait_for_others(int milliseconds) {
  if (place_.local_ranks < 2) return;
  const auto has_ended = [](const auto& other) {
    pollfd entry = {other->parts[other->has_witness ? 1 : 0].descriptor, POLLIN, 0};
    return entry.fd < 0 || ::poll(&entry, 1, 0) > 0;
  };
  for (int waited = 0; waited < milliseconds; waited += kSoon) {
    if (all_known() && std::all_of(others_.begin(), others_.end(), has_ended)) return;
    ::usleep(kSoon * 1000);
  }
}

}  // namespace millrace::comm
