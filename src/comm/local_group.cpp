#include "comm/local_group.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "comm/local_hub.h"
#include "comm/ordered_sum.h"

namespace millrace::comm {
namespace {

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalHub> hub, int rank)
      : hub_(std::move(hub)),
        rank_(rank),
        sources_(static_cast<size_t>(hub_->size())),
        targets_(static_cast<size_t>(hub_->size())) {}

  int size() const override { return hub_->size(); }
  int rank() const override { return rank_; }
  std::string name(int member) const override { return hub_->name(member); }

  int64_t buffer_bytes() const override { return 0; }

  double all_reduce(void* data, int64_t count, ElementType type) override {
    const LocalCall call = {
        Operation::all_reduce, count, static_cast<int64_t>(type), 1, data, data};
    return together(call, [&] {
      const int64_t begin = part_begin(count, rank_, size()) * element_bytes(type);
      for (int member = 0; member < size(); ++member) {
        targets_[static_cast<size_t>(member)] =
            static_cast<char*>(hub_->call(member).output) + begin;
      }
      sum_own_part(targets_, count, 1, type);
    });
  }

  double reduce_scatter(const void* whole, void* part, int64_t count, int64_t block,
                        ElementType type) override {
    const LocalCall call = {
        Operation::reduce_scatter, count, static_cast<int64_t>(type), block, whole, part};
    return together(call, [&] { sum_own_part(std::span(&part, 1), count, block, type); });
  }

  double all_gather(const void* part, void* whole, int64_t count, int64_t item_bytes) override {
    const LocalCall call = {Operation::all_gather, count, item_bytes, 1, part, whole};
    return together(call, [&] {
      for (int member = 0; member < size(); ++member) {
        const int64_t begin = part_begin(count, member, size());
        const int64_t end = part_begin(count, member + 1, size());
        parallel_copy(static_cast<char*>(whole) + begin * item_bytes, hub_->call(member).input,
                      (end - begin) * item_bytes);
      }
    });
  }

  double broadcast(void* data, int64_t bytes, int root) override {
    return together({Operation::broadcast, bytes, root, 1, data, data},
                    [&] { parallel_copy(data, hub_->call(root).input, bytes); });
  }

  double barrier() override { return hub_->enter(rank_, {}, deadline_); }

  double send(int to, const void* data, int64_t bytes, int tag) override {
    return hub_->send(rank_, to, data, bytes, tag, deadline_);
  }

  double receive(int from, void* data, int64_t bytes, int tag) override {
    return hub_->receive(from, rank_, data, bytes, tag, deadline_);
  }

  void stop(const std::string& sentence) override { hub_->stop(sentence); }
  void set_deadline(double seconds) override { deadline_ = seconds; }

 private:
  template <typename Work>
  double together(const LocalCall& call, Work&& work) {
    const double waited = hub_->enter(rank_, call, deadline_);
    work();
    return waited + hub_->leave();
  }

  void sum_own_part(std::span<void* const> targets, int64_t count, int64_t block,
                    ElementType type) {
    const int64_t begin = part_begin(count / block, rank_, size()) * block;
    const int64_t end = part_begin(count / block, rank_ + 1, size()) * block;
    for (int member = 0; member < size(); ++member) {
      sources_[static_cast<size_t>(member)] =
          static_cast<const char*>(hub_->call(member).input) + begin * element_bytes(type);
    }
    ordered_sum(sources_, targets, end - begin, type);
  }

  const std::shared_ptr<LocalHub> hub_;
  const int rank_;
  std::atomic<double> deadline_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

std::vector<Group> make_local_groups(int members, std::vector<std::string> names) {
  if (members < 1) fail_job("A group needs at least one member, not {}.", members);
  for (int member = static_cast<int>(names.size()); member < members; ++member) {
    names.push_back(fmt::format("member {}", member));
  }
  names.resize(static_cast<size_t>(members));
  const auto hub = std::make_shared<LocalHub>(std::move(names));
  std::vector<Group> groups;
  groups.reserve(static_cast<size_t>(members));
  for (int member = 0; member < members; ++member) {
    groups.emplace_back(std::make_unique<LocalTransport>(hub, member));
  }
  return groups;
}

}  // namespace millrace::comm
