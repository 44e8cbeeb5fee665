package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// benchCmd is train bench.
type benchCmd struct {
	Model     string `help:"Measure this model folder. With only a config.json, weights are random." required:"" type:"existingdir" placeholder:"DIR"`
	Batch     int    `help:"Set the sequences per step." default:"8"`
	Sequence  int    `help:"Set the tokens per sequence." default:"256"`
	DType     string `name:"dtype" help:"Compute products in this dtype." enum:"float32,bfloat16" default:"float32"`
	Steps     int    `help:"Measure this many steps, after two warm-up steps." default:"5"`
	Threads   int    `help:"Set the compute threads; 0 uses all processors." default:"0"`
	CPU       string `name:"cpu" help:"Use this kernel variant; empty chooses the best." placeholder:"NAME"`
	Recompute bool   `help:"Keep only block inputs and recompute the rest in backward."`
	JSON      bool   `name:"json" help:"Print one JSON object."`
}

// benchResult is the output of train bench --json. Times are medians over the steps.
type benchResult struct {
	Model     string `json:"model"`
	Params    int    `json:"params"`
	Batch     int    `json:"batch"`
	Sequence  int    `json:"sequence"`
	DType     string `json:"dtype"`
	Threads   int    `json:"threads"`
	Variant   string `json:"variant"` // of the CPU kernels
	Recompute bool   `json:"recompute"`
	Steps     int    `json:"steps"`

	TokensPerSecond float64 `json:"tokens_per_second"`
	StepSeconds     float64 `json:"step_seconds"`
	ForwardSeconds  float64 `json:"forward_seconds"`
	BackwardSeconds float64 `json:"backward_seconds"`
	// OptimizerSeconds is the time of clipping the gradients and of AdamW's step.
	OptimizerSeconds float64 `json:"optimizer_seconds"`
	// Gflops counts 6 operations per token and parameter, plus causal attention.
	Gflops float64 `json:"gflops"`
	// PeakRSSBytes is the peak resident memory of the process.
	PeakRSSBytes int64     `json:"peak_rss_bytes"`
	Losses       []float32 `json:"losses"`
}

// Run measures training steps on random tokens.
func (c *benchCmd) Run(out cmdline.Output) error {
	if c.Batch < 1 || c.Sequence < 2 || c.Steps < 1 {
		return cmdline.Misusef("got --batch %d, --steps %d, --sequence %d, want at least 1, 1 and 2", c.Batch, c.Steps, c.Sequence)
	}
	set, err := kernels.Select(c.CPU)
	if err != nil {
		return cmdline.Misusef("--cpu: %w", err)
	}
	keepLittle()
	b, err := c.open(set.Name)
	if err == nil {
		tuneReads(context.Background(), set.Name, b.Threads)
	}
	if err != nil {
		return err
	}
	defer b.m.Close()
	result, err := b.measure()
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(out).Encode(result)
	}
	_, err = fmt.Fprintf(out, "%.0f tokens/s: forward %.3f s, backward %.3f s, optimizer %.3f s of %.3f s; %.0f GFLOPS; peak %.0f MiB\n",
		result.TokensPerSecond, result.ForwardSeconds, result.BackwardSeconds, result.OptimizerSeconds, result.StepSeconds,
		result.Gflops, float64(result.PeakRSSBytes)/(1<<20))
	return err
}

// bench is a model with everything that its steps need.
type bench struct {
	*benchCmd
	variant string
	vocab   int
	hidden  int // elements of attention's queries, summed over all layers
	m       *model.Model
	tape    *tensor.Tape
	params  []optim.Param
	opt     *optim.Descent
	random  *rng.Generator
}

func (c *benchCmd) open(variant string) (*bench, error) {
	cfg, err := meta.ReadConfigFile(filepath.Join(c.Model, "config.json"))
	if err != nil {
		return nil, err
	}
	b := &bench{benchCmd: c, variant: variant, random: rng.New(1)}
	if b.Threads <= 0 {
		b.Threads = runtime.GOMAXPROCS(0)
	}
	if weights, _ := filepath.Glob(filepath.Join(c.Model, "*.safetensors")); len(weights) == 0 {
		b.m, err = drawn(cfg, b.random)
	} else {
		b.m, err = loaded(cfg, c.Model)
	}
	if err != nil {
		return nil, err
	}
	for _, node := range b.m.Meta().Root.Walk() {
		switch s := node.Spec.(type) {
		case *meta.EmbeddingSpec:
			b.vocab = max(b.vocab, s.Rows)
		case *meta.AttentionSpec:
			b.hidden += s.Heads * s.HeadDim
		}
	}
	precision := tensor.Float32
	if c.DType == "bfloat16" {
		precision = tensor.BFloat16
	}
	b.tape = tensor.NewTape(tensor.Options{Threads: b.Threads, Kernels: c.CPU, Autocast: precision})
	b.params = train.Params(b.m)
	b.opt, err = optim.NewAdamW(b.params, optim.AdamOptions{LR: 1e-4, WeightDecay: 0.01})
	return b, err
}

