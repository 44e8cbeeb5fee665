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

// A Target is a linear map that an adapter adds to.
type Target struct {
	Path       string // of the module
	In, Out    int
	Rank       int
	Scale      float32 // of B·A
	Transposed bool    // the weight is [In, Out]

	param *meta.Param
}

// Match finds the linear maps below root that c names, in the order of the tree. A module
// that is named and is no linear map is an error, and so is a config that names nothing:
// what PEFT would adapt and Heft cannot is never left out silently.
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
		if path == "" || !m.chosen(path, node) {
			continue
		}
		if node.SameAs != nil {
			return nil, fmt.Errorf("lora: target_modules names %s, which is the same module as another", path)
		}
		t, err := m.target(path, node)
		if err != nil {
			return nil, fmt.Errorf("lora: %s: %w", path, err)
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, errors.New("lora: target_modules names no module of this model: the adapter belongs to another")
	}
	return targets, nil
}

// matcher is a config whose patterns are compiled.
type matcher struct {
	config           *Config
	head             string
	targets, exclude *regexp.Regexp
	layers           []*regexp.Regexp
	ranks, alphas    []*regexp.Regexp
}

func (c *Config) matcher(root *meta.Module) (*matcher, error) {
	m := &matcher{config: c}
	if s, ok := root.Spec.(*meta.CausalLMSpec); ok {
		m.head = s.Head
	}
	var errs []error
	compile := func(field, prefix, pattern, suffix string) *regexp.Regexp {
		r, err := regexp.Compile(prefix + "(?:" + pattern + ")" + suffix)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is no pattern that Heft can read: %w", field, pattern, err))
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
		return node.SameAs == nil && node.Kind == meta.KindLinear && path != m.head
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
	c := m.config
	rank := int(override(path, float64(c.R), c.Ranks, m.ranks))
	alpha := override(path, c.Alpha, c.Alphas, m.alphas)
	if c.RSLoRA {
		alpha /= math.Sqrt(float64(rank))
	} else {
		alpha /= float64(rank)
	}
	return Target{Path: path, In: s.In, Out: s.Out, Rank: rank, Scale: float32(alpha), Transposed: s.Transposed, param: p}, nil
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
