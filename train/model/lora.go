package model

import (
	"cmp"
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
	Alpha   float64 // pairs are scaled by Alpha/R; 0 means 8
	RSLoRA  bool    // scale by Alpha/√R instead
	DoRA    bool    // each row of an adapted weight has a trained magnitude, as PEFT's use_dora
	Dropout float64 // probability for the pairs' inputs, if Options.Dropout is set

	// Targets are suffixes of module paths, such as "q_proj". Pattern is a regular expression that
	// must match the whole path. AllLinear, or no choice at all, selects every linear map except
	// the head.
	Targets   []string
	Pattern   string
	AllLinear bool
	// Parameters are suffixes of parameter paths: stacks of experts ("gate_up_proj"), each expert
	// of which gets its own pair, or matrices that belong to no linear map. They exclude Dropout.
	Parameters []string
	// Save has suffixes of the paths of modules that are trained as a whole and saved with the
	// adapter, such as "lm_head", "embed_tokens" and "norm": PEFT's modules_to_save. They are
	// linear maps, embeddings, norms, routers, or modules of these. They get no pairs. A weight
	// that the model ties is trained separately from its counterpart.
	Save []string
	// Exclude lists names to leave out. Layers, with Targets, restricts the adapter to the layers
	// with these numbers.
	Exclude []string
	Layers  []int
	// Ranks and Alphas override the value for paths that end in a match of the pattern.
	Ranks  []LoRAOverride
	Alphas []LoRAOverride

	// BaseModel is the model's name in the saved config, and TaskType the task there; empty means
	// CAUSAL_LM.
	BaseModel string
	TaskType  string
}

// LoRAOverride is the value for modules that match a regular expression.
type LoRAOverride struct {
	Pattern string
	Value   float64
}

func (c LoRAConfig) config() *lora.Config {
	out := &lora.Config{R: c.R, Alpha: c.Alpha, RSLoRA: c.RSLoRA, DoRA: c.DoRA, Dropout: c.Dropout, Layers: slices.Clone(c.Layers),
		Targets: lora.Names{List: slices.Clone(c.Targets), Pattern: c.Pattern, AllLinear: c.AllLinear},
		Exclude: lora.Names{List: slices.Clone(c.Exclude)}, Parameters: slices.Clone(c.Parameters), Save: slices.Clone(c.Save), BaseModel: c.BaseModel, TaskType: cmp.Or(c.TaskType, "CAUSAL_LM")}
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
	params []*tensor.Parameter // A and B of each pair, its magnitude with DoRA, and saved modules
	memory []*view.Tensor      // of the pairs, backed by params
	bound  *nn.Adapter         // the pairs as the program uses them
	before int32               // parameters with lower numbers
}

// Elements returns the number of trained values after [Model.AddLoRA] of c to a model of m. It
// reads no weights. It fails as AddLoRA does if c does not fit m.
func (c LoRAConfig) Elements(m *meta.Model) (int64, error) {
	n, err := c.config().Elements(m.Root)
	if err != nil {
		return 0, fmt.Errorf("model: %w", err)
	}
	return n, nil
}

// AddLoRA adds pairs to the model's linear maps. They are initialised as by PEFT with the same
// generator state, so the model's results do not change yet. From then on only the pairs train, and
// all other parameters are frozen. Parameters that [Load] left in the checkpoint with [Freeze] take
// no extra memory. A model has at most one adapter. With DoRA, AddLoRA reads the adapted weights
// once to measure them.
func (m *Model) AddLoRA(c LoRAConfig, g *rng.Generator) error {
	if g == nil {
		return errors.New("model: add LoRA: got a nil generator")
	}
	from, err := c.config().New(m.meta.Root, g.Uniform)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	for i := range from.Saved {
		s := &from.Saved[i]
		values, err := m.values(s.Base())
		if err != nil {
			return fmt.Errorf("model: modules_to_save: %s: %w", s.Path, err)
		}
		s.Tensor = view.Floats(values, s.Base().Shape...)
	}
	return m.adapt(from)
}

// Outside is a parameter of a module that belongs to an adapter but not to the model, such as
// score.weight of a reward model (task type SEQ_CLS). Its name is that in the model that PEFT
// adapts.
type Outside struct {
	Name string
	*tensor.Parameter
}

