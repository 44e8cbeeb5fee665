package nn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// madeUp is an adapter of every linear map of a program that takes one.
func madeUp(root *meta.Module, p *Program, name string, rank int) *lora.Adapter {
	a := &lora.Adapter{}
	for _, r := range p.linears {
		t := lora.Target{Path: r.path, Param: "weight", In: r.in, Out: r.out, Rank: rank, Scale: 0.5, Transposed: r.transposed, Experts: r.experts}
		n := max(t.Experts, 1)
		if t.Experts > 0 {
			at := strings.LastIndexByte(r.path, '.')
			t.Path, t.Param = r.path[:at], r.path[at+1:]
			t.Transposed = root.Find(t.Path).Param(t.Param).Shape[2] != r.in
		}
		a.Pairs = append(a.Pairs, lora.Pair{Target: t,
			A: tensor.Floats(noise(name+r.path+"A", int64(n*rank*r.in), 0.1, 0), n*rank, r.in),
			B: tensor.Floats(noise(name+r.path+"B", int64(n*r.out*rank), 0.1, 0), n*r.out, rank),
		})
	}
	return a
}

// merged are the weights of w with an adapter in them.
func merged(t *testing.T, root *meta.Module, w *random, a *lora.Adapter) *random {
	t.Helper()
	out := newRandom(root)
	for i := range a.Pairs {
		p := &a.Pairs[i]
		v := slices.Clone(w.values[root.Find(p.Path).Param(p.Param).Resolve()])
		if err := p.Add(tensor.Floats(v, len(v)).Data, meta.Float32, 1); err != nil {
			t.Fatal(err)
		}
		out.values[root.Find(p.Path).Param(p.Param).Resolve()] = v
	}
	return out
}

