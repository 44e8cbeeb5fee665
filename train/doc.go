// Package train runs training loops on one rank or many. It is the Go counterpart of Accelerate.
//
// An [Accelerator] is one rank's part of a loop. [Accelerator.Prepare] adapts modules, loaders,
// optimizers and schedulers to the [World]. [Accelerator.Accumulate] makes steps of several
// batches. [Accelerator.Backward] divides the loss, and averages gradients over the ranks when a
// step is due. [Launch] runs n ranks as goroutines of this process; without it there is one rank.
//
//	acc, err := train.New(train.Config{GradientAccumulationSteps: 4})
//	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.02})
//	var opt optim.Optimizer = sgd
//	err = acc.Prepare(model, &opt, loader)
//	for batch, err := range loader.All(ctx) {
//		…
//		err = acc.Accumulate(ctx, func(ctx context.Context) error {
//			loss := …
//			if err := acc.Backward(ctx, loss); err != nil {
//				return err
//			}
//			if err := opt.Step(); err != nil { // nothing until the window's last batch
//				return err
//			}
//			opt.ZeroGrad()
//			return nil
//		}, model)
//	}
//
// A [Trainer] is a complete loop with epochs, logs, evaluations, callbacks and checkpoints; a run
// resumes from a checkpoint with the same bits. [Accelerator.InitTrackers] opens trackers for
// measurements (package track).
//
// [Gather], [GatherForMetrics], [PadAcrossProcesses], [Reduce], [Broadcast] and
// [SplitBetweenProcesses] exchange objects and arrays, also nested ones. [Windows] weights a step
// by its tokens: it equals a step on one big batch, whatever the ranks, the window and the lengths
// of texts.
//
// [Accelerator.SaveState] and [Accelerator.LoadState] save and restore a run: weights, optimizers,
// schedules, the scaler, registered objects, generators, and the positions of loaders and windows.
// [SaveModel] writes the folder that serve opens. [Accelerator.NewTape] and [Accelerator.Autocast]
// compute in Config.MixedPrecision.
//
// # Like the reference
//
// The package behaves as Accelerate 1.15, the reference, so that runs can be compared. These
// surprises are the same:
//
//   - Backward divides by the steps of a window, even if the loader's end cut the window
//     short: its step is too small. [Corrections].ShortWindow divides by the real number of
//     batches.
//   - [GatherForMetrics] returns repeated samples if it cannot cut them;
//     [Corrections].MetricErrors returns the error.
//   - GradientAccumulation.AdjustScheduler does nothing; [Corrections].AdjustScheduler
//     enables it.
//   - The active loader is the one begun last that has not ended. A loop that is left by
//     break does not end its loader, so an evaluation that is left early hides the end of
//     the training loader, and its tail takes no step. Walk evaluation loaders to their end.
//   - A prepared scheduler takes as many steps as there are ranks (with SplitBatches one):
//     schedules count the batches of single devices.
//   - [Accelerator.NoSync] does not change [Accelerator.SyncGradients]: a loop that
//     accumulates by hand must step its optimizer by hand.
//   - Reducing by "none" sums.
//   - A checkpoint has the number of batches of an unfinished window but not its gradients;
//     [Corrections].PendingGradients saves them.
//   - Loading a state does not advance the number of the next automatically named
//     checkpoint, so the next save fails; [Corrections].SaveIteration advances it.
//   - Loaders begin anew after loading, unless DataLoaderConfig.UseStatefulDataLoader is set.
//   - Mixed precision "fp16" on a CPU is float32 without a scaler;
//     [Corrections].Float16OnCPU computes in float16.
//
// These are different on purpose. If ranks disagree where Accelerate would hang, the call fails and
// names them. [Accelerator.JoinUnevenInputs] works on the CPU. Checkpoints are JSON and safetensors
// instead of pickles, replace their predecessor atomically, and old ones are removed after the new
// one is in place.
//
// The package has no global state. Each rank has its own accelerator, which belongs to the rank's
// goroutine. The package knows no models: it needs a [Module]'s parameters and a loss on their
// tape.
package train
