// head_steps INPUT.safetensors OUTPUT.safetensors: some steps of a margin head alone, for
// margin_heads.py to compare.
//
// The input has "embeddings" (steps x batch x dimension), "labels" (steps x batch), "centres" and
// "rates" (steps), and the settings as metadata. The output has "losses", "top1", "gradients" (of
// the embeddings), "used" (steps x classes: 1 for those in the step's sample), and "centres" and
// their states behind the last step.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <exception>

#include "compile/compiler.h"
#include "data/safetensors.h"
#include "graph/builder.h"
#include "kernels/head/sampling.h"
#include "passes/freeze.h"
#include "runtime/session.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 5;

template <typename T>
std::vector<T> values_of(const data::SafetensorsFile& file, const std::string& name) {
  const data::SafetensorsEntry& entry = file.at(name);
  std::vector<T> values(entry.data.size() / sizeof(T));
  std::memcpy(values.data(), entry.data.data(), entry.data.size());
  return values;
}

class Settings {
 public:
  explicit Settings(const data::SafetensorsFile& file) : file_(file) {}

  double operator()(const std::string& name) const {
    return std::strtod(file_.metadata().at(name).c_str(), nullptr);
  }

 private:
  const data::SafetensorsFile& file_;
};

graph::MarginHeadOptions head_of(const Settings& settings, int64_t classes) {
  graph::MarginHeadOptions head;
  head.classes = classes;
  head.multiplier = settings("m1");
  head.addend = settings("m2");
  head.subtrahend = settings("m3");
  head.scale = settings("scale");
  head.exact_gradient = settings("exact") != 0;
  head.sample_rate = settings("sample_rate");
  head.momentum = static_cast<graph::HeadMomentum>(settings("head_momentum"));
  head.margin = static_cast<graph::HeadMargin>(settings("kind"));
  head.strength = settings("strength");
  head.filter = settings("filter");
  return head;
}

compile::CompileOptions options_of(const Settings& settings) {
  compile::CompileOptions options;
  options.kernels.threads = 2;
  options.optimizer.name = graph::optimizers()[static_cast<size_t>(settings("optimizer"))].name;
  options.optimizer.momentum = settings("momentum");
  options.optimizer.nesterov = settings("nesterov") != 0;
  options.optimizer.weight_decay = settings("weight_decay");
  options.optimizer.clip_norm = settings("clip_norm");
  options.optimizer.clip_backbone = settings("clip_backbone") != 0;
  options.updates.check_overflow = settings("check_overflow") != 0;
  return options;
}

// The gradient of the embeddings is that of an offset, which is zero before every step.
constexpr std::string_view kOffset = "offset";

graph::Graph network(const graph::Shape& embeddings, const graph::MarginHeadOptions& head,
                     double rate) {
  graph::Builder net;
  const graph::Value offset = net.parameter(std::string(kOffset), embeddings, {});
  net.margin_head(net.add(net.input("embeddings", embeddings), offset), head);
  graph::Graph graph = net.take();
  passes::choose_trained(graph, {.head_rate = rate});
  return graph;
}

const compile::Slot& slot_of(const runtime::Session& session, std::string_view name) {
  for (const compile::Slot& slot : session.state()) {
    if (slot.name == name) return slot;
  }
  throw std::runtime_error(fmt::format("no tensor '{}'", name));
}

std::vector<float> read(const runtime::Session& session, std::string_view name) {
  const compile::Slot& slot = slot_of(session, name);
  std::vector<float> values(static_cast<size_t>(slot.type.elements()));
  session.read_state(slot, values);
  return values;
}

void clear_offset(runtime::Session& session) {
  for (const compile::Slot& slot : session.state()) {
    if (!slot.name.starts_with(kOffset)) continue;
    session.write_state(slot, std::vector<float>(static_cast<size_t>(slot.type.elements())));
  }
}

// What one step from nothing has left in the offset's state, or with no state in the offset.
std::vector<float> gradient_of(const runtime::Session& session, const Settings& settings,
                               float rate) {
  std::string_view suffix = ".momentum";
  float factor = 1;
  if (settings("optimizer") == 1) {
    suffix = ".first_moment";
    factor = 10;  // 1 / (1 - beta1)
  } else if (settings("optimizer") == 2) {
    factor = 1 / rate;  // LARS has the rate in its momentum
  } else if (settings("momentum") == 0) {
    suffix = "";
    factor = -1 / rate;
  }
  std::vector<float> gradient = read(session, fmt::format("{}{}", kOffset, suffix));
  for (float& value : gradient) value *= factor;
  return gradient;
}

