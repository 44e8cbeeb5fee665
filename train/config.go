package train

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/track"
)

// Config configures an [Accelerator]. Its zero value is Accelerate's default: one process, no
// accumulation, even batches. Options that default to true are pointers: nil is true, new(false) is
// false.
type Config struct {
	// World is this rank's place, as [Launch] passes it. Nil is a world of one rank.
	World *World
	// Plugin says how the ranks share the work. Its World must be nil or World. Nil keeps
	// everything on each rank, as a [TorchDDPPlugin] does.
	Plugin Plugin
	// GradientAccumulationSteps is short for GradientAccumulation{Steps: n}. Setting both is an
	// error.
	GradientAccumulationSteps int
	// GradientAccumulation says when the optimizer steps. Nil steps after every batch.
	GradientAccumulation *GradientAccumulation
	// DataLoader says how loaders are split between the ranks.
	DataLoader DataLoaderConfig
	// StepSchedulerWithOptimizer (nil: true) lets prepared schedulers step only when their
	// optimizer did, once for every rank's batch. If false, they step on each call.
	StepSchedulerWithOptimizer *bool
	// MixedPrecision is the precision of products on tapes of [Accelerator.NewTape] and under
	// [Accelerator.Autocast]: "no" (or ""), "bf16" or "fp16". "fp16" computes in float32 unless
	// [Corrections].Float16OnCPU is set.
	MixedPrecision string
	// Scaler keeps float16 gradients in range: Backward scales the loss, and prepared optimizers
	// step through it. Nil does not scale, except that float16 makes one with torch's defaults.
	Scaler *optim.Scaler
	// ProjectDir is short for Project.ProjectDir.
	ProjectDir string
	// Project says where checkpoints are saved and how they are named.
	Project ProjectConfiguration
	// DevicePlacement (nil: true) has no effect: all data is on the host.
	DevicePlacement *bool
	// LogWith names the trackers that [Accelerator.InitTrackers] opens on the main process: names
	// of [track.Names], or "all". Trackers are further ones.
	LogWith  []string
	Trackers []track.Tracker
	// Corrections turns off faults of Accelerate that Heft copies by default.
	Corrections Corrections
	// Logger is the target of [Accelerator.Logger]. Nil is slog.Default().
	Logger *slog.Logger
}

// GradientAccumulation sums the gradients of several batches, an accumulation window, for one step.
type GradientAccumulation struct {
	// Steps is the number of batches in a window. 0 means 1.
	Steps int
	// AdjustScheduler (nil: true) counts a prepared scheduler's calls during accumulation.
	// Accelerate ignores it, so it takes effect only with [Corrections].AdjustScheduler.
	AdjustScheduler *bool
	// SyncWithDataloader (nil: true) ends the window with the active loader, however short the
	// window is. If false, windows continue in the next epoch, and the optimizer does not step for
	// the tail.
	SyncWithDataloader *bool
	// SyncEachBatch averages gradients over the ranks after every backward pass instead of once per
	// window. The steps are the same up to rounding; the traffic is higher. With
	// [TorchDDPPlugin].ShareMemory the ranks then share one copy of a window's gradients; otherwise
	// each has its own. [Windows] ignores it.
	SyncEachBatch bool
}

// DataLoaderConfig says how [Accelerator.PrepareDataLoader] splits a loader between the ranks.
type DataLoaderConfig struct {
	// SplitBatches means that a loader's batch is shared by all ranks: each rank gets a part of it.
	// Otherwise every rank gets whole batches.
	SplitBatches bool
	// DispatchBatches says which rank reads: rank 0 for all ranks (true), each rank for itself
	// (false), or rank 0 for streams only (nil).
	DispatchBatches *bool
	// EvenBatches (nil: true) repeats samples at the end, so that all ranks get the same number of
	// batches, all full. If false, use [Accelerator.JoinUnevenInputs].
	EvenBatches *bool
	// UseSeedableSampler makes a random order depend on DataSeed and the epoch only.
	UseSeedableSampler bool
	// DataSeed is the seed of UseSeedableSampler.
	DataSeed uint64
	// UseStatefulDataLoader lets [Accelerator.LoadState] restore the positions of loaders: the next
	// walk continues with the batch after the last one, in the same order.
	UseStatefulDataLoader bool
	// NonBlocking and PinMemory concern copies to a device. They have no effect on the host.
	NonBlocking, PinMemory bool
}

