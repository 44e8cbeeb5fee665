package train

import (
	"errors"
	"fmt"
	"os"

	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/train/internal/chunks"
	"github.com/heftai/heft/train/internal/gemini"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/internal/sharded"
)

// GeminiPlugin averages the gradients of each backward pass, splits them and the optimizer's state
// between the ranks, and drops the gradients after each step, as Colossal-AI's Gemini does.
// [Booster.NoSync] is not supported. Each rank has the whole weights.
//
// With a MemoryLimit or a static placement, the trainable weights, their gradients and the
// optimizer's state are in chunks that move between memory and a scratch file in Dir. A chunk is a
// weight, its gradient, or up to 16 MiB of an array of the optimizer. The same holds, without
// setting any field of this plugin, for a model that was loaded with model.OffloadParameters: its
// limit and its scratch file then serve all three. The steps are bitwise those of training in
// memory.
//
// A pass over a train/model loads one unit at a time with its gradients. Operations of a tape keep
// the weights that they use until Backward. A step loads one weight with its gradient, and one
// chunk of each array of its state. If a chunk cannot be written or read, as on a full disk, the
// pass or the step fails and nothing is lost: call Step again once there is room, and it continues.
// Do not call ZeroGrad before that.
//
// The limit includes neither activations nor, with several ranks, one bucket of gradients (25 MiB,
// or the largest weight). It is exceeded if one unit or step needs more: the largest weight twice,
// and a chunk of each state array.
type GeminiPlugin struct {
	// World is this rank's place. Nil is a world of one rank.
	World *World
	// EnableGradientAccumulation adds the averaged gradients of several passes. Otherwise the
	// gradients of a pass replace those of the pass before.
	EnableGradientAccumulation bool
	// MaxNorm limits the norm of all gradients before a step. 0 means no limit.
	MaxNorm float64

	// PlacementPolicy is "auto" (also for "") or "static", as Colossal-AI's placement_policy. With
	// auto, the chunks expected to be used last leave memory first when others need room. With
	// static, a fixed part stays in memory regardless of use.
	PlacementPolicy string
	// OffloadParamFrac is the part of the weights and their gradients that is on disk between uses, from 0
	// to 1, as Colossal-AI's offload_param_frac. It needs the static policy.
	OffloadParamFrac float64
	// OffloadOptimFrac is the part of the optimizer's state that is on disk between uses, from 0 to 1, as
	// Colossal-AI's offload_optim_frac. It needs the static policy.
	OffloadOptimFrac float64
	// ShardParamFrac must be 0. Colossal-AI's shard_param_frac splits weights between ranks, but
	// here each rank has whole weights. MemoryLimit and OffloadParamFrac limit their memory.
	ShardParamFrac float64
	// MemoryLimit is the maximum bytes of this rank's weights, gradients and optimizer state in
	// memory. 0 means that the plugin sets no limit. With the static policy it also limits the
	// chunks that do not stay in memory; 0 then moves these to disk after each use.
	MemoryLimit int64
	// Dir is the folder of the scratch file, which holds roughly the weights, gradients and
	// optimizer state that memory does not. "" means the system's folder for temporary files. Files
	// that killed processes have left there are removed. A model of model.OffloadParameters has its
	// own scratch file.
	Dir string
	// MaxDisk is the maximum size of the scratch file in bytes. A write beyond it fails as on a
	// full disk. 0 means no limit.
	MaxDisk int64

	strategy *gemini.Strategy
}

var _ Plugin = (*GeminiPlugin)(nil)

// PrepareDataLoader splits l between the ranks, in place.
func (p *GeminiPlugin) PrepareDataLoader(l DataLoader) error { return splitLoader(p.World, l) }

// SupportNoSync returns false.
func (p *GeminiPlugin) SupportNoSync() bool { return false }

func (p *GeminiPlugin) world() *World { return p.World }

