#include "train/model_card.h"

#include "base/error.h"
#include "base/json_text.h"
#include "data/weights/weights_file.h"
#include "train/feed/feeds.h"

namespace millrace::train {
namespace {

data::ImageRecipe parse_recipe_of(const Json& json, const std::filesystem::path& file) {
  try {
    return data::parse_recipe(json);
  } catch (const data::BadData& error) {
    fail_input("'{}' cannot be used: {}.", file.string(), error.what());
  }
}

Json parse_text(const std::string& text, const std::filesystem::path& file) {
  Json json = parse_json(text);
  if (json.is_discarded()) fail_input("'{}' has metadata that is not JSON.", file.string());
  return json;
}

int64_t card_number(const Json& json, const char* name) {
  const Json value = json.value(name, Json());
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

std::vector<std::string> names_of(const Json& json) {
  std::vector<std::string> names;
  if (!json.is_array()) return names;
  for (const Json& name : json) {
    if (!name.is_string()) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

ModelCard card_of(const TrainJob& job) {
  return {.model = job.model,
          .classes = job.options.classes,
          .image = job.options.image,
          .channels = job.options.channels,
          .class_names = job.class_names,
          .recipe = data::recipe_of(evaluation_transform(job))};
}

ModelCard card_of(const Manifest& manifest) {
  const Json fixed = manifest.job.value("fixed", Json::object());
  ModelCard card = {.model = manifest.model,
                    .classes = card_number(fixed, "classes"),
                    .image = card_number(fixed, "image"),
                    .channels = card_number(fixed, "channels"),
                    .class_names = names_of(fixed.value("class_names", Json()))};
  const Json data = manifest.job.value("eval-data", Json());
  const Json share = manifest.job.value("valid-share", Json());
  if (data.is_string()) card.evaluation_data = data.get<std::string>();
  if (share.is_number()) card.valid_share = share.get<double>();
  card.seed = manifest.seed;
  card.verification = names_of(manifest.job.value("eval-verification", Json()));
  if (!manifest.preprocessing.is_null()) {
    card.recipe = parse_recipe_of(manifest.preprocessing, "manifest.json");
  }
  return card;
}

std::map<std::string, std::string> to_metadata(const ModelCard& card) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}, {"model", card.model}};
  if (!card.class_names.empty()) {
    metadata["classes"] = Json(card.class_names).dump();
  } else if (card.classes > 0) {
    metadata["classes"] = Json(card.classes).dump();
  }
  if (card.recipe) metadata["preprocessing"] = data::to_json(*card.recipe).dump();
  return metadata;
}

ModelCard card_of_metadata(const std::map<std::string, std::string>& metadata,
                           const std::filesystem::path& file) {
  ModelCard card;
  const auto text = [&](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  };
  card.model = text("model");
  if (const std::string recipe = text("preprocessing"); !recipe.empty()) {
    card.recipe = parse_recipe_of(parse_text(recipe, file), file);
    card.image = card.recipe->image;
    card.channels = card.recipe->channels;
  }
  if (const std::string classes = text("classes"); !classes.empty()) {
    const Json json = parse_text(classes, file);
    card.class_names = names_of(json);
    card.classes = json.is_array() ? static_cast<int64_t>(json.size())
                                   : card_number({{"classes", json}}, "classes");
  }
  return card;
}

ModelCard find_card(const std::filesystem::path& checkpoint, const std::filesystem::path& weights) {
  if (checkpoint.empty()) {
    const data::WeightsFile file(weights);
    ModelCard card = card_of_metadata(file.metadata(), weights);
    if (file.is_network()) card.model = models::kOnnxPrefix + weights.string();
    return card;
  }
  std::filesystem::path newest = checkpoint;
  if (!std::filesystem::exists(checkpoint / kManifestFile)) {
    const std::vector<CheckpointPlace> places = list_checkpoints(checkpoint);
    if (places.empty()) fail_without_checkpoints(checkpoint);
    newest = places.back().path;
  }
  return card_of(read_manifest(newest));
}

std::string class_name(const ModelCard& card, int64_t label) {
  const auto place = static_cast<size_t>(label);
  return place < card.class_names.size() ? card.class_names[place] : std::to_string(label);
}

}  // namespace millrace::train
