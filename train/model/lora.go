package model

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// LoRAConfig selects the linear maps that get low-rank pairs, and configures them. Its fields are
// those of PEFT's LoraConfig.
type LoRAConfig struct {
	R       int     // rank; 0 means 8
	Alpha   float64 // the pairs count Alpha/R; 0 means 8
	RSLoRA  bool    // they count Alpha/√R
	Dropout float64 // of the pairs' inputs, where Options.Dropout draws

	// Targets are suffixes of module paths, such as "q_proj". Pattern is a regular expression that
	// matches the whole path. AllLinear, or no choice at all, selects every linear map but the
	// head.
	Targets   []string
	Pattern   string
	AllLinear bool
	// Parameters are suffixes of parameter paths: of stacks of experts ("gate_up_proj"), each
	// expert of which gets its own pair, or of matrices that belong to no linear map. They allow no
	// Dropout.
	Parameters []string
	// Exclude lists excluded names. Layers, with Targets, restricts the adapter to the layers with
	// these numbers.
	Exclude []string
	Layers  []int
	// Ranks and Alphas override the value for paths that end in a match of the pattern.
	Ranks  []LoRAOverride
	Alphas []LoRAOverride

	// BaseModel is the model's name in the saved config.
	BaseModel string
}

// LoRAOverride is the value for modules that match a regular expression.
type LoRAOverride struct {
	Pattern string
	Value   float64
}

func (c LoRAConfig) config() *lora.Config {
	out := &lora.Config{R: c.R, Alpha: c.Alpha, RSLoRA: c.RSLoRA, Dropout: c.Dropout, Layers: slices.Clone(c.Layers),
		Targets: lora.Names{List: slices.Clone(c.Targets), Pattern: c.Pattern, AllLinear: c.AllLinear},
		Exclude: lora.Names{List: slices.Clone(c.Exclude)}, Parameters: slices.Clone(c.Parameters), BaseModel: c.BaseModel, TaskType: "CAUSAL_LM"}
	if out.R == 0 {
		out.R = 8
	}
	if out.Alpha == 0 {
		out.Alpha = 8
	}
	if len(c.Targets) == 0 && c.Pattern == "" && len(c.Parameters) == 0 {
		out.Targets.AllLinear = true
	}
	for _, o := range c.Ranks {
		out.Ranks = append(out.Ranks, lora.Override(o))
	}
	for _, o := range c.Alphas {
		out.Alphas = append(out.Alphas, lora.Override(o))
	}
	return out
}

// adapter holds a model's low-rank pairs and their parameters.
type adapter struct {
	*lora.Adapter
	names  []string
	params []*tensor.Parameter // A and B of each pair
	bound  *nn.Adapter         // of the memory that params have
}

// AddLoRA adds pairs to the model's linear maps. They start as PEFT's do under the same generator
// state, so the model's answers do not change yet. From then on only the pairs train and all other
// parameters are frozen. Parameters that [Load] left in the checkpoint with [Freeze] take no extra
// memory. A model has at most one adapter.
func (m *Model) AddLoRA(c LoRAConfig, g *rng.Generator) error {
	if g == nil {
		return errors.New("model: add LoRA: got a nil generator")
	}
	from, err := c.config().New(m.meta.Root, g.Uniform)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return m.adapt(from)
}

