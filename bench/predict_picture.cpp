// predict_picture WEIGHTS THREADS TIMES: seconds of each prediction of one picture, as JSON.
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>

#include "api/model.h"

int main(int count, char** words) {
  using namespace millrace;
  if (count != 4) return 2;
  api::Model model("", {.weights = words[1], .threads = std::atoi(words[2])});
  const int64_t side = model.image();
  const std::vector<uint8_t> pixels(static_cast<size_t>(side * side * 3), 0);
  std::vector<double> seconds;
  for (int i = 0; i < std::atoi(words[3]); ++i) {
    const auto began = std::chrono::steady_clock::now();
    model.predict({.pixels = pixels, .count = 1, .height = side, .width = side});
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  fmt::print("[{}]\n", fmt::join(seconds, ", "));
  return 0;
}
