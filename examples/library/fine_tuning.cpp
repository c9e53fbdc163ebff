// fine_tuning FOLDER WEIGHTS MODEL: trains all but the first layers of a network on a folder with a
// folder for each class, and leaves it as an ONNX file.
#include <millrace/millrace.h>

#include <cstdio>

using namespace millrace;

int main(int count, char** arguments) {
  if (count != 4) return std::fputs("usage: fine_tuning FOLDER WEIGHTS MODEL\n", stderr), 2;
  try {
    const api::Data pets("folder:" + std::string(arguments[1]), {.valid = 0.2, .seed = 1});
    api::Model net(arguments[3], {.classes = pets.classes(), .weights = arguments[2]});
    net.freeze({"conv1", "bn1", "layer1"});
    const api::Job job(net, pets.train(), pets.valid(),
                       {.batch = 16, .epochs = 2, .learning_rate = 0.02, .schedule = "cosine"});
    const api::Run run = job.train(
        {.on_message = [](const std::string& sentence) { std::printf("%s\n", sentence.c_str()); }});
    api::Model best = run.best();
    std::printf("%s\n", best.evaluate(*pets.valid()).text().c_str());
    best.save("tuned.safetensors");
    best.export_onnx("tuned.onnx");
  } catch (const InputError& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 2;
  } catch (const JobError& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
