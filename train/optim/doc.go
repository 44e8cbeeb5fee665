// Package optim implements torch's optimizers, learning-rate schedules, gradient clipping and
// loss scaling.
//
// A [Param] provides its values and their gradient. A [Descent] steps parameters, in one pass
// over each: [NewSGD], [NewAdam], [NewAdamW], [NewAdagrad], [NewRMSprop]. Its parameters are in
// groups ([Group]), whose learning rates a [Scheduler] changes: a [Lambda] by a [Factor] (Linear,
// Cosine, …), a [OneCycle], or a [Plateau] by a metric; [NewScheduler] creates them by the names
// that Hugging Face's Trainer uses. [ClipNorm] and [ClipValue] bound gradients. A [Scaler] keeps
// float16 gradients in range.
//
// [Prepared] and [PreparedScheduler] do what Accelerate's wrappers do: nothing while gradients
// accumulate, and no schedule step if the optimizer's was skipped.
//
// Results equal those of torch 2.15 and transformers 5.23, in float32, including surprising ones:
//   - Schedules begin at their step 0, which is a rate of 0 under a warm-up: the first step
//     changes nothing. cosine rises again past its end; linear stays at 0.
//     cosine_warmup_with_min_lr begins one step in. polynomial divides by zero if warm-up and
//     training are equally long; here that is an error when it is created.
//   - SGD's first momentum is the gradient itself, without dampening. AdamW decays the weight
//     before the step, and adds eps after the bias correction of the root.
//   - An infinite norm scales gradients to 0, and infinite ones to NaN. Gradients that a Scaler
//     has scaled must be unscaled before they are clipped.
//   - Under a PreparedScheduler one optimizer step advances the schedule by as many steps as
//     there are ranks, unless SplitBatches is set: a schedule counts per-device batches.
//
// The package is not safe for concurrent use. A Descent uses several goroutines for large
// parameters; the result does not depend on their number. The package does not depend on tensors,
// models or ranks.
package optim
