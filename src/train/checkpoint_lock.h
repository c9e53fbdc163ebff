// Keeps two jobs from writing their checkpoints into one directory.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::train {

// Holds the directory of a job's checkpoints, which it makes if need be, from its construction to
// its end, by a locked file `lock` in it that names the owner: host, process and start. What an
// owner of this host that died has left does not count. Throws InputError naming the owner if the
// directory is held, also by one of another host that may have died: only people can tell.
class CheckpointLock {
 public:
  explicit CheckpointLock(const std::filesystem::path& directory);
  ~CheckpointLock();

  // Makes the directory and its lock anew if somebody has removed or renamed them: true. Throws
  // InputError if it cannot, or if another job holds the directory by now.
  bool renew();

  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

 private:
  int take() const;  // the descriptor of the lock

  std::filesystem::path path_;
  std::string owner_;
  bool made_;  // the directory, which goes with the lock if nothing was saved
  int descriptor_ = -1;
};

// Removes the lock of an owner on any host that has ended without doing so; for whoever knows that
// it was one of its own jobs.
void remove_abandoned_lock(const std::filesystem::path& directory);

}  // namespace millrace::train
