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

// A Config says which linear maps an adapter changes, and how. The zero value is not valid: R and
// Targets are required.
type Config struct {
	R       int     // rank
	Alpha   float64 // the scale is Alpha/R
	RSLoRA  bool    // the scale is Alpha/√R
	DoRA    bool    // pairs have magnitudes
	Dropout float64 // dropout of A's input, in training only

	// Targets are the linear maps to adapt, except those that Exclude names.
	Targets, Exclude Names
	// Parameters are suffixes of parameter paths that are also adapted. They name matrices, or
	// stacks of experts' matrices, in which each expert has a pair of its own.
	Parameters []string
	// Save names modules that are trained and saved as a whole, by the end of their paths
	// (modules_to_save). They get no pairs.
	Save []string
	// Layers restricts adaptation to these layer numbers if Targets is a list; empty means all
	// layers. LayersPattern are the names that precede a layer number; empty means any.
	Layers        []int
	LayersPattern []string
	// Ranks and Alphas override R and Alpha for matching patterns. The first match applies.
	Ranks, Alphas []Override

	// FanInFanOut says that the adapted weights are stored as [in, out]. Heft takes the layout from
	// the tree; the field is only written back for PEFT.
	FanInFanOut bool
	BaseModel   string // base_model_name_or_path
	Revision    string
	TaskType    string
}

// Names selects modules: by a list of path suffixes, by a regular expression that matches the whole
// path, or all linear maps except the head.
type Names struct {
	List      []string
	Pattern   string
	AllLinear bool
}

func (n Names) empty() bool { return len(n.List) == 0 && n.Pattern == "" && !n.AllLinear }

// An Override is a value for the modules whose path, or a suffix of it after a dot, matches
// Pattern.
type Override struct {
	Pattern string
	Value   float64
}

// ReadConfig parses adapter_config.json. It rejects fields that require more than low-rank pairs,
// with an error that names the field. It ignores unknown fields, as PEFT does.
func ReadConfig(data []byte) (*Config, error) {
	var all map[string]json.RawMessage
	var kind *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &all); errors.As(err, &kind) {
		return nil, fmt.Errorf("lora: adapter_config.json: got JSON of type %s, want an object", kind.Value)
	} else if err != nil {
		return nil, fmt.Errorf("lora: adapter_config.json: %w", err)
	}
	r := reader{fields: all}
	c := &Config{R: r.integer("r", 8), Alpha: r.number("lora_alpha", 8), RSLoRA: r.boolean("use_rslora"), DoRA: r.boolean("use_dora"),
		Dropout: r.number("lora_dropout", 0), FanInFanOut: r.boolean("fan_in_fan_out"),
		Targets: r.names("target_modules"), Exclude: r.names("exclude_modules"),
		Ranks: r.overrides("rank_pattern"), Alphas: r.overrides("alpha_pattern"),
		BaseModel: r.text("base_model_name_or_path"), Revision: r.text("revision"), TaskType: r.text("task_type")}
	c.Layers, c.LayersPattern = r.integers("layers_to_transform"), r.list("layers_pattern")
	c.Parameters, c.Save = r.list("target_parameters"), r.list("modules_to_save")
	r.refuse()
	if r.err == nil {
		r.err = c.check()
	}
	if r.err != nil {
		return nil, fmt.Errorf("lora: adapter_config.json: %w", r.err)
	}
	return c, nil
}

// maxRank bounds ranks: a larger one indicates a damaged file.
const maxRank = 1 << 16

func (c *Config) check() error {
	switch {
	case c.R < 1 || c.R > maxRank:
		return fmt.Errorf("r is %d, want 1 to %d", c.R, maxRank)
	case math.IsNaN(c.Alpha) || math.IsInf(c.Alpha, 0):
		return fmt.Errorf("lora_alpha is %v, want a finite number", c.Alpha)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fmt.Errorf("lora_dropout is %v, want at least 0 and less than 1", c.Dropout)
	case c.Targets.empty() && len(c.Parameters) == 0:
		return errors.New("target_modules is empty")
	case slices.Contains(c.Targets.List, "") || slices.Contains(c.Parameters, "") || slices.Contains(c.Save, ""):
		return errors.New("target_modules, target_parameters or modules_to_save contains an empty name")
	case len(c.Parameters) > 0 && c.Dropout > 0:
		return errors.New("lora_dropout is not supported with target_parameters")
	case len(c.Layers) > 0 && c.Targets.List == nil:
		return errors.New("layers_to_transform requires target_modules to be a list")
	case len(c.LayersPattern) > 0 && len(c.Layers) == 0:
		return errors.New("layers_pattern requires layers_to_transform")
	}
	for _, o := range c.Ranks {
		if o.Value != math.Trunc(o.Value) || o.Value < 1 || o.Value > maxRank {
			return fmt.Errorf("rank_pattern: %q: invalid rank %v", o.Pattern, o.Value)
		}
	}
	return nil
}

// refused lists the fields that must be empty, with the unsupported feature that each enables.
var refused = []struct{ name, what string }{
	{"lora_bias", "biases of B"},
	{"trainable_token_indices", "trained tokens"},
	{"layer_replication", "repeated layers"},
	{"alora_invocation_tokens", "adapters that begin at a token"},
	{"use_qalora", "grouped inputs"},
	{"use_bdlora", "matrices in blocks"},
	{"arrow_config", "a router of adapters"},
	{"kasa_config", "singular values"},
	{"monteclora_config", "sampled adapters"},
	{"megatron_config", "Megatron's parallel layers"},
}

// residual lists the initialisations that change the base weights; the adapter is meaningless
// without that change.
var residual = []string{"pissa", "olora", "corda", "loftq", "lora_ga", "mica"}

// refuse fails if a field requires an unsupported feature.
func (r *reader) refuse() {
	if kind := r.text("peft_type"); kind != "LORA" && r.err == nil {
		r.err = fmt.Errorf("peft_type is %q, want LORA", kind)
	}
	if bias := r.text("bias"); bias != "" && bias != "none" && r.err == nil {
		r.err = fmt.Errorf("bias is %q, want none: trained biases of the base model are not supported", bias)
	}
	for _, f := range refused {
		if r.err == nil && !empty(r.fields[f.name]) {
			r.err = fmt.Errorf("%s is set: %s are not supported", f.name, f.what)
		}
	}
	var start string
	if json.Unmarshal(r.fields["init_lora_weights"], &start) != nil {
		return // true, false or absent
	}
	for _, name := range residual {
		if strings.HasPrefix(strings.ToLower(start), name) && r.err == nil {
			r.err = fmt.Errorf("init_lora_weights is %q, which changes the base weights; convert the adapter to plain LoRA when saving it", start)
		}
	}
}

// empty reports whether a value is missing, null, false, 0 or has no elements.
func empty(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "", "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}
