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

// Of height and width.
struct Padding {
  std::vector<int64_t> before = {0, 0}, behind = {0, 0};
};

// Sums of single pixels, the same for every image and channel: each element of a channel has a row
// of weights, one for each pixel of `images`. `axes` says what each axis of the tensor is: the
// batch, the channels, or one of `extents`, by its number; rows lie in the order of the extents.
struct Pixels {
  graph::Value images = {};
  graph::Shape extents = {};
  std::vector<size_t> axes = {};
  std::vector<float> weights = {};
};

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
  // The pixels that an input is, or null if it is something else.
  const Pixels* pixels(const Node& node, size_t input) const;

  // What a node gives; a constant keeps its name if it has one.
  void set(const Node& node, graph::Value value);
  void set(const Node& node, TensorData constant);
  void set(const Node& node, Pixels pixels);
  void set_output(const Node& node, size_t output, graph::Value value);

  // A name for a layer of its own: after its weight, or else after the node.
  std::string layer_name(const Node& node, const TensorData* weight);
  // A tensor of the network gets the values of a constant, as they are or seen otherwise.
  void take_weight(const std::string& name, const TensorData& data);
  void take_weight(const std::string& name, const TensorData& data, graph::Shape shape,
                   std::vector<int64_t> strides);

  // The nodes that read what this one gives.
  std::vector<const Node*> readers(const Node& node) const;
  // The node that gives a tensor; null if none does.
  const Node* giver(const std::string& tensor) const;
  // Whether a node brings images whose channels come last into the usual order.
  bool is_turned_input(const Node& node) const;
  // Zeros around what a node gives, which its readers take for their own padding.
  void set_padding(const Node& node, const Padding& padding);
  const Padding* padding_before(const Node& node) const;

  // The only node that reads what this one gives; null if there is none or are several.
  const Node* only_reader(const Node& node) const;
  // Leaves out a node whose work an earlier one has done.
  void set_done(const Node& node) { done_.insert(&node); }
  // How many features the output has in the file.
  void set_features(int64_t features) { result_.features = features; }
  // Whether the node's output is that of the model, but for its shape, means over images, and
  // scaling to probabilities.
  bool is_last(const Node& node) const;

 private:
  void add_inputs();
  void find_live();
  void require_known() const;
  void read(const Node& node);

  const Model& model_;
  const ModelOptions& options_;
  graph::Builder& net_;
  ImportedNetwork result_;
  std::map<std::string, std::variant<graph::Value, TensorData, Pixels>, std::less<>> known_;
  std::map<std::string, std::vector<const Node*>, std::less<>> readers_;
  std::map<std::string, const Node*, std::less<>> givers_;
  std::map<std::string, Padding, std::less<>> padding_;
  std::set<const Node*> live_;  // that the output depends on
  std::set<const Node*> done_;
  std::string turned_input_;
  bool is_computing_ = false;
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
ReadNode find_window_reader(std::string_view type);
ReadNode find_gate_reader(std::string_view type);
ReadNode find_shape_reader(std::string_view type);
ReadNode find_selection_reader(std::string_view type);
ReadNode find_pixel_reader(std::string_view type);
ReadNode find_enlarging_reader(std::string_view type);

// Reads a node that begins with single pixels of images, or goes on with them. False if it does
// neither.
bool read_pixels(Importer& importer, const Node& node);

// Reads a reshape that begins a shuffle of channels: to groups, which are turned and laid back.
// False if it begins none.
bool read_shuffle(Importer& importer, const Node& node, graph::Value x,
                  const std::vector<int64_t>& to);

// A gate written out, min(max(x + 3, 0), 6) / 6, with or without the product with x, which an
// addition begins. `input` is that of x, `last` the node that gives it.
struct HardGate {
  size_t input = 0;
  const Node* last = nullptr;
  bool is_product = false;
};
std::optional<HardGate> find_hard_gate(const Importer& importer, const Node& node);
// Reads it, with the nodes behind the addition. False if there is none.
bool read_hard_gate(Importer& importer, const Node& node);

// Sums and products with constants that follow a layer, as a factor and then an offset for each
// channel. `last` is the last of their nodes, null if there are none.
struct Scaling {
  std::vector<float> factors = {}, offsets = {};
  const Node* last = nullptr;

  bool scales() const;
  bool shifts() const;
  // What becomes of a bias, or of none.
  TensorData bias(const std::string& name, const TensorData* own) const;
};

// Those behind a node that gives this many channels, whose readers need not read them again.
Scaling scaling_behind(Importer& importer, const Node& node, int64_t channels, size_t rank);
// Reads a node that has a constant beside images, with those behind it, as a layer that is not
// trained. False if there is no constant.
bool read_scaling(Importer& importer, const Node& node);
graph::Value scale_images(Importer& importer, const Node& node, graph::Value x, float factor,
                          float offset);

// Nodes of constants alone give constants. False if it is another node; throws InputError.
bool fold_constants(Importer& importer, const Node& node);
bool folds_constants(std::string_view type);
TensorData list_of(const std::vector<int64_t>& numbers);

void require_channels(const TensorData& data, int64_t channels);
// Of which a list is made.
void require_few(int64_t channels);
void require_rank(Importer& importer, graph::Value x, size_t rank);
// Sorted axes that a node takes a mean over: an attribute or, from opset 18, an input.
std::vector<int64_t> axes_of_mean(Importer& importer, const Node& node, int64_t rank = 4);
graph::Value largest_of_images(Importer& importer, graph::Value x);
// Makes x what a node gives, in rows.
void set_row(Importer& importer, const Node& node, graph::Value x);

}  // namespace millrace::models::onnx
