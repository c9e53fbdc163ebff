// What weights tell of themselves besides their numbers.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/image/recipe.h"
#include "train/checkpoint.h"
#include "train/job.h"

namespace millrace::train {

// The network, its classes and what it does to images; in the manifest of each checkpoint and in
// the metadata of files of weights. Plain data; what is not known is empty or 0.
struct ModelCard {
  std::string model = {};
  int64_t classes = 0;
  int64_t image = 0;
  int64_t channels = 0;
  std::vector<std::string> class_names = {};
  std::optional<data::ImageRecipe> recipe = {};
  // What the run was measured on: its evaluation data, of which this share was held back by the
  // seed if it is above 0.
  std::string evaluation_data = {};
  double valid_share = 0;
  uint64_t seed = 0;
  std::vector<std::string> verification = {};  // and its pairs of faces
};

ModelCard card_of(const TrainJob& job);
ModelCard card_of(const Manifest& manifest);

// Texts for the metadata of a file: "format", "model", "classes" (the names, or their number) and
// "preprocessing" (to_json of the recipe).
std::map<std::string, std::string> to_metadata(const ModelCard& card);

// The reverse: what the metadata of others has not stays unknown. `file` is named in errors.
ModelCard card_of_metadata(const std::map<std::string, std::string>& metadata,
                           const std::filesystem::path& file);

// The card of the newest checkpoint in a directory, or of a file of weights; one of the two is
// given. A file that tells nothing gives an empty card.
ModelCard find_card(const std::filesystem::path& checkpoint, const std::filesystem::path& weights);

// "tabby" for class 3 of a network that has names, else "3".
std::string class_name(const ModelCard& card, int64_t label);

}  // namespace millrace::train
