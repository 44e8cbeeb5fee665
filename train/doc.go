// Package train runs training loops on one rank or many: the Go counterpart of
// Accelerate's Accelerator.
//
// An [Accelerator] is one rank's part of a loop. [Accelerator.Prepare] fits its
// modules, loaders, optimizers and schedulers to the [World] they train in;
// [Accelerator.Accumulate] makes steps of several batches; [Accelerator.Backward]
// divides the loss and averages gradients over the ranks when a step is due. [Launch]
// runs n ranks as goroutines of this process; without it there is one.
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
// A [Trainer] is the whole loop: epochs, logs, evaluations, callbacks, and checkpoints
// that runs go on from bit for bit. [Accelerator.InitTrackers] opens what measurements
// are written to (package track).
//
// [Gather], [GatherForMetrics], [PadAcrossProcesses], [Reduce], [Broadcast] and
// [SplitBetweenProcesses] exchange arrays, nested as they like, and objects. [Windows]
// weights a step by its tokens, so that it is that of one big batch whatever the ranks,
// the window and the lengths of texts.
//
// [Accelerator.SaveState] and [Accelerator.LoadState] keep and restore a run: weights,
// optimizers, schedules, the scaler, registered objects, generators, and where loaders and
// windows are. [SaveModel] writes the folder that serve opens. [Accelerator.NewTape] and
// [Accelerator.Autocast] compute in Config.MixedPrecision.
//
// # Like the reference
//
// What happens when is that of Accelerate 1.15, because runs are compared with its
// runs. What surprises there does here, too:
//
//   - Backward divides by the steps of a window, also where the loader's end cut the
//     window short: its step is too small. [Corrections].ShortWindow divides by the real
//     number of batches.
//   - [GatherForMetrics] returns repeated samples with the rest where it cannot cut them;
//     [Corrections].MetricErrors returns the error.
//   - GradientAccumulation.AdjustScheduler does nothing; [Corrections].AdjustScheduler
//     lets it.
//   - The active loader is the one begun last that has not ended, and a loop that is left
//     by break does not end its loader: an evaluation left early hides the end of the
//     training loader, whose tail then takes no step. Walk evaluation loaders to their end.
//   - A prepared scheduler takes as many steps as there are ranks (with SplitBatches one):
//     schedules count the batches of single devices.
//   - [Accelerator.NoSync] leaves [Accelerator.SyncGradients] alone: a loop that
//     accumulates by hand steps its optimizer by hand.
//   - Reducing by "none" sums.
//   - A checkpoint has the count of an unfinished window but not its gradients;
//     [Corrections].PendingGradients saves them.
//   - Loading a state does not advance the number of the next automatically named
//     checkpoint, so that saving meets one that exists; [Corrections].SaveIteration counts on.
//   - Loaders begin anew after loading, unless DataLoaderConfig.UseStatefulDataLoader.
//   - Mixed precision "fp16" on a CPU is float32 without a scaler;
//     [Corrections].Float16OnCPU takes it at its word.
//
// Different on purpose: what would hang there because ranks disagree is an error here
// that names them; [Accelerator.JoinUnevenInputs] works on the CPU; checkpoints hold JSON
// and safetensors in place of pickles, take their place whole, and old ones go only after
// the new one is there.
//
// Nothing is global: ranks of one process have an accelerator each, and it belongs to
// its rank's goroutine. The package knows no models; it needs a [Module]'s parameters
// and a loss on their tape.
package train
