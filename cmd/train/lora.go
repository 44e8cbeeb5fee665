package main

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/model"
)

// parseLoRA reads --lora: r=16,alpha=32,dropout=0.1,rslora,targets=q_proj+v_proj,….
func parseLoRA(s string) (model.LoRAConfig, error) {
	c := model.LoRAConfig{}
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
			return c, cmdline.Misusef("--lora: got %q, want one of r, alpha, dropout, rslora, targets, parameters, exclude, layers", name)
		}
		if err != nil {
			return c, cmdline.Misusef("--lora: %s=%s: %w", name, value, err)
		}
	}
	if c.R < 1 || c.Alpha < 0 || c.Dropout < 0 || c.Dropout >= 1 {
		return c, cmdline.Misusef("--lora %s: want r of at least 1, alpha of at least 0 and a dropout below 1", s)
	}
	if c.Alpha == 0 {
		c.Alpha = float64(c.R)
	}
	return c, nil
}

// merged is a model whose checkpoint contains its adapter.
type merged struct{ *model.Model }

func (m merged) Checkpoint() (iter.Seq[loader.NamedTensor], error) { return m.MergeAdapter() }

var _ train.Checkpointed = merged{}

// save writes the result into dir, on the main process: the adapter, the merged model, or the
// model.
func (s *student) save(ctx context.Context, dir string) error {
	o := train.SaveModelOptions{From: s.job.model, DType: s.dtype()}
	switch {
	case s.LoRA == "":
		return train.SaveModel(ctx, s.acc, s.model, dir, o)
	case s.Merge:
		o.DType = meta.NoDType // as the weights it was added to
		return train.SaveModel(ctx, s.acc, merged{s.model}, dir, o)
	}
	err := s.acc.OnMainProcess(func() error { return s.model.SaveAdapter(dir) })
	if err != nil {
		return err
	}
	return s.acc.WaitForEveryone(ctx)
}

// dtype returns that of the weights that are written.
func (s *student) dtype() meta.DType {
	dtype := s.model.Meta().Config.DType
	if s.Dtype != "auto" {
		dtype, _ = meta.ParseDType(s.Dtype) // one of those that kong lets through
	}
	switch dtype {
	case meta.Float32, meta.BFloat16, meta.Float16:
		return dtype
	}
	return meta.Float32
}
