#include "runtime/finite_check.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "compile/compiler.h"
#include "models/models.h"

namespace millrace::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr kernels::StepState kStep = {3, 0, 0.01f};

// A network with weights and a batch, ready for a step.
class Network {
 public:
  explicit Network(const std::string& model, int64_t image = 28)
      : program_(compile(model, image)), device_({.threads = 1}), session_(device_, {&program_}) {
    session_.initialize(3);
    set_images(1);
    const std::vector<int32_t> labels = {1, 2, 3, 4};
    session_.write_input(program_, "labels", labels);
  }

  compile::Program& program() { return program_; }
  Session& session() { return session_; }
  void run() { session_.run(program_, kStep); }
  std::string explain(Watch what) { return explain_step(session_, program_, kStep, what); }

  void set_images(float scale) {
    const Random random(5, 5);
    std::vector<float> images(static_cast<size_t>(program_.input("images").type.elements()));
    for (size_t i = 0; i < images.size(); ++i) images[i] = scale * random.normal(i);
    session_.write_input(program_, "images", images);
  }

  std::vector<float> read(const std::string& name) {
    std::vector<float> values(static_cast<size_t>(slot(name).type.elements()));
    session_.read_state(slot(name), values);
    return values;
  }
  void fill(const std::string& name, float value) {
    session_.write_state(slot(name), std::vector<float>(read(name).size(), value));
  }

 private:
  static compile::Program compile(const std::string& model, int64_t image) {
    models::ModelOptions options = models::default_options(model);
    options.batch = 4;
    options.image = image;
    options.classes = 10;
    compile::CompileOptions settings;
    settings.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
    return compile::compile_training(models::build_model(model, options), settings);
  }

  const compile::Slot& slot(const std::string& name) const {
    for (const compile::Slot& slot : program_.state) {
      if (slot.name == name) return slot;
    }
    throw std::logic_error("no state " + name);
  }

  compile::Program program_;
  backend::Device device_;
  Session session_;
};

TEST(FiniteCheck, HealthyNetworksPass) {
  for (const char* model : {"fashion_cnn", "resnet18", "iresnet18", "mobilefacenet"}) {
    Network network(model, 36);
    for (const Watch what : {Watch::loss, Watch::finite, Watch::alive}) {
      watch(network.program(), what);
      for (int step = 0; step < 3; ++step) EXPECT_NO_THROW(network.run()) << model;
    }
  }
}

TEST(FiniteCheck, ChecksChangeNothing) {
  Network plain("fashion_cnn"), watched("fashion_cnn");
  watch(watched.program(), Watch::finite);
  watch(watched.program(), Watch::finite);
  plain.run();
  watched.run();
  EXPECT_EQ(plain.read("conv1.weight"), watched.read("conv1.weight"));
  EXPECT_EQ(plain.session().scalar(plain.program(), "loss"),
            watched.session().scalar(watched.program(), "loss"));
}

TEST(FiniteCheck, TheLossStopsTheStepBeforeAnyUpdate) {
  Network network("fashion_cnn");
  network.fill("layer2.0.conv2.weight", 1e38f);
  watch(network.program(), Watch::loss);
  const std::vector<float> before = network.read("conv1.weight");
  EXPECT_THROW(network.run(), kernels::Suspicious);
  EXPECT_EQ(network.read("conv1.weight"), before);
}

TEST(FiniteCheck, NamesTheFirstLayerThatGoesWrong) {
  Network network("fashion_cnn");
  network.fill("layer2.0.conv2.weight", 1e38f);
  watch(network.program(), Watch::loss);
  EXPECT_THROW(network.run(), kernels::Suspicious);
  EXPECT_THAT(network.explain(Watch::finite),
              AllOf(HasSubstr("layer 'layer2.0.conv2' (convolution, forward)"),
                    HasSubstr("values of 'layer2.0.conv2' that are not finite")));
}

TEST(FiniteCheck, NamesGradientsAndUpdates) {
  Network network("fashion_cnn");
  network.fill("fc.weight.momentum", std::numeric_limits<float>::max());
  network.fill("fc.weight", -std::numeric_limits<float>::max() / 1e30f);
  watch(network.program(), Watch::finite);
  try {
    network.session().run(network.program(), {3, 0, 1e30f});
    FAIL() << "nothing was found";
  } catch (const kernels::Suspicious& found) {
    EXPECT_THAT(found.what(), AllOf(HasSubstr("update"), HasSubstr("not finite")));
  }
}

TEST(FiniteCheck, NamesParametersAndInputs) {
  Network network("fashion_cnn");
  network.fill("layer1.0.conv1.weight", NAN);
  EXPECT_THAT(network.explain(Watch::finite),
              HasSubstr("9216 of 9216 values of the parameter 'layer1.0.conv1.weight'"));
  network.set_images(INFINITY);
  EXPECT_THAT(network.explain(Watch::finite), HasSubstr("the input 'images'"));
}

TEST(FiniteCheck, NamesALayerThatDied) {
  Network network("fashion_cnn");
  network.fill("layer3.0.conv1.weight", 0);
  EXPECT_THAT(network.explain(Watch::alive),
              AllOf(HasSubstr("layer 'layer3.0.conv1'"), HasSubstr("the same value everywhere")));
}

}  // namespace
}  // namespace millrace::runtime
