package nn

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A rule runs one module.
type rule interface {
	// forward computes dst from x. They must not overlap unless the rule allows it.
	forward(c *Context, dst, x tensor.Tensor)
	// scratch returns the number of floats that forward allocates from the arena for rows.
	scratch(rows int) int
	// cols returns the width of the result.
	cols() int
}

// Compile resolves the names in the Specs below root. The root is a CausalLM, a Sequential, whose
// children become units, or a single module of another kind. If a spec is not supported, the
// error names the path of its module.
func Compile(root *meta.Module) (*Program, error) {
	if root == nil {
		return nil, errors.New("nn: no module")
	}
	root = root.Resolve()
	c := &compiler{root: root, program: &Program{alphas: map[int]param{}}, caches: map[int]string{}, states: map[int]string{}}
	var err error
	switch root.Kind {
	case meta.KindCausalLM:
		err = c.causalLM(root)
	case meta.KindSequential:
		err = c.sequentialUnits(root)
	default:
		_, err = c.ruleUnit(Node{Module: root}, 0)
	}
	if err == nil {
		err = c.finish()
	}
	if err != nil {
		return nil, err
	}
	return c.program, nil
}

// compiler is the state of one Compile.
type compiler struct {
	root    *meta.Module
	program *Program
	caches  map[int]string // cache layer → path of the attention that writes it
	states  map[int]string // state → path of the module that writes it
	experts []Node         // expert stacks of the current unit
	banded  []*meta.Param  // see Unit.Banded, of the current unit
	layers  []int          // see Unit.Layers
	held    []int          // see Unit.States
	host    string         // see Unit.HostOnly
	learned []int          // see Unit.learned, of the current unit
	read    []Node         // the modules with their parameters
}

// at returns an error about the module at path.
func at(path, format string, args ...any) error {
	if path == "" {
		path = "the root"
	}
	return fmt.Errorf("nn: %s: "+format, append([]any{path}, args...)...)
}

// child returns the module that a spec names.
func (c *compiler) child(n Node, role, name string) (Node, error) {
	if name == "" {
		return Node{}, at(n.Path, "the spec names no %s", role)
	}
	m := n.Module.Find(name)
	if m == nil {
		return Node{}, at(n.Path, "no child %q, which the spec names as %s", name, role)
	}
	return Node{meta.Join(n.Path, name), m.Resolve()}, nil
}

// spec returns a module's spec as the type for its kind.
func spec[T any](n Node, kind meta.Kind) (*T, error) {
	if n.Module.Kind != kind {
		return nil, at(n.Path, "a module of kind %v where one of kind %v is wanted", n.Module.Kind, kind)
	}
	s, ok := n.Module.Spec.(*T)
	if !ok || s == nil {
		return nil, at(n.Path, "spec of type %T, not %T", n.Module.Spec, s)
	}
	return s, nil
}

// A param is a resolved parameter with its path. Its Param is nil if it is optional and missing.
type param struct {
	*meta.Param
	path string
}

// param returns the parameter called name and checks its shape.
func (c *compiler) param(n Node, name string, shape ...int) (param, error) {
	p, err := c.optional(n, name, shape...)
	if err == nil && p.Param == nil {
		err = at(n.Path, "no parameter %q", name)
	}
	return p, err
}

// optional returns the parameter called name if it exists.
func (c *compiler) optional(n Node, name string, shape ...int) (param, error) {
	p := param{n.Module.Param(name), meta.Join(n.Path, name)}
	if p.Param == nil {
		return p, nil
	}
	if !slices.Equal(p.Shape, shape) {
		return p, at(p.path, "parameter of shape %v, wanted %v", p.Shape, shape)
	}
	p.Param = p.Resolve()
	if len(shape) == 1 {
		c.widens(shape[0])
	}
	return p, nil
}

// rule compiles a module of any kind. in is the width of its input.
func (c *compiler) rule(n Node, in int) (rule, error) {
	switch n.Module.Kind {
	case meta.KindBlock:
		return c.block(n, in)
	case meta.KindAttention:
		return c.attention(n, in)
	case meta.KindShortConv:
		return c.shortConv(n, in)
	case meta.KindDeltaNet:
		return c.deltaNet(n, in)
	case meta.KindMamba2:
		return c.mamba2(n, in)
	case meta.KindMamba:
		return c.mamba(n, in)
	case meta.KindLightning:
		return c.lightning(n, in)
	case meta.KindGatedLRU:
		return c.gatedLRU(n, in)
	case meta.KindTimeMix:
		return c.timeMix(n, in)
	case meta.KindChannelMix:
		return c.channelMix(n, in)
	case meta.KindMLP:
		return c.mlp(n, in)
	case meta.KindMoE:
		return c.moe(n, in)
	case meta.KindLinear:
		return c.linear(n, in)
	case meta.KindNorm:
		return c.norm(n, in)
	case meta.KindSequential:
		return c.sequential(n, in)
	case meta.KindActivation:
		return c.activation(n, in)
	case meta.KindNone:
		if len(n.Module.Children) == 0 && len(n.Module.Params) == 0 {
			return identity{in}, nil
		}
	}
	return nil, at(n.Path, "a %s of kind %v is not supported here", n.Module.Class, n.Module.Kind)
}

