package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
)

// modelFlags name the model. A positional M means the same as --model. The command's tag sets
// ${model}, the help text.
type modelFlags struct {
	Model string `help:"${model}." placeholder:"M"`
	M     string `arg:"" optional:"" help:"Name the model, as --model does."`
}

// path returns the requested model. "" is the demo.
func (f *modelFlags) path() (string, error) {
	if f.Model != "" && f.M != "" && f.Model != f.M {
		return "", cmdline.Misusef("the model was given twice: %s and --model %s", f.M, f.Model)
	}
	if f.Model == "" {
		return hub.FromPage(f.M), nil
	}
	return hub.FromPage(f.Model), nil
}

// placeFlags choose where weights go.
type placeFlags struct {
	DeviceMap    string `help:"Place weights: auto, cpu, disk, balanced, sequential, FILE.json, PATH=DEVICE,… (default ${default})." default:"auto" placeholder:"MAP"`
	MaxMemory    string `help:"Limit memory by device: 0=20GiB,cpu=30GiB (default: available memory)." placeholder:"DEVICE=SIZE,…"`
	StrictMemory bool   `help:"Exit if a limit is below the minimum; without it, exceed the limit."`
}

// place sets the options of the flags in o.
func (f *placeFlags) place(o *dispatch.Options) error {
	o.StrictMemory = f.StrictMemory
	text := f.DeviceMap
	if strings.HasSuffix(text, ".json") {
		b, err := smallfile.Read(text, smallfile.Config)
		if err != nil {
			return cmdline.Misusef("--device-map: %w", err)
		}
		text = string(b)
	}
	var err error
	if o.DeviceMap, err = devicemap.ParsePolicy(text); err != nil {
		return cmdline.Misusef("--device-map: %w", err)
	}
	if f.MaxMemory != "" {
		if o.MaxMemory, err = devicemap.ParseMaxMemory(f.MaxMemory); err != nil {
			return cmdline.Misusef("--max-memory: %w", err)
		}
	}
	return nil
}

// sizeFlags determine the memory and the precision of the model.
type sizeFlags struct {
	Dtype       string `help:"Require this dtype of weights; auto uses the stored dtype (default ${default})." enum:"auto,bfloat16,float16,float32,half,float" default:"auto" placeholder:"auto|bfloat16|float16|float32"`
	Quantize    string `help:"Convert weights while loading: q8_0 (8.5 bits a weight) or q4_0 (4.5 bits) (default ${default})." enum:"none,q8_0,q4_0" default:"none" placeholder:"none|q8_0|q4_0"`
	Compress    string `help:"Compress bfloat16 weights without changing any answer (default ${default})." enum:"auto,exact,none" default:"auto" placeholder:"auto|exact|none"`
	CacheDir    string `name:"cache-dir" help:"Keep converted weights and measurements here (default: heft in the user cache)." placeholder:"DIR|none"`
	Precision   string `help:"Compute in float32 with high; auto may round activations (default ${default})." enum:"auto,high" default:"auto" placeholder:"auto|high"`
	KVDtype     string `name:"kv-dtype" help:"Store the KV cache in this dtype; auto follows the weights (default ${default})." enum:"auto,float32,bfloat16,q8_0" default:"auto" placeholder:"auto|float32|bfloat16|q8_0"`
	MaxModelLen int    `help:"Limit a prompt and its answer to N tokens (default: as many as fit)." placeholder:"N"`
	LongLen     bool   `name:"allow-long-max-model-len" help:"Let --max-model-len exceed the model's own context."`
	MaxBatch    int    `help:"Run at most N sequences at once; 0 chooses (default ${default})." default:"0" aliases:"max-num-seqs" placeholder:"N"`
	MaxTokens   int    `name:"max-batch-tokens" help:"Compute at most N tokens in one pass; 0 chooses (default ${default})." default:"0" aliases:"max-num-batched-tokens" placeholder:"N"`
	Streams     string `name:"stream-prompts" help:"Stream blocks to a GPU for prompts of N tokens or more (default ${default})." default:"auto" placeholder:"auto|none|N"`
	GPUKernels  string `name:"gpu-kernels" help:"Use these GPU kernels: exact, fast (tensor cores), auto (fast where tested) (default ${default})." enum:"auto,exact,fast" default:"auto" placeholder:"auto|exact|fast"`
	Threads     int    `help:"Compute with N threads; 0 is one per core (default ${default})." default:"0" placeholder:"N"`
	CPU         string `name:"cpu" env:"HEFT_CPU" help:"Use this variant of the kernels (default: the best one)." placeholder:"amx|avx512bf16|avx512|avx2|go"`
}

