package finetune

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/model"
)

// Need is what one way to fine-tune a model takes, in bytes, on all ranks of this process.
type Need struct {
	Way   string `json:"way"`   // such as "LoRA"
	Flags string `json:"flags"` // of train run
	// Weights are in memory of the run. Mapped are weights in the checkpoint's memory mapping, whose
	// pages the system can drop.
	Weights     int64 `json:"weights"`
	Mapped      int64 `json:"mapped"`
	Gradients   int64 `json:"gradients"`
	Optimizer   int64 `json:"optimizer"`
	Activations int64 `json:"activations"` // of the largest batch of each rank, with its logits
	// Memory is the program and all parts except Mapped. If weights stream from disk, it is the minimum
	// of --max-memory.
	Memory int64 `json:"memory"`
	// Disk is one checkpoint and, if the state of a full fine-tune streams, its scratch file.
	Disk int64 `json:"disk"`
}

// Estimate returns the memory and disk that each way to fine-tune a model takes on o.NumProcesses
// ranks of a process that share work by o.Plugin, each in batches of o.Batch sequences of o.Sequence
// tokens. It uses the numbers that [Run] plans with. o.MixedPrecision changes none of them. It reads config.json and the headers of the weights, if there are any. The result has no full
// fine-tune if the weights are quantised or o.LoRA is set. Without o.LoRA, adapters have r=16.
func Estimate(folder string, o Options) ([]Need, error) {
	o.Output = cmp.Or(o.Output, ".")
	checked := &job{Options: &o, files: []string{"any"}}
	if err := checked.check(); err != nil {
		return nil, err
	}
	m, end, err := shapeOf(folder)
	if err != nil {
		return nil, err
	}
	defer end()
	checked.log = slog.New(slog.DiscardHandler)
	if err := checked.fitContext(m.Config); err != nil {
		return nil, err
	}
	if err := CheckRanks(o.NumProcesses); err != nil {
		return nil, err
	}
	ranks := max(1, o.NumProcesses)
	full, adapter := o, o
	adapter.LoRA = cmp.Or(o.LoRA, "r=16")
	ways := []Options{full, adapter}
	for _, format := range []string{"q8_0", "q4_0", "nf4"} {
		ways = append(ways, adapter)
		ways[len(ways)-1].Quantize = format
	}
	var needs []Need
	for _, way := range ways {
		s := &student{job: &job{Options: &way, model: folder, here: ranks, ranks: ranks, log: checked.log, space: hostmem.DiskSpace, data: &texts{longest: way.Sequence}}}
		s.recompute = s.recomputes(m.Model)
		var more []Need
		switch {
		case way.LoRA != "":
			more, err = s.adapterNeeds(m)
		case o.LoRA != "" || s.checkStored(m.Model) != nil: // no full fine-tune
		default:
			more, err = s.fullNeeds(m.Model)
		}
		if err != nil {
			return nil, misuse(err)
		}
		needs = append(needs, more...)
	}
	return needs, nil
}

// shape is a model without its weights.
type shape struct {
	*meta.Model
	binding *loader.Binding // nil without weights
	stored  int64           // bytes of the weights on disk
}

// shapeOf reads config.json and the headers of the weights, if there are any. The caller must call
// close.
func shapeOf(folder string) (m shape, close func() error, err error) {
	config, err := readConfig(folder)
	if err != nil {
		return m, nil, err
	}
	shards, _ := filepath.Glob(filepath.Join(folder, "*.safetensors*"))
	if len(shards) == 0 && !isGGUF(folder) {
		if m.Model, err = meta.New(config, nil); err != nil {
			return m, nil, err
		}
		for _, p := range m.Root.AllParams() {
			if p.SameAs == nil {
				m.stored += p.Bytes()
			}
		}
		return m, func() error { return nil }, nil
	}
	ck, err := loader.Open(folder)
	if err != nil {
		return m, nil, err
	}
	if m.Model, err = meta.New(config, ck); err == nil {
		m.binding, err = loader.Bind(ck, m.Model)
	}
	if err != nil {
		return m, nil, errors.Join(err, ck.Close())
	}
	m.stored = ck.Bytes()
	return m, ck.Close, nil
}

// fullNeeds returns the needs of training all weights, in memory and streamed.
func (s *student) fullNeeds(m *meta.Model) ([]Need, error) {
	var trained, largest int64
	for _, p := range m.Root.AllParams() {
		if p.SameAs == nil {
			trained, largest = trained+p.Elements(), max(largest, p.Elements())
		}
	}
	each, err := s.trainedBytes()
	if err != nil {
		return nil, err
	}
	n := Need{Way: "full", Flags: s.shares(), Disk: (each - gradientBytes) * trained}
	s.train(&n, trained, each)
	n.Activations = s.held(m)
	n.Memory = n.parts() + programBytes
	if s.Optimizer != "adamw" {
		return []Need{n}, nil // gemini keeps the state of others in memory
	}
	ranks := int64(s.here)
	streamed := Need{Way: "full, streamed", Weights: ranks * leastState * largest, Activations: ranks * s.passBytes(m), Disk: n.Disk + (each+weightBytes*(ranks-1))*trained}
	s.Plugin = "gemini"
	streamed.limit(s.shares())
	return []Need{n, streamed}, nil
}

