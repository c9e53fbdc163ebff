#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/builder.h"

namespace millrace::graph {
namespace {

using testing::HasSubstr;

Graph two_layers() {
  Builder net;
  net.relu(net.convolution(net.image(2, 3, 8, 8), "conv",
                           {.channels = 4, .kernel = 3, .stride = 2, .padding = 1}));
  return net.take();
}

TEST(Print, OneLinePerOperatorWithTypesAndAttributes) {
  EXPECT_EQ(to_text(two_layers()),
            "forward  conv[f32 2x4x4x4] = convolution(images[f32 2x3x8x8], conv.weight[f32 "
            "4x3x3x3]) {dilation=[1,1] groups=1 padding=[1,1] stride=[2,2]}\n"
            "forward  relu_1[f32 2x4x4x4] = relu(conv[f32 2x4x4x4])\n");
}

TEST(Print, ShowsLayoutsAndSharedMemory) {
  Graph graph = two_layers();
  graph.tensor(graph.find_tensor("conv")).layout = Layout("aBcd16b");
  graph.tensor(graph.find_tensor("relu_1")).storage = graph.find_tensor("conv");
  EXPECT_THAT(to_text(graph), HasSubstr("relu_1[f32 2x4x4x4 in-place] = relu(conv[f32 2x4x4x4 "
                                        "aBcd16b])"));
}

TEST(Print, LeavesOutRemovedOperators) {
  Graph graph = two_layers();
  graph.set_order({graph.order()[0]});
  EXPECT_EQ(to_text(graph).find("relu"), std::string::npos);
}

TEST(Print, Graphviz) {
  const std::string text = to_graphviz(two_layers());
  EXPECT_THAT(text, testing::StartsWith("digraph millrace {"));
  EXPECT_THAT(text, HasSubstr("n0 [label=\"conv\\nconvolution\""));
  EXPECT_THAT(text, HasSubstr("n0 -> n1 [label=\"2x4x4x4\"]"));
  EXPECT_THAT(text, testing::EndsWith("}\n"));
}

}  // namespace
}  // namespace millrace::graph
