package finetune

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/model"
)

// checkTune rejects invalid combinations of options for adapters, before the data is read.
func (c *job) checkTune() error {
	switch {
	case c.LoRA == "" && c.Merge:
		return misusef("--merge needs --lora")
	case c.LoRA == "" && c.DoRA:
		return misusef("--dora needs --lora")
	case c.LoRA == "" && len(c.ModulesToSave) > 0:
		return misusef("--modules-to-save needs --lora; without it, all modules are trained and saved")
	case (c.DoRA || len(c.ModulesToSave) > 0) && strings.HasPrefix(c.LoRA, adapterFrom):
		return misusef("--dora and --modules-to-save have no effect with --lora %s, whose adapter_config.json says what the adapter has", c.LoRA)
	case len(c.ModulesToSave) > 0 && c.MixedPrecision == "fp16":
		return misusef("--modules-to-save with --mixed-precision fp16 is not supported: use bf16")
	case c.LoRA == "" && c.Quantize != "":
		return misusef("--quantize needs --lora: converted weights cannot be trained themselves")
	case c.Quantize != "" && c.MaxMemory != "":
		return misusef("--quantize keeps all weights in memory: omit --max-memory, or omit --quantize and let weights stream")
	case c.LoRA != "" && len(c.Freeze) > 0:
		return misusef("--freeze has no effect with --lora, which trains the adapter alone")
	case !(c.NeftuneNoiseAlpha >= 0):
		return misusef("got --neftune-noise-alpha %v, want 0 or more", c.NeftuneNoiseAlpha)
	}
	if _, err := c.frozen(); err != nil {
		return err
	}
	if c.LoRA == "" {
		return nil
	}
	_, err := parseLoRA(c.LoRA)
	return err
}

// frozen returns the predicate of --freeze, or nil if the flag is not set.
func (c *job) frozen() (func(path string) bool, error) {
	var patterns []*regexp.Regexp
	for _, s := range c.Freeze {
		p, err := regexp.Compile(s)
		if err != nil {
			return nil, misusef("--freeze %s: %w", s, err)
		}
		patterns = append(patterns, p)
	}
	if patterns == nil {
		return nil, nil
	}
	return func(path string) bool {
		return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(path) })
	}, nil
}

// loraValues describes the values of the parts of --lora that are not strings.
var loraValues = map[string]string{"r": "a whole number", "alpha": "a number", "dropout": "a number", "rslora": "true or false", "layers": "whole numbers joined by +"}

// format returns the format of --quantize.
func (c *job) format() meta.QuantFormat {
	if c.Quantize == "nf4" {
		return meta.QuantBnbNF4
	}
	f, _ := meta.ParseQuantize(c.Quantize) // the flag's list of values has been checked
	return f
}

// checkAdapter checks that the folder of --lora from=DIR contains an adapter.
func checkAdapter(flag, dir string) error {
	_, err := os.Stat(filepath.Join(dir, "adapter_config.json"))
	_, _, more := strings.Cut(dir, ",")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist) && more:
		return misusef("--lora %s: got values beside from, want from=DIR alone: the adapter in DIR has its own", flag)
	case errors.Is(err, fs.ErrNotExist):
		return misusef("--lora %s: got no adapter there, want a folder with adapter_config.json", flag)
	}
	return misusef("--lora %s: %w", flag, err)
}

// checkLoRA checks the numbers of --lora. It also rejects NaN, for which all comparisons are false.
func checkLoRA(c model.LoRAConfig, flag string) error {
	switch {
	case c.R == 0:
		return misusef("--lora %s: r is missing, want r of at least 1, such as r=16", flag)
	case c.R < 1:
		return misusef("--lora: r: got %d, want at least 1", c.R)
	case !(c.Alpha >= 0 && c.Alpha <= math.MaxFloat32):
		return misusef("--lora: alpha: got %g, want a number of at least 0", c.Alpha)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return misusef("--lora: dropout: got %g, want at least 0 and less than 1", c.Dropout)
	}
	return nil
}