// LoadAdapter adds the pairs from a folder in PEFT's format, to continue training or to merge them.
func (m *Model) LoadAdapter(dir string) error {
	file, err := lora.Open(dir, m.meta.Root)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	from := &lora.Adapter{Config: file.Config, Pairs: slices.Clone(file.Pairs)}
	for i := range from.Pairs {
		for _, t := range []*view.Tensor{&from.Pairs[i].A, &from.Pairs[i].B} {
			values := make([]float32, t.Elements())
			if err := view.Widen(values, t.Data[:t.Bytes()], t.DType); err != nil {
				return errors.Join(fmt.Errorf("model: adapter of %s: %w", from.Pairs[i].Path, err), file.Close())
			}
			*t = view.Floats(values, t.Rows(), t.Cols())
		}
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return m.adapt(from)
}

// adapt makes the pairs parameters.
func (m *Model) adapt(from *lora.Adapter) error {
	if m.adapter != nil {
		return errors.New("model: the model already has an adapter")
	}
	a := &adapter{Adapter: from}
	if err := a.bind(m.program); err != nil {
		return err
	}
	for _, p := range m.trained {
		p.Trainable = false
	}
	for i := range from.Pairs {
		p := &from.Pairs[i]
		both := []*tensor.Parameter{tensor.NewParameter(p.A.F32(), p.A.Rows(), p.A.Cols()), tensor.NewParameter(p.B.F32(), p.B.Rows(), p.B.Cols())}
		a.params = append(a.params, both...)
		path := p.Path
		if p.Param != "weight" {
			path = meta.Join(path, p.Param)
		}
		a.names = append(a.names, path+".lora_A.weight", path+".lora_B.weight")
		for k, u := range m.program.Units {
			if reads(u, p.Path) {
				m.units[k].trained = append(m.units[k].trained, both...)
			}
		}
	}
	m.adapter = a
	return nil
}

// reads reports whether a unit runs the module at path.
func reads(u *nn.Unit, path string) bool {
	return slices.ContainsFunc(u.Modules, func(n nn.Node) bool {
		rest, ok := strings.CutPrefix(path, n.Path)
		return ok && (rest == "" || n.Path == "" || rest[0] == '.')
	})
}

// bind gives the program the current memory of the pairs.
func (a *adapter) bind(p *nn.Program) error {
	same := a.bound != nil
	for i, t := range a.params {
		values := t.Data()
		if len(values) == 0 || len(values) != t.Shape()[0]*t.Shape()[1] {
			return fmt.Errorf("model: %s has %d elements for shape %v", a.names[i], len(values), t.Shape())
		}
		to := &a.Pairs[i/2].A
		if i%2 == 1 {
			to = &a.Pairs[i/2].B
		}
		if same = same && &values[0] == &to.F32()[0]; !same {
			*to = view.Floats(values, t.Shape()...)
		}
	}
	if same {
		return nil
	}
	bound, err := p.NewAdapter(nil, a.Adapter)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	a.bound = bound
	return nil
}

// Adapted reports whether the model has an adapter.
func (m *Model) Adapted() bool { return m.adapter != nil }

var errNoAdapter = errors.New("model: the model has no adapter")

// SaveAdapter writes the pairs to dir in PEFT's format: adapter_config.json and
// adapter_model.safetensors, in float32.
func (m *Model) SaveAdapter(dir string) error {
	if m.adapter == nil {
		return errNoAdapter
	}
	err := m.adapter.access(func() error {
		if err := m.adapter.bind(m.program); err != nil {
			return err
		}
		return m.adapter.Save(dir)
	})
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// access calls f while the values of all pairs are in memory.
func (a *adapter) access(f func() error) error {
	for _, p := range a.params {
		inner := f
		f = func() error { return p.Access(false, func([]float32) error { return inner() }) }
	}
	return f()
}

// MergeAdapter yields the tensors of a checkpoint that gives the same answers without an adapter:
// those of [Model.Checkpoint], with each pair added to its weight and rounded to the weight's
// dtype. It does not change the model.
func (m *Model) MergeAdapter() (iter.Seq[loader.NamedTensor], error) {
	if m.adapter == nil {
		return nil, errNoAdapter
	}
	if err := m.adapter.access(func() error { return m.adapter.bind(m.program) }); err != nil {
		return nil, err
	}
	pairs := map[string]*lora.Pair{}
	for i := range m.adapter.Pairs {
		p := &m.adapter.Pairs[i]
		if w := m.meta.Root.Find(p.Path).Param(p.Param); w.SameAs != nil {
			return nil, fmt.Errorf("model: merge adapter: %s.%s is tied to another weight and cannot be merged", p.Path, p.Param)
		}
		pairs[meta.Join(p.Path, p.Param)] = p
	}
	return m.unbind(numbers, func(path string, dtype meta.DType, data []byte) ([]byte, error) {
		p := pairs[path]
		if p == nil {
			return data, nil
		}
		data = slices.Clone(data)
		return data, m.adapter.access(func() error {
			if err := m.adapter.bind(m.program); err != nil {
				return err
			}
			return p.Add(data, dtype, 1)
		})
	})
}
