#include "train/checkpoint.h"

#include <gmock/gmock.h>

#include "support.h"
#include "train/checkpoint_writer.h"

namespace millrace::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public DirectoryTest {
 protected:
  std::filesystem::path write(int64_t step, std::optional<double> accuracy = {}) {
    Manifest manifest;
    manifest.version = "1";
    manifest.model = "tiny";
    manifest.step = step;
    manifest.epoch = 3;
    manifest.position = 128;
    manifest.seed = UINT64_MAX;
    manifest.learning_rate = {{"base", 0.1}};
    manifest.job = {{"fixed", {{"batch", 8}}}};
    if (accuracy) manifest.measured = Measured{"top1", *accuracy};
    write_whole(manifest, small_snapshot(static_cast<float>(step)));
    return directory_ / checkpoint_name(step);
  }

  uint64_t write_whole(const Manifest& manifest, const StateSnapshot& snapshot) const {
    PartialCheckpoint partial(directory_ / checkpoint_name(manifest.step));
    return write_checkpoint(partial, manifest, snapshot);
  }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const CheckpointPlace& place : list_checkpoints(directory_)) found.push_back(place.step);
    return found;
  }

  static void flip_byte(const std::filesystem::path& path, size_t offset) {
    std::string bytes = read_text(path);
    bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 1);
    write_text(path, bytes);
  }

  std::optional<std::filesystem::path> find() {
    messages_.clear();
    return find_newest_valid(directory_,
                             [&](std::string_view text) { messages_.emplace_back(text); });
  }

  std::vector<std::string> messages_;
};

TEST_F(CheckpointTest, ManifestComesBackAsWritten) {
  const Manifest manifest = verify_checkpoint(write(1234, 0.75));
  EXPECT_EQ(manifest.model, "tiny");
  EXPECT_EQ(manifest.step, 1234);
  EXPECT_EQ(manifest.epoch, 3);
  EXPECT_EQ(manifest.position, 128);
  EXPECT_EQ(manifest.seed, UINT64_MAX);
  ASSERT_TRUE(manifest.measured);
  EXPECT_EQ(manifest.measured->value, 0.75);
  EXPECT_EQ(manifest.job["fixed"]["batch"], 8);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "step-00001234" / "weights.safetensors"));
}

TEST_F(CheckpointTest, ChecksumsTakenWhileWritingAreThoseOfTheFiles) {
  StateSnapshot snapshot = small_snapshot();
  constexpr int64_t kMany = (int64_t{20} << 20) / 4 + 3;  // several pieces of every kind
  snapshot[0].shape = {kMany};
  snapshot[0].values.resize(kMany);
  for (size_t i = 0; i < kMany; ++i) snapshot[0].values[i] = static_cast<float>(i % 8191);
  const uint64_t bytes = write_whole(Manifest{}, snapshot);
  const Manifest manifest = read_manifest(directory_ / checkpoint_name(0));
  ASSERT_EQ(manifest.files.size(), 2u);
  uint64_t sum = 0;
  for (const CheckpointFile& file : manifest.files) {
    const auto path = directory_ / checkpoint_name(0) / file.name;
    EXPECT_EQ(file.bytes, std::filesystem::file_size(path));
    EXPECT_EQ(file.crc32, crc32_of_file(path)) << file.name;
    sum += file.bytes;
  }
  EXPECT_EQ(bytes, sum);
  EXPECT_GT(bytes, uint64_t{20} << 20);
}