// parseLoRA parses --lora: r=16,alpha=32,dropout=0.1,rslora,targets=q_proj+v_proj,….
func parseLoRA(s string) (model.LoRAConfig, error) {
	c := model.LoRAConfig{}
	if dir, ok := strings.CutPrefix(s, adapterFrom); ok {
		return c, checkAdapter(s, dir)
	}
	for part := range strings.SplitSeq(s, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch name {
		case "r":
			c.R, err = strconv.Atoi(value)
		case "alpha":
			c.Alpha, err = strconv.ParseFloat(value, 64)
		case "dropout":
			c.Dropout, err = strconv.ParseFloat(value, 64)
		case "rslora":
			if c.RSLoRA = true; given {
				c.RSLoRA, err = strconv.ParseBool(value)
			}
		case "targets":
			if c.Targets = strings.Split(value, "+"); value == "all-linear" {
				c.Targets, c.AllLinear = nil, true
			}
		case "parameters":
			c.Parameters = strings.Split(value, "+")
		case "exclude":
			c.Exclude = strings.Split(value, "+")
		case "layers":
			for n := range strings.SplitSeq(value, "+") {
				layer, failed := strconv.Atoi(n)
				if failed != nil {
					err = failed
				}
				c.Layers = append(c.Layers, layer)
			}
		default:
			return c, misusef("--lora: got %q, want one of from, r, alpha, dropout, rslora, targets, parameters, exclude, layers, such as r=16,alpha=32,targets=q_proj+v_proj", name)
		}
		if err != nil {
			return c, misusef("--lora: %s: got %q, want %s", name, value, loraValues[name])
		}
	}
	if len(c.Layers) > 0 && len(c.Targets) == 0 {
		return c, misusef("--lora: layers needs targets, such as targets=q_proj+v_proj,layers=%d", c.Layers[0])
	}
	if err := checkLoRA(c, s); err != nil {
		return c, err
	}
	if c.Alpha == 0 {
		c.Alpha = float64(c.R)
	}
	return c, nil
}

// checkNames rejects names in --lora that match no module of the model. Otherwise a misspelled name
// would silently change which modules get pairs.
func checkNames(c model.LoRAConfig, root *meta.Module) error {
	linear := map[string]bool{} // the last parts of their paths
	found := map[string]bool{}
	for path, node := range root.Walk() {
		if node.Kind == meta.KindLinear {
			linear[path[strings.LastIndexByte(path, '.')+1:]] = true
		}
		for rest, more := path, path != ""; more; {
			found[rest] = true
			_, rest, more = strings.Cut(rest, ".")
		}
	}
	for key, names := range map[string][]string{"targets": c.Targets, "exclude": c.Exclude} {
		for _, name := range names {
			if !found[name] {
				return misusef("--lora: %s: the model has no module %q, want some of %s", key, name, strings.Join(slices.Sorted(maps.Keys(linear)), ", "))
			}
		}
	}
	return nil
}

// adapterFrom is the prefix of a --lora that continues an adapter.
const adapterFrom = "from="

// merged is a model whose checkpoint includes its merged adapter.
type merged struct{ *model.Model }

func (m merged) Checkpoint() (iter.Seq[loader.NamedTensor], error) { return m.MergeAdapter() }

var _ train.Checkpointed = merged{}

// save writes the result into dir, on the main process: the adapter, the merged model, or the
// model.
func (s *student) save(ctx context.Context, dir string) error {
	o := train.SaveModelOptions{From: cmp.Or(s.from, s.job.model), DType: s.dtype()}
	switch {
	case s.LoRA == "" && s.whole != nil:
		return train.SaveModel(ctx, s.acc, s.whole, dir, o)
	case s.LoRA == "":
		return train.SaveModel(ctx, s.acc, s.model, dir, o)
	case s.Merge:
		o.DType = meta.NoDType // keep the dtype of the base weights
		if s.whole != nil {
			return train.SaveModel(ctx, s.acc, s.whole, dir, o)
		}
		return train.SaveModel(ctx, s.acc, merged{s.model}, dir, o)
	}
	err := s.acc.OnMainProcess(func() error { return s.saveAdapter(dir) })
	if err != nil {
		return err
	}
	return s.acc.WaitForEveryone(ctx)
}

// saveAdapter writes the adapter to dir, with the head of a reward model.
func (s *student) saveAdapter(dir string) error { return s.model.SaveAdapter(dir, s.outside()...) }

// outside returns the adapter's parameters that are not part of the model.
func (s *student) outside() []model.Outside {
	if s.head == nil {
		return nil
	}
	return []model.Outside{{Name: scoreName, Parameter: s.head}}
}

// dtype returns the dtype of the weights that are written.
func (s *student) dtype() meta.DType {
	dtype := s.model.Meta().Config.DType
	if s.Dtype != "auto" {
		dtype, _ = meta.ParseDType(s.Dtype) // the flag's list of values has been checked
	}
	switch dtype {
	case meta.Float32, meta.BFloat16, meta.Float16:
		return dtype
	}
	return meta.Float32
}