std::vector<float> used_classes(const graph::MarginHeadOptions& head,
                                std::span<const int32_t> labels, int64_t step) {
  const graph::ClassRange range = {head.classes, 0, head.classes};
  const auto batch = static_cast<int64_t>(labels.size());
  std::vector<int32_t> tensor(static_cast<size_t>(graph::sample_elements(batch, batch)));
  kernels::draw_sample(range, head.sample_rate, labels, labels, kSeed, step, tensor.data());
  const kernels::ClassSample sample(tensor.data(), range, batch, head.sample_rate);
  std::vector<int32_t> classes(static_cast<size_t>(sample.count()));
  sample.list(0, classes);
  std::vector<float> used(static_cast<size_t>(head.classes));
  for (const int32_t number : classes) used[static_cast<size_t>(number)] = 1;
  return used;
}

void run(const char* input, const char* output) {
  const data::SafetensorsFile file(input);
  const Settings settings(file);
  const std::vector<int64_t> shape = file.at("embeddings").shape;
  const int64_t steps = shape.at(0), batch = shape.at(1), dimension = shape.at(2);
  const int64_t classes = file.at("centres").shape.at(0);
  const auto embeddings = values_of<float>(file, "embeddings");
  const auto labels = values_of<int32_t>(file, "labels");
  const auto rates = values_of<float>(file, "rates");
  const auto skip = static_cast<int64_t>(settings("skip"));
  const graph::MarginHeadOptions head = head_of(settings, classes);
  const compile::Program program = compile::compile_training(
      network({batch, dimension}, head, settings("head_rate")), options_of(settings));
  backend::Device device({.threads = 2});
  runtime::Session session(device, {&program});
  session.initialize(kSeed);
  session.write_state(slot_of(session, "head.centres"), values_of<float>(file, "centres"));

  std::vector<float> losses, hits, gradients, used;
  int64_t skipped = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const auto rows = static_cast<size_t>(batch * dimension);
    const auto row = std::span(embeddings).subspan(static_cast<size_t>(step) * rows, rows);
    const auto own =
        std::span(labels).subspan(static_cast<size_t>(step * batch), static_cast<size_t>(batch));
    clear_offset(session);
    session.write_input(program, "embeddings", row);
    session.write_input(program, "labels", own);
    kernels::StepState state = {
        .seed = kSeed, .step = step, .learning_rate = rates[static_cast<size_t>(step)]};
    state.skipped = skipped;
    session.run(program, state);
    if (step == skip) ++skipped;
    losses.push_back(session.scalar(program, "loss"));
    hits.push_back(session.scalar(program, "top1"));
    const std::vector<float> gradient = gradient_of(session, settings, state.learning_rate);
    gradients.insert(gradients.end(), gradient.begin(), gradient.end());
    const std::vector<float> sample = used_classes(head, own, step);
    used.insert(used.end(), sample.begin(), sample.end());
  }
  session.settle();

  std::vector<data::SafetensorsTensor> tensors;
  std::vector<std::vector<float>> kept;
  kept.reserve(16);
  const auto add = [&](const std::string& name, std::vector<int64_t> size,
                       std::vector<float> values) {
    kept.push_back(std::move(values));
    tensors.push_back(
        {name, "F32", std::move(size), kept.back().data(), kept.back().size() * sizeof(float)});
  };
  add("losses", {steps}, losses);
  add("top1", {steps}, hits);
  add("gradients", {steps, batch, dimension}, gradients);
  add("used", {steps, classes}, used);
  for (const compile::Slot& slot : session.state()) {
    if (!slot.name.starts_with("head.centres") || slot.type.dtype != graph::DataType::f32) continue;
    add(slot.name, {classes, dimension}, read(session, slot.name));
  }
  data::write_safetensors(output, tensors, {});
}

}  // namespace
}  // namespace millrace

int main(int count, char** arguments) {
  if (count != 3) {
    fmt::print(stderr, "usage: head_steps INPUT.safetensors OUTPUT.safetensors\n");
    return 2;
  }
  try {
    millrace::run(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