// LoadAdapter adds the pairs from a folder in PEFT's format, to continue training or to merge them.
// outside are the parameters outside of the model, which receive the adapter's values. The adapter
// must have exactly these.
func (m *Model) LoadAdapter(dir string, outside ...Outside) error {
	var names []string
	for _, o := range outside {
		names = append(names, o.Name)
	}
	file, err := lora.Open(dir, m.meta.Root, names...)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	for i, o := range file.Outside {
		if err := outside[i].fill(o.Tensor); err != nil {
			return errors.Join(fmt.Errorf("model: adapter %s: %w", dir, err), file.Close())
		}
	}
	from := &lora.Adapter{Config: file.Config, Pairs: slices.Clone(file.Pairs), Saved: slices.Clone(file.Saved)}
	for i := range from.Pairs {
		p := &from.Pairs[i]
		if err := widen(&p.A, &p.B, &p.Magnitude); err != nil {
			return errors.Join(fmt.Errorf("model: adapter of %s: %w", p.Path, err), file.Close())
		}
	}
	for i := range from.Saved {
		if err := widen(&from.Saved[i].Tensor); err != nil {
			return errors.Join(fmt.Errorf("model: adapter of %s: %w", from.Saved[i].Path, err), file.Close())
		}
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return m.adapt(from)
}

// fill sets the values of o.
func (o Outside) fill(from view.Tensor) error {
	if !slices.Equal(from.Shape(), o.Shape()) {
		return fmt.Errorf("%s has shape %v, want %v", o.Name, from.Shape(), o.Shape())
	}
	return o.Access(true, func(values []float32) error { return view.Widen(values, from.Data[:from.Bytes()], from.DType) })
}

// widen copies tensors to float32 memory.
func widen(list ...*view.Tensor) error {
	for _, t := range list {
		if t.IsZero() {
			continue
		}
		values := make([]float32, t.Elements())
		if err := view.Widen(values, t.Data[:t.Bytes()], t.DType); err != nil {
			return err
		}
		*t = view.Floats(values, t.Shape()...)
	}
	return nil
}

// values returns a copy of a parameter.
func (m *Model) values(p *meta.Param) (out []float32, err error) {
	if t := m.trained[p]; t != nil {
		err = t.Access(false, func(values []float32) error { out = slices.Clone(values); return nil })
		return out, err
	}
	dtype, data, err := m.base.binding.Values(p)
	if err != nil {
		return nil, err
	}
	out = make([]float32, p.Elements())
	return out, view.Widen(out, data, dtype)
}

// adapt makes the pairs parameters of the model.
func (m *Model) adapt(from *lora.Adapter) error {
	if m.adapter != nil {
		return errors.New("model: the model already has an adapter")
	}
	a := &adapter{Adapter: from, before: int32(len(m.order))}
	if from.Config.DoRA {
		if err := m.measure(from); err != nil {
			return err
		}
	}
	a.own()
	if err := a.bind(m.program); err != nil {
		return err
	}
	for _, p := range m.trained {
		p.Trainable = false
	}
	for i := range from.Pairs {
		p := &from.Pairs[i]
		first := len(a.params)
		a.add(p)
		m.reads(p.Path, a.params[first:])
	}
	for i := range from.Saved {
		s := &from.Saved[i]
		a.params = append(a.params, tensor.NewParameter(s.F32(), s.Shape()...))
		a.names = append(a.names, s.Named+".modules_to_save"+strings.TrimPrefix(meta.Join(s.Path, s.Param), s.Named))
		a.memory = append(a.memory, &s.Tensor)
		m.reads(s.Path, a.params[len(a.params)-1:])
	}
	for _, p := range a.params {
		m.number(p)
	}
	m.adapter = a
	return nil
}

// own numbers the memory of the pairs and of the saved modules like the parameters that they will
// become.
func (a *adapter) own() {
	next := a.before
	for i := range a.Pairs {
		p := &a.Pairs[i]
		for _, t := range [...]*view.Tensor{&p.A, &p.B, &p.Magnitude} {
			if !t.IsZero() {
				next++
				t.Owner = next
			}
		}
	}
	for i := range a.Saved {
		next++
		a.Saved[i].Tensor.Owner = next
	}
}

// reads records that the units that run the module at path read params.
func (m *Model) reads(path string, params []*tensor.Parameter) {
	for k, u := range m.program.Units {
		if reads(u, path) {
			m.units[k].trained = append(m.units[k].trained, params...)
		}
	}
}

// add makes the matrices of a pair parameters.
func (a *adapter) add(p *lora.Pair) {
	path := p.Path
	if p.Param != "weight" {
		path = meta.Join(path, p.Param)
	}
	a.params = append(a.params, tensor.NewParameter(p.A.F32(), p.A.Rows(), p.A.Cols()), tensor.NewParameter(p.B.F32(), p.B.Rows(), p.B.Cols()))
	a.names = append(a.names, path+".lora_A.weight", path+".lora_B.weight")
	a.memory = append(a.memory, &p.A, &p.B)
	if !p.Magnitude.IsZero() {
		a.params = append(a.params, tensor.NewParameter(p.Magnitude.F32(), p.Out))
		a.names = append(a.names, path+".lora_magnitude_vector")
		a.memory = append(a.memory, &p.Magnitude)
	}
}

// reads reports whether a unit runs the module at path.
func reads(u *nn.Unit, path string) bool {
	return slices.ContainsFunc(u.Modules, func(n nn.Node) bool {
		rest, ok := strings.CutPrefix(path, n.Path)
		return ok && (rest == "" || n.Path == "" || rest[0] == '.')
	})
}

// bind passes the current memory of the pairs to the program.
func (a *adapter) bind(p *nn.Program) error {
	same := a.bound != nil
	for i, t := range a.params {
		values, to := t.Data(), a.memory[i]
		if len(values) == 0 || len(values) != to.Elements() {
			return fmt.Errorf("model: %s has %d elements, want %d", a.names[i], len(values), to.Elements())
		}
		if same = same && &values[0] == &to.F32()[0]; !same {
			*to = view.Floats(values, to.Shape()...)
			to.Owner = a.before + int32(i) + 1
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
// adapter_model.safetensors, in float32. Parameters outside of the model are saved as PEFT's
// modules_to_save.
func (m *Model) SaveAdapter(dir string, outside ...Outside) error {
	if m.adapter == nil {
		return errNoAdapter
	}
	err := m.adapter.access(func() error {
		if err := m.adapter.bind(m.program); err != nil {
			return err
		}
		whole := *m.adapter.Adapter
		for _, o := range outside {
			values, err := floatsOf(o.Parameter)
			if err != nil {
				return err
			}
			t, err := view.Of(values, meta.Float32, o.Shape()...)
			if err != nil {
				return err
			}
			whole.Outside = append(whole.Outside, lora.Outside{Name: o.Name, Tensor: t})
		}
		return whole.Save(dir)
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

// MergeAdapter yields the tensors of a checkpoint that gives the same results without an adapter:
// those of [Model.Checkpoint], with each pair added to its weight and rounded to the weight's
// dtype. It does not change the model.
func (m *Model) MergeAdapter() (iter.Seq[loader.NamedTensor], error) {
	if m.adapter == nil {
		return nil, errNoAdapter
	}
	if err := m.adapter.access(func() error { return m.adapter.bind(m.program) }); err != nil {
		return nil, err
	}
	replaced, err := m.adapter.Replacements(m.meta.Root)
	if err != nil {
		return nil, fmt.Errorf("model: merge adapter: %w", err)
	}
	pairs := map[string]*lora.Pair{}
	for i := range m.adapter.Pairs {
		p := &m.adapter.Pairs[i]
		if w := m.meta.Root.Find(p.Path).Param(p.Param); w.SameAs != nil {
			return nil, fmt.Errorf("model: merge adapter: %s.%s is tied to another weight and cannot be merged", p.Path, p.Param)
		}
		pairs[meta.Join(p.Path, p.Param)] = p
	}
	return m.unbind(floatsOf, func(path string, dtype meta.DType, data []byte) ([]byte, error) {
		p, replace := pairs[path], replaced[path]
		if p == nil && replace == nil {
			return data, nil
		}
		data = slices.Clone(data)
		err := m.adapter.access(func() error {
			err := m.adapter.bind(m.program)
			switch {
			case err != nil:
			case replace != nil:
				data, err = replace(dtype)
			default:
				err = p.Add(data, dtype, 1)
			}
			return err
		})
		return data, err
	})
}
