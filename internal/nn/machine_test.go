package nn

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A machine runs one tree on the cpu backend, as dispatch does with all weights present.
type machine struct {
	program *Program
	backend *cpu.Backend
	context *Context
	cache   *kvcache.Cache

	lengths []int32
	tokens  []int32
	logits  []int32
	groups  []Group
}

func newMachine(t testing.TB, root *meta.Module, w Weights, l Limits, pages int) *machine {
	t.Helper()
	p, err := Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cpu.New(cpu.Options{Threads: 2, Variant: testenv.Variant()})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{program: p, backend: b}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if m.context, err = p.NewContext(b, w, l); err != nil {
		t.Fatal(err)
	}
	if len(p.KV())+len(p.States()) > 0 {
		config := kvcache.Config{Layers: p.KV(), DType: meta.Float32, Pages: pages, States: p.States(), StateSlots: 64}
		config.Pages += 16 * config.SequencePages(0, 1) // for states
		m.cache, err = kvcache.New(b, config)
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// work is some tokens of one sequence in a pass.
type work struct {
	seq    *kvcache.Sequence
	tokens []int32
	prompt int // length of the prompt these belong to; 0 for generated tokens
	all    bool
}

// pass runs works in one batch and returns the context's logits: of every row where
// all is set, else of the last.
func (m *machine) pass(t testing.TB, trace Trace, works ...work) tensor.Tensor {
	t.Helper()
	m.lengths, m.tokens, m.logits = m.lengths[:0], m.tokens[:0], m.logits[:0]
	var seqs []*kvcache.Sequence
	var spans []backend.Span
	for _, w := range works {
		first, start := len(m.tokens), w.seq.Len()
		if err := w.seq.Reserve(len(w.tokens), len(w.tokens)); err != nil {
			t.Fatal(err)
		}
		w.seq.Append(w.tokens...)
		for i, id := range w.tokens {
			m.tokens = append(m.tokens, id)
			length := w.prompt
			if length == 0 {
				length = start + i + 1
			}
			m.lengths = append(m.lengths, int32(length))
			if w.all || i == len(w.tokens)-1 {
				m.logits = append(m.logits, int32(first+i))
			}
		}
		seqs = append(seqs, w.seq)
		spans = append(spans, backend.Span{First: first, Rows: len(w.tokens), Start: start})
	}
	m.groups = groups(m.cache, seqs, spans)
	m.run(t, &Input{
		Tokens: m.tokens, Groups: m.groups, KV: m.cache.Layers(), States: m.cache.States(), StateSpans: stateSpans(m.cache, seqs, spans),
		Lengths: m.lengths, Logits: m.logits, Trace: trace,
	})
	for _, w := range works {
		w.seq.Commit()
	}
	return m.context.Logits()
}

// groups is what each group of layers knows of spans of seqs, whose pages are reserved.
func groups(c *kvcache.Cache, seqs []*kvcache.Sequence, spans []backend.Span) []Group {
	out := make([]Group, c.Groups())
	for g := range out {
		for i, s := range spans {
			s.Pages = seqs[i].Pages(g)
			slots := make([]int32, s.Rows)
			seqs[i].Slots(g, slots, s.Start)
			out[g].Spans, out[g].Slots = append(out[g].Spans, s), append(out[g].Slots, slots...)
		}
	}
	return out
}

// stateSpans is what layers with states know of spans of seqs, whose tokens are appended.
func stateSpans(c *kvcache.Cache, seqs []*kvcache.Sequence, spans []backend.Span) (out []backend.StateSpan) {
	for i, s := range spans {
		if len(c.States()) > 0 {
			state := seqs[i].State(false)
			state.First = s.First
			out = append(out, state)
		}
	}
	return out
}

func (m *machine) run(t testing.TB, in *Input) {
	t.Helper()
	if err := m.context.Begin(in); err != nil {
		t.Fatal(err)
	}
	for _, u := range m.program.Units {
		if err := u.Run(m.context); err != nil {
			t.Fatal(err)
		}
	}
}

// prompt runs a prompt alone in chunks and returns the logits of its last token.
func (m *machine) prompt(t testing.TB, seq *kvcache.Sequence, tokens []int32, chunk int) []float32 {
	t.Helper()
	var last []float32
	for n := 0; n < len(tokens); n += chunk {
		end := min(n+chunk, len(tokens))
		logits := m.pass(t, nil, work{seq: seq, tokens: tokens[n:end], prompt: len(tokens)})
		last = logits.Row(logits.Rows() - 1)
	}
	return append([]float32(nil), last...)
}

// checkpoint are weights that lie in a mapped checkpoint.
type checkpoint struct {
	parts   map[*meta.Param][]backend.Part
	experts map[*meta.Param][][]backend.Part
	buffers map[*meta.Buffer]tensor.Tensor
	held    []int32
}

var _ Weights = (*checkpoint)(nil)

func (c *checkpoint) Parts(p *meta.Param, expert int) []backend.Part {
	if expert < 0 {
		return c.parts[p]
	}
	if !slices.Contains(c.held, int32(expert)) {
		return nil
	}
	return c.experts[p][expert]
}

func (c *checkpoint) Buffer(b *meta.Buffer) tensor.Tensor { return c.buffers[b] }
func (c *checkpoint) Err() error                          { return nil }
func (c *checkpoint) WantExperts(*meta.Module, []int32)   {}
func (c *checkpoint) HoldExperts(_ *meta.Module, experts []int32) (int, error) {
	c.held = experts
	return len(experts), nil
}

// newCheckpoint binds model to ck.
func newCheckpoint(t testing.TB, ck *loader.Checkpoint, model *meta.Model) *checkpoint {
	t.Helper()
	b, err := loader.Bind(ck, model)
	if err != nil {
		t.Fatal(err)
	}
	c := &checkpoint{parts: map[*meta.Param][]backend.Part{}, experts: map[*meta.Param][][]backend.Part{}, buffers: map[*meta.Buffer]tensor.Tensor{}}
	for _, p := range model.Root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		for _, part := range b.Tensors(p) {
			piece := view(t, part)
			if c.experts[p] == nil && (part.Expert >= 0 || piece.Rank == 3) {
				c.experts[p] = make([][]backend.Part, p.Shape[0])
			}
			switch {
			case part.Expert >= 0:
				c.experts[p][part.Expert] = append(c.experts[p][part.Expert], piece)
			case piece.Rank == 3 && piece.Dims[1] == 1: // a convolution
				c.parts[p] = append(c.parts[p], piece)
			case piece.Rank == 3: // experts, or maps of heads
				if piece.Quant == nil {
					c.parts[p] = append(c.parts[p], piece)
				}
				for e := range p.Shape[0] {
					slab := piece
					if q := piece.Quant; q != nil {
						own := *q
						own.Scales.Data = q.Scales.Data[len(q.Scales.Data)/p.Shape[0]*e:]
						slab.Data, slab.Quant = piece.Data[len(piece.Data)/p.Shape[0]*e:], &own
						slab.Rank, slab.Dims = 2, [tensor.MaxRank]int{piece.Dims[1], piece.Dims[2]}
					} else {
						slab.Tensor = piece.Index(e)
					}
					c.experts[p][e] = append(c.experts[p][e], slab)
				}
			default:
				c.parts[p] = append(c.parts[p], piece)
				if len(p.Shape) == 2 && part.Quant == nil { // perhaps biases of experts
					var rows [][]backend.Part
					for e := range min(p.Shape[0], piece.Dims[0]) {
						rows = append(rows, []backend.Part{{Matrix: backend.Matrix{Tensor: piece.Index(e)}}})
					}
					c.experts[p] = rows
				}
			}
		}
	}
	for _, node := range model.Root.Walk() {
		for _, buffer := range node.Buffers {
			for _, part := range b.BufferTensors(buffer) {
				c.buffers[buffer] = view(t, part).Tensor
			}
		}
	}
	return c
}

func view(t testing.TB, p loader.BoundTensor) backend.Part {
	t.Helper()
	data, err := p.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	shape := append([]int(nil), p.Tensor.Shape...)
	if !p.From.IsAll() {
		shape[0] = p.From.End - p.From.Begin
	}
	if p.Quant != nil {
		return backend.Part{Matrix: quantised(t, p, data), Into: p.Into}
	}
	x, err := tensor.Of(data, p.Tensor.DType, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return backend.Part{Matrix: backend.Matrix{Tensor: x, Transposed: p.Transposed}, Into: p.Into}
}

// quantised is a weight of codes with its companions.
func quantised(t testing.TB, p loader.BoundTensor, codes []byte) backend.Matrix {
	t.Helper()
	shape := p.Quant.Matrix(p.Tensor.Shape)
	q := &backend.Quant{Quant: p.Quant, Width: shape[len(shape)-1]}
	for from, to := range map[*loader.Tensor]*tensor.Tensor{p.Scales: &q.Scales, p.Zeros: &q.Zeros, p.Index: &q.Index, p.Global: &q.Global} {
		if from == nil {
			continue
		}
		data, err := from.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		*to = tensor.Tensor{DType: from.DType, Data: data, Rank: 1, Dims: [tensor.MaxRank]int{int(from.Elements())}}
	}
	x := tensor.Tensor{DType: p.Tensor.DType, Data: codes, Rank: len(shape)}
	copy(x.Dims[:], shape)
	return backend.Matrix{Tensor: x, Transposed: p.Transposed, Quant: q}
}