// loaded returns the model of the checkpoint in dir.
func loaded(cfg *meta.Config, dir string) (*model.Model, error) {
	ck, err := loader.Open(dir)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	skeleton, err := meta.New(cfg, ck)
	if err != nil {
		return nil, err
	}
	binding, err := loader.Bind(ck, skeleton)
	if err != nil {
		return nil, err
	}
	return model.Load(skeleton, binding)
}

// drawn returns a model with random weights: ones for vectors, and normal numbers with deviation
// 0.02 for matrices.
func drawn(cfg *meta.Config, random *rng.Generator) (*model.Model, error) {
	skeleton, err := meta.New(cfg, nil)
	if err != nil {
		return nil, err
	}
	m, err := model.New(skeleton)
	if err != nil {
		return nil, err
	}
	for name, p := range m.Parameters() {
		switch {
		case strings.HasSuffix(name, "bias"): // stay zeros
		case len(p.Shape()) < 2:
			for i := range p.Data() {
				p.Data()[i] = 1
			}
		default:
			random.Normal(p.Data(), 0, 0.02)
		}
	}
	return m, nil
}

// measure runs the steps and returns the medians of their times.
func (b *bench) measure() (*benchResult, error) {
	const warm = 2
	var times [4][]float64
	r := &benchResult{Model: filepath.Base(filepath.Clean(b.Model)), Batch: b.Batch, Sequence: b.Sequence, DType: b.DType,
		Threads: b.Threads, Variant: b.variant, Recompute: b.Recompute, Steps: b.Steps}
	for _, p := range b.params {
		r.Params += len(p.Data())
	}
	for step := range warm + b.Steps {
		split, loss, err := b.step()
		if err != nil {
			return nil, err
		}
		r.Losses = append(r.Losses, loss)
		for i := range times {
			if step >= warm {
				times[i] = append(times[i], split[i].Seconds())
			}
		}
	}
	r.ForwardSeconds, r.BackwardSeconds = median(times[0]), median(times[1])
	r.OptimizerSeconds, r.StepSeconds = median(times[2]), median(times[3])
	tokens := float64(b.Batch * b.Sequence)
	r.TokensPerSecond = tokens / r.StepSeconds
	r.Gflops = tokens * (6*float64(r.Params) + 6*float64(b.hidden*b.Sequence)) / r.StepSeconds / 1e9
	r.PeakRSSBytes = peakRSS()
	return r, nil
}

// step runs a step on random tokens. split has the times of the forward pass, the backward pass,
// the optimizer, and the whole step.
func (b *bench) step() (split [4]time.Duration, loss float32, err error) {
	ids := make([]int, b.Batch*b.Sequence)
	for i := range ids {
		ids[i] = b.random.IntN(b.vocab)
	}
	begin := time.Now()
	l, err := b.m.Loss(b.tape, model.Batch{IDs: ids, Length: b.Sequence}, model.Options{Recompute: b.Recompute})
	if err != nil {
		return split, 0, err
	}
	loss = l.Item()
	forward := time.Now()
	if err := b.tape.Backward(l, 1); err != nil {
		return split, 0, err
	}
	backward := time.Now()
	optim.ClipNorm(b.params, 1, 2)
	if err := b.opt.Step(); err != nil {
		return split, 0, err
	}
	b.opt.ZeroGrad()
	end := time.Now()
	if math.IsNaN(float64(loss)) {
		return split, loss, fmt.Errorf("got a loss that is not a number")
	}
	return [4]time.Duration{forward.Sub(begin), backward.Sub(forward), end.Sub(backward), end.Sub(begin)}, loss, nil
}

func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// peakRSS returns the peak resident memory of this process, or 0 if the system does not report it.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
