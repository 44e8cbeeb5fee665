package lora

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Save writes a folder that PEFT loads: adapter_config.json and adapter_model.safetensors. It
// writes the tensors first, so that a folder with a config is complete.
func (a *Adapter) Save(dir string) error {
	var tensors []loader.NamedTensor
	for i := range a.Pairs {
		p := &a.Pairs[i]
		b := p.B
		if p.Experts > 0 {
			b = p.unstack(b)
		}
		m := p.Magnitude
		tensors = append(tensors, named(p.Name("A"), p.columns(p.A, false)), named(p.Name("B"), p.rows(b, false)))
		if m.IsZero() {
			continue
		}
		m = p.rows(m, false)
		m.Rank = 1
		tensors = append(tensors, named(p.Name(magnitude), m))
	}
	for i := range a.Saved {
		tensors = append(tensors, named(a.Saved[i].Name(), a.Saved[i].Tensor))
	}
	for _, o := range a.Outside {
		tensors = append(tensors, named(prefix+o.Name, o.Tensor))
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{Stem: stem}); err != nil {
		return fmt.Errorf("lora: %w", err)
	}
	text, err := a.json()
	if err == nil {
		err = atomicfile.WriteFile(filepath.Join(dir, ConfigFile), text)
	}
	if err != nil {
		return fmt.Errorf("lora: %w", err)
	}
	return nil
}

func named(name string, t tensor.Tensor) loader.NamedTensor {
	return loader.NamedTensor{Name: name, DType: t.DType, Shape: t.Shape(),
		Bytes: func() ([]byte, error) { return t.Data[:t.Bytes()], nil }}
}

// json returns the config as PEFT writes it: all fields, sorted. The keyword for all linear maps is
// expanded to the list of their names.
func (a *Adapter) json() ([]byte, error) {
	c := a.Config
	targets := c.Targets
	if targets.AllLinear {
		targets = Names{}
		for i := range a.Pairs {
			if p := &a.Pairs[i]; !endsIn(meta.Join(p.Path, p.Param), c.Parameters) {
				targets.List = append(targets.List, p.Path)
			}
		}
	}
	save := slices.Clone(c.Save)
	for _, o := range a.Outside {
		if module := o.Name[:max(strings.LastIndexByte(o.Name, '.'), 0)]; !slices.Contains(save, module) {
			save = append(save, module)
		}
	}
	fields := map[string]any{
		"peft_type": "LORA", "task_type": orNull(c.TaskType), "base_model_name_or_path": orNull(c.BaseModel), "revision": orNull(c.Revision),
		"r": c.R, "lora_alpha": c.Alpha, "lora_dropout": c.Dropout, "use_rslora": c.RSLoRA, "fan_in_fan_out": c.FanInFanOut,
		"target_modules": targets.value(), "exclude_modules": c.Exclude.value(),
		"rank_pattern": object(c.Ranks), "alpha_pattern": object(c.Alphas),
		"layers_to_transform": orNone(c.Layers), "layers_pattern": orNone(c.LayersPattern),
		"bias": "none", "inference_mode": true, "init_lora_weights": true, "lora_bias": false, "use_dora": c.DoRA,
		"modules_to_save": orNone(save), "auto_mapping": nil, "layer_replication": nil, "loftq_config": struct{}{},
		"megatron_config": nil, "megatron_core": "megatron.core", "target_parameters": orNone(c.Parameters), "trainable_token_indices": nil,
	}
	text, err := json.MarshalIndent(fields, "", "  ")
	return append(text, '\n'), err
}

func (n Names) value() any {
	switch {
	case n.AllLinear:
		return allLinear
	case n.Pattern != "":
		return n.Pattern
	}
	return orNone(n.List)
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func orNone[T any](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

// object encodes overrides as a JSON object in their order.
func object(list []Override) json.RawMessage {
	out := []byte{'{'}
	for i, o := range list {
		if i > 0 {
			out = append(out, ',')
		}
		key, _ := json.Marshal(o.Pattern) // strings and numbers always encode
		value, _ := json.Marshal(o.Value)
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}