// unit adds a unit that reads the modules of nodes.
func (c *compiler) unit(s step, nodes ...Node) {
	c.program.Units = append(c.program.Units, &Unit{Path: nodes[0].Path, Modules: append(nodes, c.read...), Experts: c.experts, Banded: c.banded,
		Layers: c.layers, States: c.held, HostOnly: c.host, learned: c.learned, step: s})
	c.experts, c.banded, c.layers, c.held, c.host, c.learned, c.read = nil, nil, nil, nil, "", nil, nil
}

// cache assigns an attention its layer of the KV cache.
func (c *compiler) cache(path string, layer int, shape kvcache.LayerShape) error {
	const most = 1 << 16
	if layer < 0 || layer >= most {
		return at(path, "layer %d of the cache", layer)
	}
	if other, taken := c.caches[layer]; taken {
		return at(path, "layer %d of the cache is that of %s", layer, other)
	}
	c.caches[layer] = path
	if missing := layer + 1 - len(c.program.layers); missing > 0 {
		c.program.layers = append(c.program.layers, make([]kvcache.LayerShape, missing)...)
	}
	c.program.layers[layer] = shape
	c.layers = append(c.layers, layer)
	return nil
}

// shared checks that a layer may read the cache of an earlier one, and that it has the same shape.
func (c *compiler) shared(path string, layer int, shape kvcache.LayerShape) error {
	c.together("keys and values that layers share")
	if _, there := c.caches[layer]; !there || c.program.layers[layer] != shape {
		return at(path, "the keys and values of layer %d, which are not there or of another shape", layer)
	}
	if !c.program.Shared(layer) {
		c.program.shared = append(c.program.shared, layer)
	}
	return nil
}

// hostOnly records that the current unit has a part that only the host supports.
func (c *compiler) hostOnly(part string) {
	if c.host == "" {
		c.host = part
	}
}

// together records that the program has a part that requires all units to run on the host.
func (c *compiler) together(part string) {
	if c.program.host == "" {
		c.program.host = part
	}
}

// rope returns the number of the table for a spec's rotary embedding.
func (c *compiler) rope(path string, r *meta.RopeSpec, dim int) (int, error) {
	if r.Dim < 2 || r.Dim%2 != 0 || r.Dim > dim {
		return 0, at(path, "rope over %d of %d dimensions", r.Dim, dim)
	}
	i := slices.IndexFunc(c.program.ropes, func(have *meta.RopeSpec) bool { return have == r || reflect.DeepEqual(have, r) })
	if i < 0 {
		i = len(c.program.ropes)
		c.program.ropes = append(c.program.ropes, r)
	}
	if r.Alpha == "" {
		return i, nil
	}
	return i, c.alpha(path, i, r)
}

// alpha records that the current unit reads the factor of the frequencies of rope i.
func (c *compiler) alpha(path string, i int, r *meta.RopeSpec) error {
	if slices.Contains(c.learned, i) {
		return nil
	}
	n, err := c.child(Node{Module: c.root}, "factors of rope", r.Alpha)
	if err != nil {
		return err
	}
	if c.program.alphas[i], err = c.param(n, "alpha", r.Dim/2); err != nil {
		return err
	}
	c.together("learned frequencies of rope")
	c.learned, c.read = append(c.learned, i), append(c.read, n)
	return nil
}

// finish checks properties of the whole tree.
func (c *compiler) finish() error {
	if len(c.caches) != len(c.program.layers) {
		for i := range c.program.layers {
			if _, ok := c.caches[i]; !ok {
				return fmt.Errorf("nn: layer %d of the KV cache has no attention module", i)
			}
		}
	}
	for i, elements := range c.program.states {
		if elements == 0 {
			return fmt.Errorf("nn: state %d has no module", i)
		}
	}
	return nil
}

// widen records the width of hidden states between units.
func (c *compiler) widen(cols int) { c.program.width = max(c.program.width, cols) }
