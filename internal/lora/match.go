package lora

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/meta"
)

// A Target is a linear map that an adapter changes.
type Target struct {
	Path       string // of the module
	Param      string // of the parameter there: "weight", or a stack of experts
	Experts    int    // of a stack; 0 for one matrix
	In, Out    int
	Rank       int
	Scale      float32          // of B·A
	Transposed bool             // the weight is [In, Out]
	spec       *meta.LinearSpec // in the order of whose rows and columns B and A are in memory; nil for parameters
	depth      int              // parameters of the module that PEFT wraps outside this one

	param *meta.Param
}

// Match finds the linear maps below root that c names, in the order of the tree. It fails if a
// named module is not a linear map, or if no module matches, so that no part of an adapter is
// silently ignored.
func (c *Config) Match(root *meta.Module) ([]Target, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	m, err := c.matcher(root)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	var targets []Target
	for path, node := range root.Walk() {
		if s, ok := node.Spec.(*meta.MoESpec); ok {
			for _, name := range s.Stacks() {
				m.stacks[meta.Join(path, name)] = s
			}
		}
		found, err := m.at(path, node)
		if err != nil {
			return nil, fmt.Errorf("lora: %s: %w", path, err)
		}
		targets = append(targets, found...)
	}
	if len(targets) == 0 {
		return nil, errors.New("lora: target_modules matches no module of this model; the adapter is for another model")
	}
	return targets, nil
}

// at returns the targets in one module: the whole module, or some of its parameters.
func (m *matcher) at(path string, node *meta.Module) ([]Target, error) {
	if path == "" || m.config.saves(path) {
		return nil, nil
	}
	list, err := m.adapted(path, node)
	if around := m.config.savedAround(path); len(list) > 0 && around != "" {
		return nil, fmt.Errorf("target_modules names it, and modules_to_save names %s around it: exclude one of them", around)
	}
	return list, err
}

// adapted is at for a module that is not saved.
func (m *matcher) adapted(path string, node *meta.Module) ([]Target, error) {
	if m.chosen(path, node) {
		if node.SameAs != nil {
			return nil, errors.New("target_modules names it, but it shares its weights with another module")
		}
		t, err := m.target(path, node)
		return []Target{t}, err
	}
	var list []Target
	for _, p := range node.Params {
		if full := meta.Join(path, p.Name); endsIn(full, m.config.Parameters) {
			t, err := m.parameter(path, p)
			if err != nil {
				return nil, fmt.Errorf("target_parameters names %s: %w", p.Name, err)
			}
			list = append(list, t)
		}
	}
	for i := range list {
		list[i].depth = len(list) - 1 - i
	}
	return list, nil
}

// matcher is a config with compiled patterns.
type matcher struct {
	config           *Config
	head             string
	stacks           map[string]*meta.MoESpec // MoE specs by path of the expert stack
	targets, exclude *regexp.Regexp
	layers           []*regexp.Regexp
	ranks, alphas    []*regexp.Regexp
}

func (c *Config) matcher(root *meta.Module) (*matcher, error) {
	m := &matcher{config: c, stacks: map[string]*meta.MoESpec{}}
	if s, ok := root.Spec.(*meta.CausalLMSpec); ok {
		m.head = s.Head
	}
	var errs []error
	compile := func(field, prefix, pattern, suffix string) *regexp.Regexp {
		r, err := regexp.Compile(prefix + "(?:" + pattern + ")" + suffix)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: pattern %q is not supported: %w", field, pattern, err))
		}
		return r
	}
	if c.Targets.Pattern != "" {
		m.targets = compile("target_modules", `\A`, c.Targets.Pattern, `\z`)
	}
	if c.Exclude.Pattern != "" {
		m.exclude = compile("exclude_modules", `\A`, c.Exclude.Pattern, `\z`)
	}
	for _, p := range c.LayersPattern {
		m.layers = append(m.layers, compile("layers_pattern", `\A(?:|.*?\.)`, p, `\.(\d+)\.`))
	}
	if len(m.layers) == 0 {
		m.layers = []*regexp.Regexp{anyLayer}
	}
	for _, o := range c.Ranks {
		m.ranks = append(m.ranks, compile("rank_pattern", `\A(?:.*\.)?`, o.Pattern, `\z`))
	}
	for _, o := range c.Alphas {
		m.alphas = append(m.alphas, compile("alpha_pattern", `\A(?:.*\.)?`, o.Pattern, `\z`))
	}
	return m, errors.Join(errs...)
}

// anyLayer takes the first number in a path for that of the layer.
var anyLayer = regexp.MustCompile(`\A.*?\.[^.]*\.(\d+)\.`)

