#include "runtime/fill.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace::runtime {
namespace {

// Parts along every axis are what the whole tensor has there.
TEST(Fill, PartsStartAsTheWholeDoes) {
  const graph::Shape whole = {5, 4, 6};
  const graph::Initializer kinds[] = {{graph::Initializer::Kind::constant, 0.5f, 0},
                                      {graph::Initializer::Kind::normal, 1, 2},
                                      {graph::Initializer::Kind::uniform, -1, 3}};
  for (const graph::Initializer& initializer : kinds) {
    std::vector<float> all(120);
    fill_slice(initializer, "weights", 7, whole, {}, all);
    for (int axis = 0; axis < 3; ++axis) {
      graph::Shape shape = whole;
      shape[static_cast<size_t>(axis)] = 2;
      const graph::Slice slice = {axis, 1, whole[static_cast<size_t>(axis)]};
      std::vector<float> part(static_cast<size_t>(graph::elements_of(shape)));
      fill_slice(initializer, "weights", 7, shape, slice, part);
      size_t i = 0;
      for (int64_t a = 0; a < shape[0]; ++a) {
        for (int64_t b = 0; b < shape[1]; ++b) {
          for (int64_t c = 0; c < shape[2]; ++c) {
            const int64_t place = ((a + (axis == 0)) * 4 + b + (axis == 1)) * 6 + c + (axis == 2);
            EXPECT_EQ(part[i++], all[static_cast<size_t>(place)]) << axis;
          }
        }
      }
    }
  }
}

TEST(Fill, PieceByPieceIsTheSame) {
  const graph::Initializer normal = {graph::Initializer::Kind::normal, 0, 1};
  const graph::Slice slice = {1, 2, 9};
  std::vector<float> all(3 * 4 * 5);
  fill_slice(normal, "a", 1, {3, 4, 5}, slice, all);
  for (size_t first = 0; first < all.size(); first += 7) {
    std::vector<float> piece(std::min<size_t>(7, all.size() - first));
    fill_slice(normal, "a", 1, {3, 4, 5}, slice, piece, static_cast<int64_t>(first));
    for (size_t i = 0; i < piece.size(); ++i) EXPECT_EQ(piece[i], all[first + i]);
  }
}

TEST(Fill, DependsOnSeedAndName) {
  const graph::Initializer normal = {graph::Initializer::Kind::normal, 0, 1};
  std::vector<float> first(8);
  std::vector<float> second(8);
  fill_slice(normal, "a", 1, {8}, {}, first);
  fill_slice(normal, "b", 1, {8}, {}, second);
  EXPECT_NE(first, second);
  fill_slice(normal, "a", 2, {8}, {}, second);
  EXPECT_NE(first, second);
  fill_slice(normal, "a", 1, {8}, {}, second);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace millrace::runtime
