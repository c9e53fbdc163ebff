// Margins that differ from sample to sample: AdaFace (arXiv 2204.00964), MagFace (2103.06627) and
// CurricularFace (2004.00288). Few numbers, so plain loops in double.
#include <algorithm>
#include <cmath>

#include "kernels/head/centre_block.h"
#include "kernels/head/head_kernels.h"
#include "kernels/head/head_problem.h"
#include "kernels/support/function_kernel.h"

namespace millrace::kernels {
namespace {

constexpr double kNews = 0.01;  // weight of a step in what is known of all

// AdaFace: lengths are compared with those of other samples, so far.
constexpr double kFirstMean = 20, kFirstDeviation = 100;
constexpr double kShortest = 0.001, kLongest = 100, kLeastDeviation = 0.001;

// MagFace: between these lengths the margin grows; the penalty falls up to the longest.
constexpr double kLowerLength = 10, kUpperLength = 110, kPenalty = 35;

struct MarginMaker {
  Margin margin;
  double strength = 0;

  // `known` has the mean and the deviation less those of the beginning.
  void by_quality(const float* lengths, int64_t batch, float* known,
                  graph::SampleMargin* rows) const {
    const auto length = [&](int64_t i) {
      return std::clamp(static_cast<double>(lengths[i]), kShortest, kLongest);
    };
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < batch; ++i) mean += length(i) / static_cast<double>(batch);
    for (int64_t i = 0; i < batch; ++i) squares += std::pow(length(i) - mean, 2);
    const double deviation =
        std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, batch - 1)));
    known[0] = static_cast<float>(kNews * (mean - kFirstMean) + (1 - kNews) * known[0]);
    known[1] = static_cast<float>(kNews * (deviation - kFirstDeviation) + (1 - kNews) * known[1]);
    for (int64_t i = 0; i < batch; ++i) {
      const double apart =
          (length(i) - (kFirstMean + known[0])) / (kFirstDeviation + known[1] + kLeastDeviation);
      const double quality = std::clamp(apart * strength, -1.0, 1.0);
      rows[i] = {static_cast<float>(-margin.addend * quality),
                 static_cast<float>(margin.addend * (1 + quality)), 0};
    }
  }

  double growth() const { return (strength - margin.addend) / (kUpperLength - kLowerLength); }

  void by_magnitude(const float* lengths, int64_t batch, graph::SampleMargin* rows) const {
    for (int64_t i = 0; i < batch; ++i) {
      const double length = std::clamp(static_cast<double>(lengths[i]), kLowerLength, kUpperLength);
      rows[i] = {
          static_cast<float>(margin.addend + growth() * (length - kLowerLength)),
          static_cast<float>(margin.subtrahend),
          static_cast<float>(kPenalty * (length / (kUpperLength * kUpperLength) + 1 / length))};
    }
  }

  // `known` has the share by which hard classes count, which follows the cosines.
  void by_curriculum(const float* cosines, int64_t batch, float* known,
                     graph::SampleMargin* rows) const {
    double mean = 0;
    for (int64_t i = 0; i < batch; ++i) mean += cosines[i] / static_cast<double>(batch);
    known[0] = static_cast<float>(kNews * mean + (1 - kNews) * known[0]);
    for (int64_t i = 0; i < batch; ++i) {
      Target target;
      target.cosine = std::clamp(static_cast<double>(cosines[i]), -1.0, 1.0);
      target.angle = std::acos(target.cosine);
      rows[i] = {static_cast<float>(margin.logit(target)), known[0], 0};
    }
  }
};

MarginMaker maker_of(const KernelRequest& request) {
  return {margin_of(request.op.attributes), request.op.attributes.number("margin_strength")};
}

}  // namespace

std::unique_ptr<Kernel> make_head_cosines(const KernelRequest& request, std::string*) {
  const HeadProblem problem = head_problem_of(request, 0, 2, {{0}, graph::DataType::f32});
  return make_function_kernel([problem](const KernelArguments& a) {
    const ClassSample sample(a.input<int32_t>(1), problem.range, problem.batch,
                             problem.sample_rate);
    const CentreRows centres = {a.inputs[2], problem.storage, problem.dimension};
    std::vector<float> centre(static_cast<size_t>(problem.dimension));
    for (int64_t i = 0; i < problem.batch; ++i) {
      a.output<float>(0)[i] = 0;
      const int32_t position = sample.targets()[i];
      if (position < 0) continue;
      int32_t number = 0;
      sample.list(position, {&number, 1});
      load_row(centres.storage, centres.row(number), centres.dimension, centre.data());
      a.output<float>(0)[i] =
          static_cast<float>(measure_target(a.input<float>(0) + i * problem.dimension,
                                            centre.data(), problem.dimension)
                                 .cosine);
    }
  });
}

std::unique_ptr<Kernel> make_head_margins(const KernelRequest& request, std::string*) {
  const MarginMaker maker = maker_of(request);
  const int64_t batch = request.inputs[0].type.shape.at(0);
  return make_function_kernel([=](const KernelArguments& a) {
    auto* rows = a.output<graph::SampleMargin>(0);
    switch (maker.margin.kind) {
      case graph::HeadMargin::quality:
        return maker.by_quality(a.input<float>(0), batch, a.input<float>(1), rows);
      case graph::HeadMargin::magnitude:
        return maker.by_magnitude(a.input<float>(0), batch, rows);
      default:
        return maker.by_curriculum(a.input<float>(0), batch, a.input<float>(1), rows);
    }
  });
}

// Of MagFace's: the others take lengths and cosines as given.
std::unique_ptr<Kernel> make_head_margins_backward(const KernelRequest& request, std::string*) {
  const MarginMaker maker = maker_of(request);
  const int64_t batch = request.inputs[1].type.shape.at(0);
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t i = 0; i < batch; ++i) {
      const double length = a.input<float>(1)[i];
      const graph::SampleMargin& of = a.input<graph::SampleMargin>(0)[i];
      const bool is_between = length >= kLowerLength && length <= kUpperLength;
      const double falls = kPenalty * (1 / (kUpperLength * kUpperLength) - 1 / (length * length));
      a.output<float>(0)[i] =
          is_between ? static_cast<float>(of.addend * maker.growth() + of.penalty * falls) : 0.0f;
    }
  });
}

std::unique_ptr<Kernel> make_head_margin_gradient(const KernelRequest& request, std::string*) {
  const Margin margin = margin_of(request.op.attributes);
  const double share = request.op.attributes.number("embedding_share");
  const int64_t batch = request.inputs[0].type.shape.at(0);
  return make_function_kernel([=](const KernelArguments& a) {
    const double factor = share * a.step->loss_scale;
    for (int64_t i = 0; i < batch; ++i) {
      const graph::HeadStatistics& of = a.input<graph::HeadStatistics>(0)[i];
      const graph::HeadStatistics& row = a.input<graph::HeadStatistics>(1)[i];
      auto& out = a.output<graph::SampleMargin>(0)[i];
      out = {};
      if (row.target == graph::kElsewhere) continue;
      Target target;
      target.cosine = std::clamp(static_cast<double>(row.plain) / margin.scale, -1.0, 1.0);
      target.angle = std::acos(target.cosine);
      out.addend = static_cast<float>(factor * static_cast<double>(of.target) *
                                      margin.of(row.margin).slope_of_addend(target));
      out.subtrahend = static_cast<float>(-factor * margin.scale * static_cast<double>(of.target));
      out.penalty = static_cast<float>(factor * static_cast<double>(of.margin.penalty));
    }
  });
}

}  // namespace millrace::kernels
