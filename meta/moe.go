package meta

import (
	"slices"
	"strings"
)

// experts reads the number of experts and the number of experts per token.
func (f *fields) experts(count string, defCount int, topK string, defTopK int) *MoESpec {
	m := &MoESpec{
		Count:  f.count(count, defCount, 1, maxExperts),
		TopK:   f.count(topK, defTopK, 1, maxExperts),
		GateUp: "gate_up_proj",
		Down:   "down_proj",
	}
	if m.TopK > m.Count {
		f.fail(topK, "%d of %d experts", m.TopK, m.Count)
	}
	return m
}

// expertNames are the names of one expert's projections in checkpoints, as in
// each[k].N.gate.weight for expert N. each has one entry per published form.
type expertNames struct {
	class          string
	gate, up, down string
	each           []string
}

// stackedExperts adds the child that holds all experts: gate and up in one tensor [E, 2·inner,
// hidden], down in another [E, hidden, inner]. A file has a tensor for each expert and
// projection, or the stacked tensors themselves.
func (b *Builder) stackedExperts(spec *MoESpec, names expertNames, hidden, inner int, act activation) {
	e := b
	if spec.Experts != "" {
		e = b.Child(spec.Experts[strings.LastIndexByte(spec.Experts, '.')+1:], names.class)
		e.experts = spec
	}
	count := spec.Count
	var gateUp, down [][]TensorSource
	for _, at := range names.each {
		at += ".{}."
		gateUp = append(gateUp, []TensorSource{
			{Tensor: at + names.gate + ".weight", Stack: count, Into: RowRange{0, inner}},
			{Tensor: at + names.up + ".weight", Stack: count, Into: RowRange{inner, 2 * inner}},
		})
		down = append(down, []TensorSource{{Tensor: at + names.down + ".weight", Stack: count}})
	}
	for _, at := range names.each { // gate and up fused, as in some GGUF files
		gateUp = append(gateUp, []TensorSource{{Tensor: at + ".{}." + spec.GateUp + ".weight", Stack: count}})
	}
	upShape, downShape := []int{count, 2 * inner, hidden}, []int{count, hidden, inner}
	published := e.turned(spec.GateUp, upShape) || e.turned(spec.Down, downShape)
	gateUp = append(gateUp, e.stacked(spec.GateUp, published))
	down = append(down, e.stacked(spec.Down, published))
	e.ParamFrom(spec.GateUp, upShape, gateUp[0], gateUp[1:]...)
	e.ParamFrom(spec.Down, downShape, down[0], down[1:]...)
	if act.class != "" {
		e.Activation("act_fn", act.class, act.act)
	}
}

// turned reports whether a file can only have the stack with transposed matrices, by the shape in
// the header. For square matrices it returns false.
func (b *Builder) turned(name string, shape []int) bool {
	if b.tree.header == nil {
		return false
	}
	for _, rename := range b.tree.renames {
		if got, _, ok := b.tree.header.Tensor(rename.Apply(Join(b.path, name))); ok {
			return len(got) == 3 && !slices.Equal(got, shape) && got[1] == shape[2] && got[2] == shape[1]
		}
	}
	return false
}

// stacked returns the source of a stack under its own name. Qwen3-VL is published with both
// matrices transposed; transformers 5 saves it as in memory.
func (b *Builder) stacked(name string, transposed bool) []TensorSource {
	return []TensorSource{{Tensor: Join(b.path, name), Transposed: transposed}}
}

// eachExpert returns the sources of a stack for a file that has the matrices of each expert, as
// GGUF files do. Each expert has the tensors names, with the given number of rows each, one after
// another.
func (b *Builder) eachExpert(count, rows int, names ...string) (sources []TensorSource) {
	for i, name := range names {
		s := TensorSource{Tensor: b.path + ".{}." + name + ".weight", Stack: count}
		if len(names) > 1 {
			s.Into = RowRange{i * rows, (i + 1) * rows}
		}
		sources = append(sources, s)
	}
	return sources
}