// bound are adapters that a machine's context allows, copied to its memory.
func bound(t *testing.T, m *machine, list ...*lora.Adapter) []*Adapter {
	t.Helper()
	var out []*Adapter
	for _, from := range list {
		a, err := m.program.NewAdapter(m.backend, from)
		if err == nil {
			err = m.context.Allow(a)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// nearReference compares the results of a block for x, with testWidth channels per row, with the reference with
// weights w.
func nearReference(t *testing.T, what string, root *meta.Module, w *random, x tensor.Tensor, got []float32, tolerance float64) {
	t.Helper()
	in := make([][]float64, x.Rows())
	for i := range in {
		in[i] = wide(x.Row(i))
	}
	for i, want := range (reference{w}).block(root, in) {
		for k, v := range want {
			if d := math.Abs(float64(got[i*testWidth+k]) - v); !(d < tolerance*(1+math.Abs(v))) {
				t.Fatalf("%srow %d, channel %d: %v, want %v", what, i, k, got[i*testWidth+k], v)
			}
		}
	}
}

// sameAmongOthers runs rows with adapters in an order, and compares them with what each adapter gives alone.
func sameAmongOthers(t *testing.T, adapters []*Adapter, order []int, rows func(...*Adapter) [][]float32, want [][]float32) {
	t.Helper()
	var list []*Adapter
	for _, k := range order {
		list = append(list, adapters[k])
	}
	for i, got := range rows(list...) {
		sameBits(t, "among others", got, want[order[i]])
	}
}

// TestAdaptersAddToEveryKindOfBlock compares rows with an adapter with merged weights, by
// the reference, and holds law 4: alone, or among rows with others and with none, the bits
// are the same.
func TestAdaptersAddToEveryKindOfBlock(t *testing.T) {
	const n = 7
	x := tensor.Floats(noise("x", n*testWidth, 1, 0), n, testWidth)
	eachBlock(t, func(t *testing.T, _ blockCase, root *meta.Module) {
		w := newRandom(root)
		m := newMachine(t, root, w, Limits{Rows: 4 * n}, 16)
		sources := []*lora.Adapter{madeUp(root, m.program, "first", 3), madeUp(root, m.program, "second", 1)}
		adapters := append(bound(t, m, sources...), nil)
		rows := func(a ...*Adapter) [][]float32 { return runAdapted(t, m, x, a...) }
		want := [][]float32{rows(adapters[0])[0], rows(adapters[1])[0], rows(nil)[0]}
		sameBits(t, "no adapter", want[2], runChunks(t, root, w, x, n))
		for k, from := range sources {
			nearReference(t, fmt.Sprintf("adapter %d, ", k), root, merged(t, root, w, from), x, want[k], 4e-5)
		}
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0, 1}, {1, 2, 1}, {0, 0}} {
			sameAmongOthers(t, adapters, order, rows, want)
		}
	})
}

// runAdapted runs the rows of x once for each adapter, in one pass, and returns the results.
// The sequences' rows lie side by side.
func runAdapted(t *testing.T, m *machine, x tensor.Tensor, list ...*Adapter) [][]float32 {
	t.Helper()
	n := x.Rows()
	var seqs []*kvcache.Sequence
	var spans []backend.Span
	var all []float32
	in := Input{KV: m.cache.Layers()}
	for i, a := range list {
		s := m.cache.NewSequence(uint64(i))
		defer s.Free()
		if err := s.Reserve(n, n); err != nil {
			t.Fatal(err)
		}
		s.Append(make([]int32, n)...)
		seqs, spans = append(seqs, s), append(spans, backend.Span{First: i * n, Rows: n})
		all = append(all, x.F32()[:n*testWidth]...)
		in.Adapters = append(in.Adapters, slices.Repeat([]*Adapter{a}, n)...)
	}
	in.Hidden, in.Groups = tensor.Floats(all, len(list)*n, testWidth), groups(m.cache, seqs, spans)
	m.run(t, &in)
	var out [][]float32
	for i := range list {
		out = append(out, slices.Clone(m.context.Hidden().Slice(i*n, (i+1)*n).F32()[:n*testWidth]))
	}
	return out
}

// TestAdapterOfTheHead: the head computes some rows only, and its adapters follow them;
// rows of one adapter that are not neighbours are gathered.
func TestAdapterOfTheHead(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, plainBlock)
	m := newMachine(t, root, newRandom(root), Limits{Rows: 150, Outputs: 150}, 40)
	all := madeUp(root, m.program, "head", 2)
	head := &lora.Adapter{Pairs: slices.DeleteFunc(all.Pairs, func(p lora.Pair) bool { return strings.HasPrefix(p.Path, "layers") })}
	a := bound(t, m, head)[0]
	run := func(adapters []*Adapter, logits []int32) [][]float32 {
		seq := m.cache.NewSequence(0)
		defer seq.Free()
		tokens := make([]int32, len(adapters))
		for i := range tokens {
			tokens[i] = int32(i % 31)
		}
		if err := seq.Reserve(len(tokens), len(tokens)); err != nil {
			t.Fatal(err)
		}
		seq.Append(tokens...)
		m.run(t, &Input{Tokens: tokens, KV: m.cache.Layers(), Logits: logits, Adapters: adapters,
			Groups: groups(m.cache, []*kvcache.Sequence{seq}, []backend.Span{{Rows: len(tokens)}})})
		var out [][]float32
		for i := range logits {
			out = append(out, slices.Clone(m.context.Logits().Row(i)))
		}
		return out
	}
	mixed := make([]*Adapter, 150)
	var even, every []int32
	for i := range mixed {
		every = append(every, int32(i))
		if i%2 == 0 {
			mixed[i] = a
			even = append(even, int32(i))
		}
	}
	plain, with, some := run(make([]*Adapter, 150), every), run(mixed, every), run(mixed, even)
	for i := range plain {
		if i%2 == 1 {
			sameBits(t, "a row without", with[i], plain[i])
			continue
		}
		sameBits(t, "fewer rows", some[i/2], with[i])
		if slices.Equal(with[i], plain[i]) {
			t.Errorf("row %d: the adapter added nothing", i)
		}
	}
}

// TestAPassWithAdaptersAllocatesNothing holds law 5.
func TestAPassWithAdaptersAllocatesNothing(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{})
	a := bound(t, x.m, madeUp(x.root, x.m.program, "steps", 2))[0]
	x.input.Adapters = []*Adapter{a}
	for range 40 {
		if err := x.step(t, int32(x.seq.Len()%32)); err != nil {
			t.Fatal(err)
		}
	}
	n := testing.AllocsPerRun(40, func() {
		if x.step(t, 3) != nil {
			t.Fatal("failed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a pass", n)
	}
}

// TestAdaptersThatDoNotFit names the module.
func TestAdaptersThatDoNotFit(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, plainBlock)
	m := newMachine(t, root, newRandom(root), Limits{Rows: 4, Outputs: 4}, 4)
	a := madeUp(root, m.program, "x", 2)
	path := a.Pairs[0].Path
	a.Pairs[0].In++
	_, err := m.program.NewAdapter(nil, a)
	wantError(t, err, path)
	a.Pairs[0].Path = "elsewhere"
	_, err = m.program.NewAdapter(nil, a)
	wantError(t, err, "elsewhere")
	other, err := m.program.NewAdapter(nil, madeUp(root, m.program, "x", 2))
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Tokens: []int32{1}, KV: m.cache.Layers(), Groups: []Group{{Spans: []backend.Span{{Rows: 1}}, Slots: []int32{0}}}}
	in.Adapters = []*Adapter{other, other}
	wantError(t, m.context.Begin(&in), "Adapters has 2 rows, want 1")
	in.Adapters = in.Adapters[:1]
	wantError(t, m.context.Begin(&in), "Context.Allow was not called")
}
