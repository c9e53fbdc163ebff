#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/head/centre_block.h"
#include "kernels/head/head_problem.h"
#include "kernels/head/row_update.h"
#include "kernels/reference/reference.h"
#include "kernels/support/function_kernel.h"

namespace millrace::kernels {
namespace {

using Row = std::vector<double>;

Row row_of(const CentreRows& centres, int64_t number) {
  std::vector<float> values(static_cast<size_t>(centres.dimension));
  load_row(centres.storage, centres.row(number), centres.dimension, values.data());
  return {values.begin(), values.end()};
}

int64_t class_at(const ClassSample& sample, int64_t position) {
  int32_t number = 0;
  sample.list(position, {&number, 1});
  return number;
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Row embedding_of(const float* embeddings, int64_t i, int64_t dimension) {
  return {embeddings + i * dimension, embeddings + (i + 1) * dimension};
}

double length_of(const Row& centre) {
  return std::max<double>(std::sqrt(dot(centre, centre)), kLeastNorm);
}

// The reference has the formula from the cosine alone.
Target target_at(double cosine) {
  Target target;
  target.cosine = std::clamp(cosine, -1.0, 1.0);
  target.angle = std::acos(target.cosine);
  target.sine = std::sin(target.angle);
  return target;
}

void compute_statistics(const HeadProblem& problem, const KernelArguments& a) {
  const ClassSample sample(a.input<int32_t>(1), problem.range, problem.batch, problem.sample_rate);
  const CentreRows centres = {a.inputs[2], problem.storage, problem.dimension};
  for (int64_t i = 0; i < problem.batch; ++i) {
    const Row embedding = embedding_of(a.input<float>(0), i, problem.dimension);
    graph::HeadStatistics& row = a.output<graph::HeadStatistics>(0)[i];
    row = {0, 0, graph::kElsewhere, graph::kElsewhere, {}};
    std::vector<double> others;
    for (int64_t j = 0; j < sample.count(); ++j) {
      const Row centre = row_of(centres, class_at(sample, j));
      const double cosine = dot(embedding, centre) / length_of(centre);
      if (sample.targets()[i] == j) {
        row.target = static_cast<float>(problem.margin.logit(target_at(cosine)));
        row.plain = static_cast<float>(problem.margin.scale * cosine);
      } else {
        others.push_back(problem.margin.scale * cosine);
      }
    }
    if (others.empty()) continue;
    const double maximum = *std::max_element(others.begin(), others.end());
    double sum = 0;
    for (const double logit : others) sum += std::exp(logit - maximum);
    row.maximum = static_cast<float>(maximum);
    row.sum = static_cast<float>(sum);
  }
}

void update(const HeadProblem& problem, const RowUpdate& fixed, const KernelArguments& a) {
  const ClassSample sample(a.input<int32_t>(3), problem.range, problem.batch, problem.sample_rate);
  const CentreRows centres = {a.inputs[5], problem.storage, problem.dimension};
  const RowUpdate now = fixed.at_step(*a.step);
  const auto width = static_cast<size_t>(problem.dimension);
  std::vector<Row> of_embeddings(static_cast<size_t>(problem.batch), Row(width));
  std::vector<float> scratch(static_cast<size_t>(now.scratch_elements()));
  for (int64_t j = 0; j < sample.count(); ++j) {
    const int64_t number = class_at(sample, j);
    const Row centre = row_of(centres, number);
    const double norm = length_of(centre);
    Row of_centre(width);
    for (int64_t i = 0; i < problem.batch; ++i) {
      const Row embedding = embedding_of(a.input<float>(2), i, problem.dimension);
      const graph::HeadStatistics& row = a.input<graph::HeadStatistics>(1)[i];
      const graph::HeadStatistics& of_row = a.input<graph::HeadStatistics>(0)[i];
      const double cosine = dot(embedding, centre) / norm;
      const double scale = problem.margin.scale;
      const double of_cosine = sample.targets()[i] == j
                                   ? of_row.target * problem.margin.slope(target_at(cosine))
                                   : of_row.sum * std::exp(scale * cosine - row.maximum) * scale;
      for (size_t d = 0; d < width; ++d) {
        of_embeddings[static_cast<size_t>(i)][d] += of_cosine * centre[d] / norm;
        of_centre[d] += of_cosine * embedding[d] / norm;
      }
    }
    const double along = norm > kLeastNorm ? dot(of_centre, centre) / (norm * norm) : 0;
    for (size_t d = 0; d < width; ++d) of_centre[d] -= along * centre[d];
    std::vector<float> gradient(of_centre.begin(), of_centre.end());
    RowUpdate::Row row = {problem.range.begin + number, number, centres.row(number), {}};
    for (size_t s = 0; s < now.state_count(); ++s) {
      row.states[s] = CentreRows{a.inputs[6 + s], problem.storage, problem.dimension}.row(number);
    }
    now.apply(gradient.data(), static_cast<float>(norm), row, nullptr, scratch.data());
  }
  for (int64_t i = 0; i < problem.batch; ++i) {
    for (size_t d = 0; d < width; ++d) {
      a.output<float>(0)[i * problem.dimension + static_cast<int64_t>(d)] = static_cast<float>(
          of_embeddings[static_cast<size_t>(i)][d] * problem.embedding_share * a.step->loss_scale);
    }
  }
}

}  // namespace

namespace {

bool is_current(const KernelRequest& request, std::string* refusal) {
  if (request.op.attributes.flag("lazy")) {
    *refusal = "some rows are late";
  } else if (graph::head_margin_of(request.op.attributes) != graph::HeadMargin::fixed ||
             request.op.attributes.number("filter") > 0) {
    *refusal = "margins are not the same for all samples and classes";
  } else {
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Kernel> reference_head_statistics(const KernelRequest& request,
                                                  std::string* refusal) {
  if (!is_current(request, refusal)) return nullptr;
  return make_function_kernel([problem = head_problem_of(request, 0, 2, request.outputs[1].type)](
                                  const KernelArguments& a) { compute_statistics(problem, a); });
}

std::unique_ptr<Kernel> reference_head_update(const KernelRequest& request, std::string* refusal) {
  if (!is_current(request, refusal)) return nullptr;
  const HeadProblem problem = head_problem_of(request, 2, 5, request.inputs[4].type);
  return make_function_kernel(
      [problem, fixed = row_update_of(request.op.type, request.op.attributes, problem.storage,
                                      problem.dimension)](const KernelArguments& a) {
        update(problem, fixed, a);
      });
}

}  // namespace millrace::kernels
