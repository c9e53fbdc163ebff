#include "plain_optimizer.h"

#include <cmath>

namespace millrace::combinations {
namespace {

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

void PlainOptimizer::prepare(TrainedTensor& tensor) const {
  std::vector<std::string> names;
  if (settings_.name == "adamw" || settings_.name == "lamb") {
    names = {".first_moment", ".second_moment"};
  } else if (settings_.name == "rmsprop") {
    names = {".second_moment"};
    if (settings_.momentum != 0) names.emplace_back(".momentum");
  } else if (settings_.momentum != 0 || (settings_.name == "lars" && tensor.shape.size() > 1)) {
    names = {".momentum"};
  }
  for (const std::string& name : names) tensor.state[name].assign(tensor.values.size(), 0);
}

void PlainOptimizer::update(TrainedTensor& tensor, const std::vector<double>& gradient,
                            double learning_rate, int64_t number) const {
  const bool is_vector = tensor.shape.size() <= 1;
  const double decay = is_vector && !settings_.decay_all ? 0 : settings_.weight_decay;
  if (settings_.name == "adamw" || settings_.name == "lamb") {
    adamw(tensor, gradient, learning_rate, decay, number);
  } else if (settings_.name == "rmsprop") {
    rmsprop(tensor, gradient, learning_rate, decay);
  } else if (settings_.name == "lars" && !is_vector) {
    lars(tensor, gradient, learning_rate, decay);
  } else {
    sgd(tensor, gradient, learning_rate, decay);
  }
}

void PlainOptimizer::sgd(TrainedTensor& tensor, const std::vector<double>& gradient,
                         double learning_rate, double decay) const {
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const double slope = gradient[i] + decay * tensor.values[i];
    double step = slope;
    if (settings_.momentum != 0) {
      double& velocity = tensor.state.at(".momentum")[i];
      velocity = settings_.momentum * velocity + slope;
      step = settings_.nesterov ? slope + settings_.momentum * velocity : velocity;
    }
    tensor.values[i] -= learning_rate * step;
  }
}

void PlainOptimizer::adamw(TrainedTensor& tensor, const std::vector<double>& gradient,
                           double learning_rate, double decay, int64_t number) const {
  const auto t = static_cast<double>(number);
  std::vector<double>& first = tensor.state.at(".first_moment");
  std::vector<double>& second = tensor.state.at(".second_moment");
  std::vector<double> step(tensor.values.size());
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    first[i] = settings_.beta1 * first[i] + (1 - settings_.beta1) * gradient[i];
    second[i] = settings_.beta2 * second[i] + (1 - settings_.beta2) * gradient[i] * gradient[i];
    const double mean = first[i] / (1 - std::pow(settings_.beta1, t));
    const double variance = second[i] / (1 - std::pow(settings_.beta2, t));
    step[i] = mean / (std::sqrt(variance) + settings_.epsilon) + decay * tensor.values[i];
  }
  double length = learning_rate;  // LAMB: You et al. (arXiv 1904.00962), algorithm 2
  if (settings_.name == "lamb" && tensor.shape.size() > 1 && norm(step) > 0) {
    length *= norm(tensor.values) / norm(step);
  }
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] -= length * step[i];
}

void PlainOptimizer::rmsprop(TrainedTensor& tensor, const std::vector<double>& gradient,
                             double learning_rate, double decay) const {
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const double slope = gradient[i] + decay * tensor.values[i];
    double& square = tensor.state.at(".second_moment")[i];
    square = settings_.beta2 * square + (1 - settings_.beta2) * slope * slope;
    double step = slope / (std::sqrt(square) + settings_.epsilon);
    if (settings_.momentum != 0) {
      double& velocity = tensor.state.at(".momentum")[i];
      velocity = settings_.momentum * velocity + step;
      step = velocity;
    }
    tensor.values[i] -= learning_rate * step;
  }
}

// You, Gitman, Ginsburg (arXiv 1708.03888), algorithm 1.
void PlainOptimizer::lars(TrainedTensor& tensor, const std::vector<double>& gradient,
                          double learning_rate, double decay) const {
  const double weight_norm = norm(tensor.values);
  const double gradient_norm = norm(gradient);
  double rate = learning_rate;
  if (weight_norm != 0 && gradient_norm != 0) {
    rate *=
        settings_.trust * weight_norm / (gradient_norm + decay * weight_norm + settings_.epsilon);
  }
  std::vector<double>& velocity = tensor.state.at(".momentum");
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    velocity[i] =
        settings_.momentum * velocity[i] + rate * (gradient[i] + decay * tensor.values[i]);
    tensor.values[i] -= velocity[i];
  }
}

}  // namespace millrace::combinations