// split returns the configuration for package data.
func (c *DataLoaderConfig) split() data.PrepareOptions {
	dispatch := data.DispatchStreams
	if c.DispatchBatches != nil {
		dispatch = data.DispatchNever
		if *c.DispatchBatches {
			dispatch = data.DispatchAlways
		}
	}
	return data.PrepareOptions{
		SplitBatches:       c.SplitBatches,
		UnevenBatches:      !on(c.EvenBatches),
		Dispatch:           dispatch,
		UseSeedableSampler: c.UseSeedableSampler,
		DataSeed:           c.DataSeed,
	}
}

// Corrections fixes faults of Accelerate. The zero value copies the faults, so that runs can be
// compared with Accelerate's. New programs should use [Corrected].
type Corrections struct {
	// ShortWindow divides the gradients of a window that the loader's end cut short by the real
	// number of batches. Accelerate divides by Steps, so the last step of such an epoch is too
	// small. It works through [Accelerator.Accumulate].
	ShortWindow bool
	// MetricErrors lets [GatherForMetrics] return an error if it cannot cut the padding. Accelerate
	// hides the error and returns the padding, which counts samples twice.
	MetricErrors bool
	// AdjustScheduler enables GradientAccumulation.AdjustScheduler.
	AdjustScheduler bool
	// PendingGradients lets [Accelerator.SaveState] save the gradients of an unfinished window.
	// Accelerate saves only the number of its batches, so the first step after loading is too
	// small.
	PendingGradients bool
	// SaveIteration lets [Accelerator.LoadState] continue the numbers of automatically named
	// checkpoints. In Accelerate the next save fails, because the numbers start again.
	SaveIteration bool
	// Float16OnCPU lets MixedPrecision "fp16" compute in float16, with a scaler. Accelerate
	// silently trains in float32.
	Float16OnCPU bool
}

// Corrected returns all corrections.
func Corrected() Corrections {
	return Corrections{ShortWindow: true, MetricErrors: true, AdjustScheduler: true, PendingGradients: true, SaveIteration: true, Float16OnCPU: true}
}

// on is the value of an option that is true unless turned off.
func on(b *bool) bool { return b == nil || *b }

// projectConfiguration returns Project with ProjectDir.
func (c *Config) projectConfiguration() (ProjectConfiguration, error) {
	p := c.Project
	switch {
	case c.ProjectDir != "" && p.ProjectDir != "" && c.ProjectDir != p.ProjectDir:
		return p, fmt.Errorf("train: both ProjectDir %s and Project.ProjectDir %s are given", c.ProjectDir, p.ProjectDir)
	case p.TotalLimit < 0 || p.Iteration < 0:
		return p, fmt.Errorf("train: project: got TotalLimit %d and Iteration %d, want 0 or more", p.TotalLimit, p.Iteration)
	}
	p.ProjectDir = cmp.Or(p.ProjectDir, c.ProjectDir)
	return p, nil
}

func (c *Config) accumulation() (GradientAccumulation, error) {
	g := GradientAccumulation{Steps: c.GradientAccumulationSteps}
	if c.GradientAccumulation != nil {
		if c.GradientAccumulationSteps != 0 {
			return g, errors.New("train: both GradientAccumulationSteps and GradientAccumulation are given")
		}
		g = *c.GradientAccumulation
	}
	if g.Steps < 0 {
		return g, fmt.Errorf("train: gradient accumulation: got %d batches in a window, want 0 or more", g.Steps)
	}
	g.Steps = max(1, g.Steps)
	return g, nil
}