TEST_F(CheckpointTest, LeavesNothingButTheCheckpoint) {
  write(5);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) {
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST_F(CheckpointTest, FindsTheNewest) {
  write(10);
  const auto newest = write(200);
  write(30);
  EXPECT_EQ(find(), newest);
  EXPECT_THAT(messages_, ElementsAre());
}

TEST_F(CheckpointTest, FindsNothingInAnEmptyOrAbsentDirectory) {
  EXPECT_EQ(find(), std::nullopt);
  std::filesystem::remove(directory_);
  EXPECT_EQ(find(), std::nullopt);
}

TEST_F(CheckpointTest, PassesOverDamagedOnesWithAMessage) {
  const auto good = write(1);
  flip_byte(write(2) / kWeightsFile, 150);
  std::filesystem::resize_file(write(3) / kOptimizerFile, 20);
  std::filesystem::remove(write(4) / kOptimizerFile);
  write_text(write(5) / kManifestFile, "{\"format\": \"millrace-checkpoint-1\", \"step\": ");
  std::filesystem::remove(write(6) / kManifestFile);
  EXPECT_EQ(find(), good);
  ASSERT_EQ(messages_.size(), 5u);
  EXPECT_THAT(messages_[0], HasSubstr("step-00000006' is damaged and passed over"));
  EXPECT_THAT(messages_[2], HasSubstr("optimizer.safetensors"));
  EXPECT_THAT(messages_[3], HasSubstr("has 20 bytes where the manifest says"));
  EXPECT_THAT(messages_[4], HasSubstr("checksum"));
}

TEST_F(CheckpointTest, RefusesWhenNoneIsIntact) {
  flip_byte(write(2) / kWeightsFile, 150);
  EXPECT_THAT(input_error_of([&] { find(); }), HasSubstr("None of the 1 checkpoints"));
}

TEST_F(CheckpointTest, ManifestsWithWrongFieldsAreRefused) {
  const auto path = write(2);
  const Json good = Json::parse(read_text(path / kManifestFile));
  const std::vector<std::pair<std::string, Json>> faults = {
      {"step", -1},
      {"step", "2"},
      {"position", 1.5},
      {"seed", -3},
      {"model", 7},
      {"files", 3},
      {"files", Json::object()},
      {"format", "zip"},
      {"epoch", 1e30},
      {"files", {{"../x", {{"bytes", 1}, {"crc32", 1}}}}}};
  for (const auto& [name, value] : faults) {
    Json bad = good;
    bad[name] = value;
    write_text(path / kManifestFile, bad.dump());
    EXPECT_THROW(read_manifest(path), InputError) << name << " = " << value.dump();
  }
  // A sum that is no whole number of 32 bits is not made one.
  for (const Json& sum : {Json(-3.0), Json(1.5), Json(-1), Json(uint64_t{1} << 32), Json("1")}) {
    Json bad = good;
    for (auto& [name, entry] : bad["files"].items()) entry["crc32"] = sum;
    write_text(path / kManifestFile, bad.dump());
    EXPECT_THAT(input_error_of([&] { read_manifest(path); }), HasSubstr("'crc32'")) << sum.dump();
  }
  for (const char* text : {"", "[]", "3", "{", "\xff\xfe", "null"}) {
    write_text(path / kManifestFile, text);
    EXPECT_THROW(read_manifest(path), InputError) << text;
  }
}

TEST_F(CheckpointTest, PartialDirectoriesAreNoCheckpoints) {
  write(7);
  std::filesystem::create_directory(directory_ / "step-00000009.partial");
  std::filesystem::create_directory(directory_ / "step-00000010.removing");
  std::filesystem::create_directory(directory_ / "step-x");
  EXPECT_THAT(steps(), ElementsAre(7));
  const CheckpointWriter writer(directory_, 1);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step-00000009.partial"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step-00000010.removing"));
}

TEST_F(CheckpointTest, PruneKeepsTheNewestAndTheBest) {
  write(1);
  write(2, 0.9);
  write(3, 0.8);
  write(4);
  write(5);
  prune_checkpoints(directory_, 2, 5);
  EXPECT_THAT(steps(), ElementsAre(2, 4, 5));
}

TEST_F(CheckpointTest, TheBestThatIsIntactIsFound) {
  const auto best = [this] {
    messages_.clear();
    return find_best(directory_, [&](std::string_view text) { messages_.emplace_back(text); });
  };
  EXPECT_FALSE(best());
  write(1, 0.9);
  write(2, 0.8);
  write(3);
  EXPECT_EQ(best()->filename(), "step-00000001");
  EXPECT_TRUE(messages_.empty());
  flip_byte(directory_ / "step-00000001" / kWeightsFile, 150);
  write_text(directory_ / "step-00000003" / kManifestFile, "{");
  EXPECT_EQ(best()->filename(), "step-00000002");
  ASSERT_EQ(messages_.size(), 2U);
  EXPECT_THAT(messages_[0], HasSubstr("step-00000003' is damaged and passed over"));
  EXPECT_THAT(messages_[1], HasSubstr("step-00000001' is damaged and passed over"));
}

// A job that has diverged still goes on from where it was.
TEST_F(CheckpointTest, AFigureThatIsNoNumberIsAsGoodAsNone) {
  write(1, 0.9);
  const auto path = write(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(verify_checkpoint(path).measured);
  prune_checkpoints(directory_, 1, 2);
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(CheckpointTest, PruneDoesNotCountWhatALaterRunLeft) {
  write(1);
  write(2);
  write(9);
  prune_checkpoints(directory_, 1, 2);
  EXPECT_THAT(steps(), ElementsAre(2, 9));
}

TEST_F(CheckpointTest, WritingAStepAgainReplacesIt) {
  flip_byte(write(2) / kWeightsFile, 150);
  const auto path = write(2);
  EXPECT_NO_THROW(verify_checkpoint(path));
}

TEST_F(CheckpointTest, AFailureLeavesNoPartialDirectory) {
  StateSnapshot snapshot = small_snapshot();
  snapshot[0].values.pop_back();
  EXPECT_THROW(write_whole(Manifest{}, snapshot), InputError);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace millrace::train
