"""Draws that were wrong once, each with what was; `make test` runs them before all others."""

DRAWS = [
    # Hosts waited for each other's choice before their queues had run what the others' collectives waited for.
    {"layout": "1.3", "ranks": "3", "batch": "6", "schedule": "ssp", "static": "off", "microbatches": "3",
     "precision": "fp16", "scale": "32", "backend": "strict"},
    # Centres of 16 bits, rounded at random, ought to move so little that none does.
    {"model": "mobilefacenet", "layout": "1.2.1", "threads": "2", "batch": "12", "optimizer": "nesterov",
     "clip": "0.001", "scale": "overflow", "head": "filtered", "head-rate": "high", "head-dtype": "bf16",
     "data": "small"},
    # The pipeline empties at the end of an epoch, which the plain model did not know.
    {"layout": "back1.1.1", "batch": "6", "schedule": "2bw", "optimizer": "lars-plain", "decay": "0",
     "epochs": "short"},
    # The optimizer was refused its own settings.
    {"layout": "2", "batch": "3", "sync": "on", "optimizer": "rmsprop"},
    # A stage without trained layers waited for the others before it had sent what they waited for.
    {"model": "resnet18", "layout": "2.2", "ranks": "2", "schedule": "1f1b-flush", "microbatches": "2", "cut": "after",
     "optimizer": "lars", "share": "on", "precision": "bf16", "wire": "fp32", "backend": "strict", "scale": "window",
     "trained": "late", "data": "small"},
    # One stage ran with new weights and another with old ones, where all was taken to be new or old alike.
    {"layout": "1.1.1.1", "batch": "1", "schedule": "ssp", "static": "off", "cut": "after", "total": "said",
     "optimizer": "adamw-odd", "decay": "0.01", "trained": "decayed", "data": "mixup", "finite": "on",
     "resume": "hybrid"},
    # The plain model did not tell a head in micro-batches the labels of the whole step.
    {"model": "iresnet18", "layout": "turns2.1.2.1", "ranks": "2", "batch": "24", "schedule": "interleaved",
     "plan": "file", "optimizer": "lars-plain", "decay": "0", "clip": "0.001", "precision": "bf16-storage",
     "wire": "fp16", "keep": "first", "convolutions": "winograd", "backend": "strict", "scale": "32",
     "trained": "scaled", "average": "0.9", "rate": "root", "head": "filtered", "head-parallel": "pfc",
     "eval": "faces", "data": "synthetic", "trace": "on", "resume": "alone"},
    # Losses of a step whose micro-batches are not divided evenly over replicas in turn were left out.
    {"layout": "1.3", "ranks": "2", "batch": "3", "schedule": "2bw", "replicas": "roundrobin", "optimizer": "lamb",
     "decay": "0.01", "wire": "fp16", "recompute": "cheap", "convolutions": "winograd", "backend": "strict",
     "scale": "32", "trained": "late", "rate": "cosine", "data": "synthetic", "finite": "on"},
    # What the hosts agreed on met collectives that a queue had not run yet.
    {"layout": "1.2", "parallel": "data", "schedule": "ssp", "static": "off", "replicas": "split", "share": "on",
     "backend": "strict", "norms": "frozen", "data": "mixup", "finite": "on"},
    {"layout": "2.2", "batch": "4", "parallel": "data", "schedule": "ssp", "static": "off", "optimizer": "adamw",
     "precision": "bf16", "wire": "bf16", "keep": "first", "backend": "strict", "data": "jitter", "resume": "apart"},
    # An overflow before the checkpoint, which the plain model did not count.
    {"model": "mobilefacenet", "layout": "1.2.1", "batch": "6", "schedule": "gpipe", "microbatches": "3", "cut": "after",
     "optimizer": "adamw", "sync": "on", "scale": "overflow", "head": "combined", "head-parallel": "dp",
     "head-gradient": "plain", "data": "jitter", "resume": "alone"},
    # An injected overflow that a ReLU behind the loss passed over.
    {"model": "squeezenet1_1", "layout": "1.1", "batch": "4", "schedule": "zero-bubble", "microbatches": "1",
     "cut": "after", "optimizer": "lamb", "decay": "0.01-all", "scale": "overflow", "dropout": "off",
     "data": "synthetic"},
    # A loss scale that came with a wire, where the job went on without one.
    {"wire": "fp16", "resume": "apart"},
    # A step that overflows where sums travel in fp16, and not on one device, which had begun the job.
    {"model": "mobilefacenet", "precision": "fp16", "rate": "step", "head": "softmax", "head-parallel": "pfc-all",
     "resume": "apart"},
    # The curriculum of a head, a mean that cancels, was taken for a weight that 16 bits leave where it is.
    {"model": "mobilefacenet", "layout": "2", "batch": "4", "parallel": "hybrid", "schedule": "zero-bubble",
     "microbatches": "1", "optimizer": "adamw", "decay": "0.01", "clip": "0.5", "precision": "fp16",
     "backend": "strict-random", "scale": "32", "trained": "decayed", "head": "curricularface", "head-rate": "high",
     "head-parallel": "dp", "head-gradient": "plain", "head-dtype": "fp16", "data": "changed", "finite": "on",
     "resume": "hybrid"},
    # One stage with a schedule that keeps two versions of the weights was made for one of them.
    {"layout": "2", "schedule": "2bw"},
    {"model": "mobilefacenet", "layout": "2", "batch": "4", "schedule": "2bw", "microbatches": "2", "head": "arcface"},
]