// adapterNeeds returns the needs of training an adapter over weights that are converted to
// s.Quantize, or else mapped or streamed.
func (s *student) adapterNeeds(m shape) ([]Need, error) {
	c, err := parseLoRA(s.LoRA)
	if err == nil {
		err = checkNames(c, m.Root)
	}
	if err != nil {
		return nil, err
	}
	c.DoRA, c.Save = s.DoRA, s.ModulesToSave
	total, err := s.adapterBytes(m.Model, c)
	if err != nil {
		return nil, err
	}
	each, err := s.trainedBytes()
	if err != nil {
		return nil, err
	}
	trained := total / each
	n := Need{Way: "LoRA", Flags: strings.TrimSpace(s.shares() + " --lora " + s.LoRA), Mapped: m.stored, Disk: (2*weightBytes + each - weightBytes - gradientBytes) * trained}
	s.train(&n, trained, each)
	if s.Quantize != "" {
		return s.quantisedNeed(m.Model, n), nil
	}
	streamed := n
	n.Activations = s.held(m.Model)
	n.Memory = n.parts() + programBytes
	least, err := model.LeastFrozen(m.Model, m.binding)
	if err != nil {
		return nil, err
	}
	s.memory = 1 // the least rows of logits at a time
	streamed.Way, streamed.Mapped = "LoRA, streamed", 0
	ranks := int64(s.here)
	streamed.Weights, streamed.Activations = streamed.Weights+ranks*least, ranks*s.passBytes(m.Model)
	streamed.limit(n.Flags)
	return []Need{n, streamed}, nil
}

// quantisedNeed returns n with the weights under the adapter converted to s.Quantize, or nothing if
// none can be converted.
func (s *student) quantisedNeed(m *meta.Model, n Need) []Need {
	converted := m.Root.LoadedBytes(s.format(), true)
	if s.Quantize == "nf4" {
		converted = m.Root.FourBits()
	}
	if len(converted) == 0 {
		return nil
	}
	for p, bytes := range converted {
		n.Weights, n.Mapped = n.Weights+int64(s.here)*bytes, n.Mapped-p.Bytes()
	}
	n.Way, n.Flags = "QLoRA "+s.Quantize, n.Flags+" --quantize "+s.Quantize
	n.Activations = s.held(m)
	n.Memory = n.parts() + programBytes
	return []Need{n}
}

// train adds numbers that train, which take each bytes. The ranks share the optimizer's state: ddp in
// this process, the other plugins by parts. With ddp they also share weights, and gradients unless
// batches accumulate.
func (s *student) train(n *Need, numbers, each int64) {
	weights, gradients := int64(s.here), int64(s.here)
	switch {
	case s.Plugin == "ddp" && s.GradientAccumulationSteps > 1:
		weights = 1
	case s.Plugin == "ddp":
		weights, gradients = 1, 1
	case s.Plugin != "zero1":
		gradients = 1
	}
	n.Weights += weights * weightBytes * numbers
	n.Gradients += gradients * gradientBytes * numbers
	n.Optimizer += (each - weightBytes - gradientBytes) * numbers
}

// shares returns the flags of ranks that share the work.
func (s *student) shares() string {
	var flags []string
	if s.here > 1 {
		flags = append(flags, fmt.Sprintf("--num-processes %d", s.here))
	}
	if s.Plugin != "ddp" {
		flags = append(flags, "--plugin "+s.Plugin)
	}
	return strings.Join(flags, " ")
}

func (n *Need) parts() int64 { return n.Weights + n.Gradients + n.Optimizer + n.Activations }

// limit sets Memory to the least that streaming takes, and Flags to flags and its --max-memory.
func (n *Need) limit(flags string) {
	size := n.parts()
	n.Memory = size + programBytes
	if size+runtimeBytes >= 1<<30 { // smaller limits exclude it
		size += runtimeBytes
		n.Memory = size
	}
	n.Flags = flags + " --max-memory cpu=" + strings.ReplaceAll(devicemap.FormatSize(size), " ", "")
}

// held returns the memory of a batch of each rank from its forward pass to its backward pass.
func (s *student) held(m *meta.Model) int64 {
	each := s.passBytes(m)
	if !s.recompute {
		each = max(each, s.batchTokens()*activationBytes(m, s.magnitudes())+s.logitBytes(m))
	}
	return int64(s.here) * each
}
