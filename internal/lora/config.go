package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Config says what an adapter adds to. Its zero value is not valid: R and Targets are
// wanted.
type Config struct {
	R       int     // rank
	Alpha   float64 // scale is Alpha/R
	RSLoRA  bool    // scale is Alpha/√R
	Dropout float64 // of A's input, in training only

	// Targets are the linear maps that are adapted, but those that Exclude names.
	Targets, Exclude Names
	// Parameters are names that the paths of parameters end in, of matrices or of stacks of
	// experts' matrices, which are adapted too: each expert by a pair of its own.
	Parameters []string
	// Layers are the numbers of the only layers that are adapted, where Targets is a list;
	// empty: all. LayersPattern are the names that stand before a number; empty: any.
	Layers        []int
	LayersPattern []string
	// Ranks and Alphas override R and Alpha where their pattern matches; the first that does
	// counts.
	Ranks, Alphas []Override

	// FanInFanOut says that the adapted weights are stored as [in, out]. The tree knows that
	// itself; the field is written as PEFT writes it.
	FanInFanOut bool
	BaseModel   string // base_model_name_or_path
	Revision    string
	TaskType    string
}

// Names are modules: a list of names that paths end in, or a regular expression that is the
// whole path, or all linear maps but the head.
type Names struct {
	List      []string
	Pattern   string
	AllLinear bool
}

func (n Names) empty() bool { return len(n.List) == 0 && n.Pattern == "" && !n.AllLinear }

// An Override is a value for the modules whose path, or the end of it behind a dot, matches
// Pattern.
type Override struct {
	Pattern string
	Value   float64
}

// ReadConfig parses adapter_config.json. A field that asks for more than low-rank pairs is
// an error that names it; fields that Heft does not know are passed over, as PEFT does.
func ReadConfig(data []byte) (*Config, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("lora: adapter_config.json: %w", err)
	}
	r := reader{fields: all}
	c := &Config{R: r.integer("r", 8), Alpha: r.number("lora_alpha", 8), RSLoRA: r.boolean("use_rslora"),
		Dropout: r.number("lora_dropout", 0), FanInFanOut: r.boolean("fan_in_fan_out"),
		Targets: r.names("target_modules"), Exclude: r.names("exclude_modules"),
		Ranks: r.overrides("rank_pattern"), Alphas: r.overrides("alpha_pattern"),
		BaseModel: r.text("base_model_name_or_path"), Revision: r.text("revision"), TaskType: r.text("task_type")}
	c.Layers, c.LayersPattern = r.integers("layers_to_transform"), r.list("layers_pattern")
	c.Parameters = r.list("target_parameters")
	r.refuse()
	if r.err == nil {
		r.err = c.check()
	}
	if r.err != nil {
		return nil, fmt.Errorf("lora: adapter_config.json: %w", r.err)
	}
	return c, nil
}

// maxRank bounds ranks: a larger one is a broken file.
const maxRank = 1 << 16

func (c *Config) check() error {
	switch {
	case c.R < 1 || c.R > maxRank:
		return fmt.Errorf("r is %d; it is 1 to %d", c.R, maxRank)
	case math.IsNaN(c.Alpha) || math.IsInf(c.Alpha, 0):
		return fmt.Errorf("lora_alpha is %v", c.Alpha)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("lora_dropout is %v; it is from 0 to below 1", c.Dropout)
	case c.Targets.empty() && len(c.Parameters) == 0:
		return errors.New("target_modules names nothing")
	case slices.Contains(c.Targets.List, "") || slices.Contains(c.Parameters, ""):
		return errors.New("target_modules or target_parameters has an empty name")
	case len(c.Parameters) > 0 && c.Dropout > 0:
		return errors.New("lora_dropout with target_parameters: inputs of parameters cannot be dropped")
	case len(c.Layers) > 0 && c.Targets.List == nil:
		return errors.New("layers_to_transform wants target_modules to be a list")
	case len(c.LayersPattern) > 0 && len(c.Layers) == 0:
		return errors.New("layers_pattern without layers_to_transform")
	}
	for _, o := range c.Ranks {
		if o.Value != math.Trunc(o.Value) || o.Value < 1 || o.Value > maxRank {
			return fmt.Errorf("rank_pattern: %q: a rank of %v", o.Pattern, o.Value)
		}
	}
	return nil
}

// refused are the fields of which only an empty value can be run, and what they ask for.
var refused = []struct{ name, what string }{
	{"use_dora", "DoRA's magnitudes"},
	{"lora_bias", "biases of B"},
	{"modules_to_save", "whole modules beside the adapter"},
	{"trainable_token_indices", "trained tokens"},
	{"layer_replication", "layers that stand twice"},
	{"alora_invocation_tokens", "adapters that begin at a token"},
	{"use_qalora", "grouped inputs"},
	{"use_bdlora", "matrices in blocks"},
	{"arrow_config", "a router of adapters"},
	{"kasa_config", "singular values"},
	{"monteclora_config", "sampled adapters"},
	{"megatron_config", "Megatron's parallel layers"},
}

// residual are the starts that change the weights of the base, so that the adapter means
// nothing without that change.
var residual = []string{"pissa", "olora", "corda", "loftq", "lora_ga", "mica"}

// refuse fails where a field asks for what is not done.
func (r *reader) refuse() {
	if kind := r.text("peft_type"); kind != "LORA" && r.err == nil {
		r.err = fmt.Errorf("peft_type is %q; only LORA is run", kind)
	}
	if bias := r.text("bias"); bias != "" && bias != "none" && r.err == nil {
		r.err = fmt.Errorf("bias is %q: trained biases of the base are not run", bias)
	}
	for _, f := range refused {
		if r.err == nil && !empty(r.fields[f.name]) {
			r.err = fmt.Errorf("%s is set: %s are not run", f.name, f.what)
		}
	}
	var start string
	if json.Unmarshal(r.fields["init_lora_weights"], &start) != nil {
		return // true, false or absent
	}
	for _, name := range residual {
		if strings.HasPrefix(strings.ToLower(start), name) && r.err == nil {
			r.err = fmt.Errorf("init_lora_weights is %q: it has changed the weights of the base; convert the adapter to plain LoRA when it is saved", start)
		}
	}
}

// empty reports whether a value is absent, null, false, 0 or has no elements.
func empty(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "", "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}
