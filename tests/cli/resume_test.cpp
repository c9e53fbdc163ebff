// A run that goes on otherwise than it began says so.
#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ResumeTest : public ProgramTest {
 protected:
  Outcome train(const std::string& more) const {
    const Outcome outcome =
        run("train --model fashion_cnn --batch 4 --threads-per-device 1 --conv-algo direct "
            "--checkpoint run " +
            more);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome;
  }
};

TEST_F(ResumeTest, TheSameJobIsSilent) {
  train("--steps 1 --lr 0.1");
  EXPECT_EQ(train("--steps 2 --lr 0.1 --resume").errors, "");
}

TEST_F(ResumeTest, EveryChangeIsToldWithWhatItWas) {
  train("--steps 1 --lr 0.1 --save-weights w.safetensors");
  const Outcome outcome = train(
      "--steps 3 --lr 0.5 --lr-schedule cosine --weight-decay 0.5 --microbatches 2 --resume "
      "--load-weights w.safetensors");
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("--lr is 0.5 from now on; up to step 1 it was 0.1."),
                                    HasSubstr("--lr-schedule is \"cosine\" from now on"),
                                    HasSubstr("is 3 from now on; up to step 1 it was 1."),
                                    HasSubstr("--weight-decay is 0.5 from now on"),
                                    HasSubstr("plan's microbatches is 2 from now on"),
                                    Not(HasSubstr("--momentum"))));
  EXPECT_THAT(outcome.output, HasSubstr("--load-weights is passed over"));
}

}  // namespace
}  // namespace millrace::cli