// GeminiStats are the counters of a [GeminiPlugin], in bytes.
type GeminiStats struct {
	Size          int64 // of all chunks
	Held, Peak    int64 // in memory now, and at most
	Read, Written int64 // from and to the scratch file
	Ahead         int64 // of Read, before a chunk was needed
	Used, Hit     int64 // of acquired chunks, and the part of it already in memory
}

// Stats returns the counters. They are zero if nothing leaves memory.
func (p *GeminiPlugin) Stats() (sum GeminiStats) {
	if p.strategy == nil {
		return sum
	}
	for _, s := range p.strategy.Stores() {
		x := s.Stats()
		sum.Size, sum.Held, sum.Peak = sum.Size+x.Size, sum.Held+x.Held, sum.Peak+x.Peak
		sum.Read, sum.Written, sum.Ahead = sum.Read+x.Read, sum.Written+x.Written, sum.Ahead+x.Ahead
		sum.Used, sum.Hit = sum.Used+x.Used, sum.Hit+x.Hit
	}
	return sum
}

// Close removes the plugin's scratch file and frees its memory, including the weights that were in
// memory when they were prepared: save them before. It does not affect a model of
// model.OffloadParameters, which has its own Close.
func (p *GeminiPlugin) Close() error {
	if p.strategy != nil {
		p.strategy.Close()
	}
	return nil
}

func (p *GeminiPlugin) check() error {
	static := p.PlacementPolicy == "static"
	switch {
	case !(p.MaxNorm >= 0):
		return fmt.Errorf("train: GeminiPlugin: got MaxNorm %v, want 0 or more", p.MaxNorm)
	case p.PlacementPolicy != "" && p.PlacementPolicy != "auto" && !static:
		return fmt.Errorf("train: GeminiPlugin: got PlacementPolicy %q, want auto or static", p.PlacementPolicy)
	case !(p.OffloadParamFrac >= 0 && p.OffloadParamFrac <= 1 && p.OffloadOptimFrac >= 0 && p.OffloadOptimFrac <= 1):
		return fmt.Errorf("train: GeminiPlugin: got OffloadParamFrac %v and OffloadOptimFrac %v, want 0 to 1", p.OffloadParamFrac, p.OffloadOptimFrac)
	case !static && (p.OffloadParamFrac != 0 || p.OffloadOptimFrac != 0):
		return errors.New("train: GeminiPlugin: OffloadParamFrac and OffloadOptimFrac need PlacementPolicy static")
	case p.ShardParamFrac != 0:
		return fmt.Errorf("train: GeminiPlugin: got ShardParamFrac %v, want 0: weights are whole on each rank; "+
			"use MemoryLimit, or OffloadParamFrac with PlacementPolicy static, to hold parts of them in memory", p.ShardParamFrac)
	case p.MemoryLimit < 0 || p.MaxDisk < 0:
		return fmt.Errorf("train: GeminiPlugin: got MemoryLimit %d and MaxDisk %d, want 0 or more", p.MemoryLimit, p.MaxDisk)
	}
	return nil
}

func (p *GeminiPlugin) sharing() (sharing, error) {
	if err := p.check(); err != nil {
		return sharing{}, err
	}
	if p.strategy == nil {
		p.strategy = &gemini.Strategy{Sharded: replicas.Sharded{Free: true}, Limit: p.MemoryLimit, MaxDisk: p.MaxDisk,
			Static: p.PlacementPolicy == "static", OffloadParam: p.OffloadParamFrac, OffloadOptim: p.OffloadOptimFrac}
		if s := p.strategy; p.MemoryLimit > 0 || s.Static && (p.OffloadParamFrac > 0 || p.OffloadOptimFrac > 0) {
			s.Make = func() *chunks.Store {
				dir := p.Dir
				if dir == "" {
					dir = os.TempDir()
				}
				return chunks.New(residency.ChangingOptions{Limit: max(p.MemoryLimit, 1), Dir: dir})
			}
		}
	}
	return sharing{strategy: p.strategy, fresh: !p.EnableGradientAccumulation,
		options: &sharded.Options{MaxNorm: p.MaxNorm, SkipOverflow: true, ZeroAfterStep: true}}, nil
}
