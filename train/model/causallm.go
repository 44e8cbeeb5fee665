package model

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Batch is sequences of one length. Shorter ones are padded at the end with any id and
// the label tensor.IgnoreIndex.
type Batch struct {
	// IDs are Length token ids for each sequence, one sequence after another.
	IDs []int
	// Labels is one for each id, not shifted: the loss compares what is said at a place
	// with the label of the next. nil stands for IDs.
	Labels []int
	Length int
}

// Options of [Model.Loss].
type Options struct {
	tensor.CrossEntropyOptions
	// Recompute keeps only the input of each block and computes it again in Backward,
	// with the same bits.
	Recompute bool
}

// Logits are those of every place, [batch length vocabulary]. Errors stick to the tape.
func (m *Model) Logits(tp *tensor.Tape, b Batch) (*tensor.Tensor, error) {
	var failed error
	logits := tp.Within(func() *tensor.Tensor {
		p, x, err := m.hidden(tp, b, false)
		if failed = err; err != nil {
			return nil
		}
		return p.logits(x)
	})
	if failed != nil {
		return nil, failed
	}
	return logits, tp.Err()
}

// Loss is that of predicting each label from the tokens before it, plus the routers'
// loss where the model has one (see SetAuxiliary). The logits of the whole batch are
// never held, except where the model caps them or the reduction is tensor.None.
func (m *Model) Loss(tp *tensor.Tape, b Batch, o Options) (*tensor.Tensor, error) {
	var failed error
	loss := tp.Within(func() *tensor.Tensor {
		var loss *tensor.Tensor
		loss, failed = m.loss(tp, b, o)
		return loss
	})
	if failed != nil {
		return nil, failed
	}
	return loss, tp.Err()
}

func (m *Model) loss(tp *tensor.Tape, b Batch, o Options) (*tensor.Tensor, error) {
	p, x, err := m.hidden(tp, b, o.Recompute)
	if err != nil {
		return nil, err
	}
	labels := b.Labels
	if labels == nil {
		labels = b.IDs
	}
	labels = tensor.ShiftLabels(labels, b.Length, o.CrossEntropyOptions)
	loss := p.loss(x, labels, o.CrossEntropyOptions)
	if m.auxiliary != 0 && len(p.routers) > 0 {
		if k := m.topK(); k > 0 {
			loss = p.Add(loss, p.Scale(p.RouterLoss(p.Concat(0, p.routers...), k), m.auxiliary))
		}
	}
	return loss, nil
}

// topK is how many experts a token has.
func (m *Model) topK() int {
	for _, node := range m.meta.Root.Walk() {
		if s, ok := node.Spec.(*meta.MoESpec); ok {
			return s.TopK
		}
	}
	return 0
}

// hidden runs the decoder up to its last norm.
func (m *Model) hidden(tp *tensor.Tape, b Batch, recompute bool) (*pass, *tensor.Tensor, error) {
	switch {
	case b.Length < 1 || len(b.IDs)%b.Length != 0 || b.Labels != nil && len(b.Labels) != len(b.IDs):
		return nil, nil, fmt.Errorf("model: %d ids and %d labels are no sequences of %d", len(b.IDs), len(b.Labels), b.Length)
	case b.Length > m.spec.Context:
		return nil, nil, fmt.Errorf("model: sequences of %d tokens, the model takes %d", b.Length, m.spec.Context)
	}
	p := &pass{Tape: tp, m: m, batch: len(b.IDs) / b.Length, length: b.Length}
	root := m.meta.Root
	x := p.embed(root, b.IDs)
	layers := root.Find(m.spec.Layers)
	if layers == nil {
		return nil, nil, fmt.Errorf("model: the tree has no %s", m.spec.Layers)
	}
	for _, layer := range layers.Resolve().Children {
		x = p.layer(layers, layer.Name, x, recompute)
	}
	return p, p.run(root, m.spec.Norm, x), tp.Err()
}

func (p *pass) embed(root *meta.Module, ids []int) *tensor.Tensor {
	spec := p.m.spec
	table := func(path string) *tensor.Tensor {
		if node := root.Find(path); node != nil {
			return p.use(node.Resolve(), "weight")
		}
		return nil
	}
	x := p.Embedding(table(spec.Embed), ids, p.batch, p.length)
	if spec.EmbedScale != 0 {
		x = p.Scale(x, spec.EmbedScale)
	}
	if spec.Positions != "" {
		places := make([]int, p.length)
		for i := range places {
			places[i] = i
		}
		x = p.Add(x, p.Embedding(table(spec.Positions), places))
	}
	return x
}

// layer runs a block, keeping what its backward needs or only its input. A block with
// routers is kept: their logits are wanted outside.
func (p *pass) layer(layers *meta.Module, name string, x *tensor.Tensor, recompute bool) *tensor.Tensor {
	if !recompute || p.m.auxiliary != 0 {
		return p.run(layers, name, x)
	}
	return p.Checkpoint(func(tp *tensor.Tape, in []*tensor.Tensor) *tensor.Tensor {
		inner := &pass{Tape: tp, m: p.m, batch: p.batch, length: p.length}
		return inner.run(layers, name, in[0])
	}, nil, x)
}

func (p *pass) logits(x *tensor.Tensor) *tensor.Tensor {
	spec := p.m.spec
	y := p.run(p.m.meta.Root, spec.Head, x)
	if spec.LogitScale != 0 {
		y = p.Scale(y, spec.LogitScale)
	}
	if spec.LogitSoftcap != 0 {
		y = p.Scale(p.Tanh(p.Scale(y, 1/spec.LogitSoftcap)), spec.LogitSoftcap)
	}
	return y
}

// loss is fused with the head where the head is a plain product.
func (p *pass) loss(x *tensor.Tensor, labels []int, o tensor.CrossEntropyOptions) *tensor.Tensor {
	spec := p.m.spec
	head := p.m.meta.Root.Find(spec.Head)
	plain := head != nil && spec.LogitSoftcap == 0 && (o.Reduction != tensor.None || o.Items > 0)
	if plain {
		s, ok := head.Resolve().Spec.(*meta.LinearSpec)
		plain = ok && !s.Transposed && head.Param("bias") == nil
	}
	if !plain {
		return p.CrossEntropy(p.logits(x), slices.Clone(labels), o)
	}
	if spec.LogitScale != 0 {
		x = p.Scale(x, spec.LogitScale)
	}
	return p.LinearCrossEntropy(x, p.use(head.Resolve(), "weight"), labels, o)
}