// chosen reports whether the config names the module at path.
func (m *matcher) chosen(path string, node *meta.Module) bool {
	c := m.config
	if m.exclude != nil && m.exclude.MatchString(path) || endsIn(path, c.Exclude.List) {
		return false
	}
	switch {
	case c.Targets.AllLinear:
		return node.SameAs == nil && node.Kind == meta.KindLinear && path != m.head && c.savedAround(path) == ""
	case m.targets != nil:
		return m.targets.MatchString(path)
	}
	return endsIn(path, c.Targets.List) && m.inLayers(path)
}

// endsIn reports whether path is one of names, or ends in one behind a dot.
func endsIn(path string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		rest, ok := strings.CutSuffix(path, n)
		return ok && (rest == "" || strings.HasSuffix(rest, "."))
	})
}

// inLayers reports whether path is in a layer that is adapted.
func (m *matcher) inLayers(path string) bool {
	if len(m.config.Layers) == 0 {
		return true
	}
	for _, p := range m.layers {
		if found := p.FindStringSubmatch(path); found != nil {
			n, err := strconv.Atoi(found[len(found)-1])
			return err == nil && slices.Contains(m.config.Layers, n)
		}
	}
	return false
}

func (m *matcher) target(path string, node *meta.Module) (Target, error) {
	s, ok := node.Spec.(*meta.LinearSpec)
	if node.Kind != meta.KindLinear || !ok {
		return Target{}, fmt.Errorf("target_modules names a %s; only linear maps are adapted", node.Class)
	}
	p := node.Param("weight")
	if p == nil {
		return Target{}, errors.New("the linear map has no weight")
	}
	t := Target{Path: path, Param: p.Name, In: s.In, Out: s.Out, Transposed: s.Transposed, spec: s, param: p}
	if s.Reordered {
		return t, errors.New("target_modules names it, but this file has its weights in another order or scale than the adapter: use the model's safetensors files")
	}
	m.size(&t, path)
	return t, nil
}

// parameter is a matrix, or a stack of experts that a mixture names.
func (m *matcher) parameter(path string, p *meta.Param) (Target, error) {
	t := Target{Path: path, Param: p.Name, param: p}
	if m.config.DoRA { // as in PEFT
		return t, errors.New("use_dora is not supported with target_parameters")
	}
	s := m.stacks[path]
	switch {
	case len(p.Shape) == 2 && s == nil:
		t.Out, t.In = p.Shape[0], p.Shape[1]
	case len(p.Shape) == 3 && s != nil && s.Reordered && p.Name == s.GateUp:
		return t, errors.New("target_parameters names it, but this file has its rows in another order than the adapter")
	case len(p.Shape) == 3 && s != nil && (p.Name == s.GateUp || p.Name == s.Down):
		t.Experts, t.Out, t.In = p.Shape[0], p.Shape[1], p.Shape[2]
		if t.Transposed = s.Transposed; t.Transposed {
			t.Out, t.In = t.In, t.Out
		}
	default:
		return t, fmt.Errorf("a parameter of shape %v; matrices and stacks of experts' matrices are adapted", p.Shape)
	}
	m.size(&t, meta.Join(path, p.Name))
	return t, nil
}

// size fills in rank and scale, which patterns may override for a name.
func (m *matcher) size(t *Target, name string) {
	c := m.config
	t.Rank = int(override(name, float64(c.R), c.Ranks, m.ranks))
	alpha := override(name, c.Alpha, c.Alphas, m.alphas)
	if c.RSLoRA {
		alpha /= math.Sqrt(float64(t.Rank))
	} else {
		alpha /= float64(t.Rank)
	}
	t.Scale = float32(alpha)
}

// override is the value of the first pattern that matches.
func override(path string, value float64, list []Override, patterns []*regexp.Regexp) float64 {
	for i, p := range patterns {
		if p.MatchString(path) {
			return list[i].Value
		}
	}
	return value
}

// Elements returns how many numbers an adapter of c for root has: pairs, with DoRA their magnitudes, and saved
// modules. It fails as [Config.New] does.
func (c *Config) Elements(root *meta.Module) (int64, error) {
	targets, err := c.Match(root)
	if err != nil {
		return 0, err
	}
	saved, err := c.saved(root)
	if err != nil {
		return 0, fmt.Errorf("lora: %w", err)
	}
	var n int64
	for _, t := range targets {
		n += int64(t.maps()) * int64(t.Rank) * int64(t.In+t.Out)
		if c.DoRA {
			n += int64(t.maps()) * int64(t.Out)
		}
	}
	for i := range saved {
		n += saved[i].Base().Elements()
	}
	return n, nil
}