func (f *sizeFlags) options() (dispatch.Options, error) {
	o := dispatch.Options{Serving: true, Threads: f.Threads, Variant: f.CPU, Context: f.MaxModelLen, MaxSequences: cmp.Or(f.MaxBatch, usualSequences), MaxBatchTokens: f.MaxTokens}
	var ok bool
	if o.Quantize, ok = meta.ParseQuantize(f.Quantize); !ok {
		return o, cmdline.Misusef("--quantize %s: q8_0 and q4_0 are supported", f.Quantize)
	}
	if o.Compress, ok = dispatch.ParseCompression(f.Compress); !ok {
		return o, cmdline.Misusef("--compress %s: auto, exact and none are supported", f.Compress)
	}
	if o.Compress == dispatch.CompressExact && o.Quantize != meta.QuantNone {
		return o, cmdline.Misusef("--compress exact with --quantize %s: converted weights are not coded; leave one of them out", f.Quantize)
	}
	var err error
	if o.StreamPrompts, err = streamPrompts(f.Streams); err != nil {
		return o, err
	}
	o.MeasurementsDir = cmp.Or(measurementsDir(f.CacheDir), "none")
	o.CacheDir = cacheDir(f.CacheDir) // without Quantize too: killed conversions are removed from it
	if f.Precision == "high" {
		o.Precision = dispatch.PrecisionHigh
	}
	o.GPUKernels = map[string]dispatch.GPUKernels{"exact": dispatch.GPUKernelsExact, "fast": dispatch.GPUKernelsFast}[f.GPUKernels]
	switch f.KVDtype {
	case "q8_0":
		o.KVDType = meta.Int8
	case "float32", "bfloat16":
		o.KVDType, _ = meta.ParseDType(f.KVDtype)
	}
	for _, n := range []struct {
		name  string
		value int
		least int
		most  int
	}{{"--max-model-len", f.MaxModelLen, 0, math.MaxInt32}, {"--max-batch", f.MaxBatch, 0, 1 << 20}, {"--max-batch-tokens", f.MaxTokens, 0, 1 << 20}, {"--threads", f.Threads, 0, 1024}} {
		if n.value < n.least || n.value > n.most {
			return o, cmdline.Misusef("%s: got %d, want a number between %d and %d", n.name, n.value, n.least, n.most)
		}
	}
	if _, err := kernels.Select(f.CPU); err != nil {
		return o, cmdline.Misusef("--cpu: %w", err)
	}
	return o, nil
}

// streamPrompts parses --stream-prompts.
func streamPrompts(s string) (int, error) {
	switch s {
	case "auto", "":
		return dispatch.StreamChosen, nil
	case "none":
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, cmdline.Misusef("--stream-prompts %s: want auto, none, or the number of tokens from which prompts stream", s)
	}
	return n, nil
}

// cacheDir returns the folder for converted weights, or "" for none.
func cacheDir(asked string) string {
	if asked == "none" {
		return ""
	}
	if asked != "" {
		return asked
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // without a home directory there is no cache
	}
	return filepath.Join(dir, "heft", "converted")
}

// measurementsDir returns the folder for measurements of the machine, or "" for none. It is
// --cache-dir, or heft in the user's cache.
func measurementsDir(asked string) string {
	switch dir := cacheDir(asked); {
	case asked == "" && dir != "":
		return filepath.Dir(dir)
	default:
		return dir
	}
}

// dtypeNames maps vLLM's further names of dtypes to torch's.
var dtypeNames = map[string]string{"half": "float16", "float": "float32"}

// dtype returns the value of --dtype: torch's name, or auto.
func (f *sizeFlags) dtype() string {
	if name, ok := dtypeNames[f.Dtype]; ok {
		return name
	}
	return f.Dtype
}

// mostTokens returns the maximum number of positions of a model.
func mostTokens(skeleton *meta.Model) int {
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && spec.Context > 0 {
		return max(spec.Context, spec.Reach)
	}
	return math.MaxInt32
}

// checkLength rejects a --max-model-len beyond the model's positions.
func (f *sizeFlags) checkLength(skeleton *meta.Model) error {
	most := mostTokens(skeleton)
	if f.MaxModelLen <= most {
		return nil
	}
	if skeleton.Root.Spec.(*meta.CausalLMSpec).Positions != "" {
		return cmdline.Misusef("got --max-model-len %d, want at most %d, the number of the model's position embeddings", f.MaxModelLen, most)
	}
	if !f.LongLen {
		return cmdline.Misusef("got --max-model-len %d, want at most %d, the context in config.json; add --allow-long-max-model-len to serve more, with answers that may make no sense",
			f.MaxModelLen, most)
	}
	return nil
}

// applyDtype applies --dtype to weights that are used in place, in their stored dtype. float32
// represents all 16-bit weights exactly, so it only selects the arithmetic: kernels widen the
// weights, and o gets the precision. It returns an error for other dtypes, which would need
// converted weights.
func (f *sizeFlags) applyDtype(skeleton *meta.Model, o *dispatch.Options) error {
	want, stored := f.dtype(), storedDtype(skeleton)
	switch {
	case want == "auto" || want == stored.String():
		return nil
	case want == "float32" && (stored == meta.BFloat16 || stored == meta.Float16):
		o.Precision = dispatch.PrecisionHigh
		slog.Info("--dtype float32 is --precision high: the weights stay as they are stored, and their values are the same", "stored", stored)
		return nil
	}
	return cmdline.Misusef("--dtype %s: the weights are %s and are used in place, as they are stored; leave it out, or let --quantize q8_0 or q4_0 make them smaller", f.Dtype, stored)
}

// storedDtype returns the dtype of most of the parameters.
func storedDtype(skeleton *meta.Model) meta.DType {
	count := map[meta.DType]int64{}
	most := meta.NoDType
	for _, p := range skeleton.Root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		if count[p.DType] += meta.Elements(p.Shape); count[p.DType] > count[most] {
			most = p.DType
		}
	}
	return most
}

// gib formats an amount of memory.
func gib(n int64) string {
	switch {
	case n == 0:
		return "0 B"
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
