// Turns an ONNX model into a network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/builder.h"
#include "models/models.h"
#include "models/onnx/model.h"

namespace millrace::models::onnx {

// Where a tensor of the network has its values: a view of a constant of the model, which must
// outlive it. Strides count elements.
struct ImportedWeight {
  std::string name;
  TensorData data;
  graph::Shape shape;
  std::vector<int64_t> strides;
};

// Whether a model's output is no scores of classes but an embedding: it is called so, or is
// normalised as that of face networks.
bool gives_embedding(const Model& model);

// What was put into a Builder. `output` is what the model gives.
struct ImportedNetwork {
  graph::Value output;
  int64_t features = 0;  // of the output, in the file
  int64_t image = 0;     // height and width that the file asks for; 0: any
  int64_t channels = 0;
  std::vector<ImportedWeight> weights = {};
};

// Adds the model's nodes to the network. Of the options batch, image, channels, dropout and
// classes count; an image or channels of 0 are the file's. With `classes` above 0 and another
// number than the file's, the last linear layer gets that many, and no weights. Layers are named
// after their weights or nodes, whatever the options are. Throws InputError with a clause that
// names the node at fault.
ImportedNetwork import_model(const Model& model, const ModelOptions& options, graph::Builder& net);

// What nodes are read with. One thread.
class Importer {
 public:
  Importer(const Model& model, const ModelOptions& options, graph::Builder& net);
  ImportedNetwork run();

  graph::Builder& net() { return net_; }
  const ModelOptions& options() const { return options_; }

  // An input of a node that is computed; throws InputError if it is a constant.
  graph::Value value(const Node& node, size_t input) const;
  bool has_input(const Node& node, size_t input) const;
  // The constant that an input is, or null if it is computed.
  const TensorData* constant(const Node& node, size_t input) const;
  // Likewise, but it must be one.
  const TensorData& need_constant(const Node& node, size_t input) const;
  std::vector<int64_t> need_integers(const Node& node, size_t input) const;

  // What a node gives; a constant keeps its name if it has one.
  void set(const Node& node, graph::Value value);
  void set(const Node& node, TensorData constant);

  // A name for a layer of its own: after its weight, or else after the node.
  std::string layer_name(const Node& node, const TensorData* weight);
  // A tensor of the network gets the values of a constant, as they are or seen otherwise.
  void take_weight(const std::string& name, const TensorData& data);
  void take_weight(const std::string& name, const TensorData& data, graph::Shape shape,
                   std::vector<int64_t> strides);

  // The only node that reads what this one gives; null if there is none or are several.
  const Node* only_reader(const Node& node) const;
  // Leaves out a node whose work an earlier one has done.
  void set_done(const Node& node) { done_.insert(&node); }
  // How many features the output has in the file.
  void set_features(int64_t features) { result_.features = features; }
  // Whether the node's output is that of the model, but for scaling to probabilities.
  bool is_last(const Node& node) const;

 private:
  void add_inputs();
  void require_known() const;

  const Model& model_;
  const ModelOptions& options_;
  graph::Builder& net_;
  ImportedNetwork result_;
  std::map<std::string, std::variant<graph::Value, TensorData>, std::less<>> known_;
  std::map<std::string, std::vector<const Node*>, std::less<>> readers_;
  std::set<const Node*> done_;
  std::set<std::string, std::less<>> layers_;
};

// Attributes by name, with what they are where a node leaves them out.
int64_t integer_of(const Node& node, std::string_view name, int64_t otherwise);
double number_of(const Node& node, std::string_view name, double otherwise);
std::vector<int64_t> integers_of(const Node& node, std::string_view name,
                                 std::vector<int64_t> otherwise);
std::string text_of(const Node& node, std::string_view name);

// How a node of a type is read; null if it cannot be.
using ReadNode = void (*)(Importer& importer, const Node& node);
struct NodeReader {
  std::string_view type;
  ReadNode read;
};
ReadNode find_layer_reader(std::string_view type);
ReadNode find_gate_reader(std::string_view type);
ReadNode find_shape_reader(std::string_view type);

// Reads an addition that begins a gate written out, min(max(x + 3, 0), 6) / 6, with the nodes
// behind it. False if it is none.
bool read_hard_gate(Importer& importer, const Node& node);

}  // namespace millrace::models::onnx
