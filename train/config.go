package train

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/track"
)

// Config says how an [Accelerator] behaves. Its zero value is Accelerate's default: one
// process, no accumulation, even batches. Options that are on unless turned off are
// pointers: nil is on, new(false) is off.
type Config struct {
	// World is this rank's place, as [Launch] gives it; nil is a world of one.
	World *World
	// GradientAccumulationSteps is short for GradientAccumulation{Steps: n}. Giving both
	// is an error.
	GradientAccumulationSteps int
	// GradientAccumulation says when gradients become a step; nil steps every time.
	GradientAccumulation *GradientAccumulation
	// DataLoader says how loaders are dealt to the ranks.
	DataLoader DataLoaderConfig
	// StepSchedulerWithOptimizer (nil: true) lets prepared schedulers step only when
	// their optimizer did, once for every rank's batches. Off, they step on each call.
	StepSchedulerWithOptimizer *bool
	// MixedPrecision is that of products on tapes of [Accelerator.NewTape] and under
	// [Accelerator.Autocast]: "no" (or ""), "bf16", or "fp16", which means "no" unless
	// [Corrections].Float16OnCPU is set.
	MixedPrecision string
	// Scaler keeps float16 gradients in range: Backward scales the loss by it, prepared
	// optimizers step through it. Nil leaves gradients alone, but in float16, which makes
	// one with torch's defaults.
	Scaler *optim.Scaler
	// ProjectDir is short for Project.ProjectDir.
	ProjectDir string
	// Project says where checkpoints go and how they are called.
	Project ProjectConfiguration
	// DevicePlacement (nil: true) brings what is prepared to the device. All is on the
	// host already, so that neither changes anything.
	DevicePlacement *bool
	// LogWith names the trackers that [Accelerator.InitTrackers] opens ([track.Names], or
	// "all"), and Trackers are further ones, which the main process gets.
	LogWith  []string
	Trackers []track.Tracker
	// Corrections turns off faults of the reference that are copied by default.
	Corrections Corrections
	// Logger is what [Accelerator.Logger] writes to; nil is slog.Default().
	Logger *slog.Logger
}

// GradientAccumulation gathers the gradients of several batches for one step.
type GradientAccumulation struct {
	// Steps is the number of batches of a window; 0 is 1.
	Steps int
	// AdjustScheduler (nil: true) counts a prepared scheduler's calls during
	// accumulation. The reference never does, whatever is set: it takes effect with
	// [Corrections].AdjustScheduler only.
	AdjustScheduler *bool
	// SyncWithDataloader (nil: true) ends the window with the active loader, however
	// short it is. Off, windows run on into the next epoch and a tail is not stepped.
	SyncWithDataloader *bool
	// SyncEachBatch averages gradients over the ranks after every backward pass, not
	// only after a window's last. The steps are the same, the traffic is more.
	SyncEachBatch bool
}

// DataLoaderConfig says how [Accelerator.PrepareDataLoader] deals a loader to the ranks.
type DataLoaderConfig struct {
	// SplitBatches means that a loader's batch is that of all ranks together, which each
	// get a piece of; else every rank gets whole batches.
	SplitBatches bool
	// DispatchBatches says who reads: rank 0, for all (true), every rank its part
	// (false), or rank 0 for streams only (nil).
	DispatchBatches *bool
	// EvenBatches (nil: true) completes the tail with repeated samples, so that all
	// ranks get as many and as large batches. Off, use [Accelerator.JoinUnevenInputs].
	EvenBatches *bool
	// UseSeedableSampler makes a random order depend on DataSeed and the epoch only.
	UseSeedableSampler bool
	// DataSeed is the seed of that order.
	DataSeed uint64
	// UseStatefulDataLoader lets [Accelerator.LoadState] bring loaders to where they were:
	// the next walk goes on with the batch after the last one, in the same order.
	UseStatefulDataLoader bool
	// NonBlocking and PinMemory concern copies to a device. On the host, where batches
	// are used in place, they change nothing.
	NonBlocking, PinMemory bool
}

// Corrections are faults of the reference that Heft can do right. The zero value copies
// them all, because runs are compared with the reference's; new work should use
// [Corrected].
type Corrections struct {
	// ShortWindow divides the gradients of a window that the loader's end cut short by
	// its real number of batches. The reference divides by Steps, so that the last step
	// of such an epoch is too small. It works through [Accelerator.Accumulate].
	ShortWindow bool
	// MetricErrors lets [GatherForMetrics] return what it could not cut. The reference
	// hides the error and returns the padding with the rest, which counts samples twice.
	MetricErrors bool
	// AdjustScheduler lets GradientAccumulation.AdjustScheduler take effect.
	AdjustScheduler bool
	// PendingGradients lets [Accelerator.SaveState] save the gradients of a window that
	// has not ended. The reference saves the count of its batches only, so that the step
	// after loading lacks what they gathered.
	PendingGradients bool
	// SaveIteration lets [Accelerator.LoadState] count on after the checkpoint that it
	// loaded. In the reference the next automatically named checkpoint fails, because
	// counting begins anew.
	SaveIteration bool
	// Float16OnCPU lets MixedPrecision "fp16" be what it says, with a scaler. The reference
	// trains in float32 then, without a scaler and without a word.
	Float16OnCPU bool
}

// Corrected is every correction.
func Corrected() Corrections {
	return Corrections{ShortWindow: true, MetricErrors: true, AdjustScheduler: true, PendingGradients: true, SaveIteration: true, Float16OnCPU: true}
}

// on is the value of an option that is true unless turned off.
func on(b *bool) bool { return b == nil || *b }

func (c *Config) accumulation() (GradientAccumulation, error) {
	g := GradientAccumulation{Steps: c.GradientAccumulationSteps}
	if c.GradientAccumulation != nil {
		if c.GradientAccumulationSteps != 0 {
			return g, errors.New("train: both GradientAccumulationSteps and GradientAccumulation are given")
		}
		g = *c.GradientAccumulation
	}
	if g.Steps < 0 {
		return g, fmt.Errorf("train: a window of %d batches", g.Steps)
	}
	g.Steps = max(1, g.Steps)
	return g, nil
}
