#include "cli/card_flags.h"

#include "base/error.h"
#include "data/weights/weights_file.h"

namespace millrace {

ModelCard find_card(const std::filesystem::path& checkpoint, const std::filesystem::path& weights) {
  if (checkpoint.empty()) return card_of_metadata(WeightsFile(weights).metadata(), weights);
  std::filesystem::path newest = checkpoint;
  if (!std::filesystem::exists(checkpoint / kManifestFile)) {
    const std::vector<CheckpointPlace> places = list_checkpoints(checkpoint);
    if (places.empty()) fail_input("There is no checkpoint in '{}'.", checkpoint.string());
    newest = places.back().path;
  }
  return card_of(read_manifest(newest));
}

bool follow_card(const ModelCard& card, JobFlags& flags) {
  if (card.model.empty() || (!flags.model.empty() && flags.model != card.model)) return false;
  flags.model = card.model;
  const auto take = [](int64_t known, std::optional<int64_t>& value) {
    if (!value && known > 0) value = known;
  };
  take(card.classes, flags.classes);
  take(card.image, flags.image);
  take(card.channels, flags.channels);
  return true;
}

}  // namespace millrace
