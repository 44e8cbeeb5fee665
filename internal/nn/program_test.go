package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func build(t testing.TB, f func(b *meta.Builder)) *meta.Module {
	t.Helper()
	b := meta.NewBuilder("Root", meta.Float32)
	f(b)
	root, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// decoder is a language model of two of the given blocks.
func decoder(t testing.TB, s meta.CausalLMSpec, block func(b *meta.Builder, i int)) *meta.Module {
	return build(t, func(b *meta.Builder) {
		s.Embed, s.Layers, s.Norm, s.Head = "embed", "layers", "norm", "head"
		b.Runs(meta.KindCausalLM, &s)
		b.Embedding("embed", "Embedding", 32, testWidth)
		if s.Positions != "" {
			b.Embedding(s.Positions, "Embedding", 20, testWidth)
		}
		layers := b.Child("layers", "ModuleList")
		for i := range 2 {
			block(layers.Child(fmt.Sprint(i), "Layer"), i)
		}
		rmsNorm(b, "norm", testWidth, 1e-5, 0)
		b.Linear("head", testWidth, 32, false)
	})
}

func plainBlock(b *meta.Builder, i int) {
	separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer = i })
	if i == 0 {
		gated(b, "mlp")
	} else {
		experts(b, meta.MoESpec{Count: 4, TopK: 2, Act: meta.ActSiLU}, false)
	}
}

func TestUnitsNameTheirModules(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{Positions: "positions"}, plainBlock)
	p, err := Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range p.Units {
		line := u.Path + ":"
		for _, n := range u.Modules {
			if root.Find(n.Path) != n.Module {
				t.Errorf("unit %s: %s is another module", u.Path, n.Path)
			}
			line += " " + n.Path
		}
		for _, n := range u.Experts {
			line += " (" + n.Path + ")"
		}
		got = append(got, line)
	}
	want := []string{
		"embed: embed positions", "layers.0: layers.0", "layers.1: layers.1 (layers.1.mlp.experts)", "norm: norm head",
	}
	if !slices.Equal(got, want) {
		t.Errorf("units %q, want %q", got, want)
	}
	if want := []kvcache.LayerShape{{KWidth: 12, VWidth: 12, Heads: 2}, {KWidth: 12, VWidth: 12, Heads: 2}}; !slices.Equal(p.KV(), want) {
		t.Errorf("KV %v, want %v", p.KV(), want)
	}
	if p.Vocab() != 32 {
		t.Errorf("vocabulary of %d", p.Vocab())
	}
}

// TestCompileErrors breaks one thing in a good decoder each.
func TestCompileErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(root *meta.Module)
		want string
	}{
		{"no embedding", func(m *meta.Module) { m.Spec.(*meta.CausalLMSpec).Embed = "" }, "nn: the root: the spec names no embedding"},
		{"embedding elsewhere", func(m *meta.Module) { m.Spec.(*meta.CausalLMSpec).Embed = "a.b" }, `no child "a.b"`},
		{"no spec", func(m *meta.Module) { m.Spec = nil }, "spec of type <nil>"},
		{"nil spec", func(m *meta.Module) { m.Child("norm").Spec = (*meta.NormSpec)(nil) }, "nn: norm: spec of type"},
		{"norms for other heads", func(m *meta.Module) { m.Child("norm").Spec.(*meta.NormSpec).Heads = 3 }, "weights for 3 heads"},
		{"norms of heads that are not there", func(m *meta.Module) {
			s := m.Child("norm").Spec.(*meta.NormSpec)
			s.Dim, s.Heads, s.Each = 6, 4, "norms"
		}, `nn: norm: no child "norms"`},
		{"head narrower", func(m *meta.Module) { m.Child("head").Spec.(*meta.LinearSpec).In = 8 }, "nn: head: a linear map of 8 columns on 24"},
		{"misshapen weight", func(m *meta.Module) { m.Child("head").Params[0].Shape = []int{24, 32} }, "nn: head.weight: parameter of shape [24 32], wanted [32 24]"},
		{"no weight", func(m *meta.Module) { m.Child("head").Params = nil }, `nn: head: no parameter "weight"`},
		{"another kind of layer", func(m *meta.Module) { m.Find("layers.1").Kind = meta.KindMLP }, "nn: layers.1: a module of kind mlp where one of kind block is wanted"},
		{"container as mlp", func(m *meta.Module) { m.Find("layers.0.mlp").Kind = meta.KindNone }, "nn: layers.0.mlp: a MLP of kind none is not supported here"},
		{"same layer of the cache", func(m *meta.Module) { m.Find("layers.1.attn").Spec.(*meta.AttentionSpec).Layer = 0 }, "layer 0 of the cache is that of layers.0.attn"},
		{"layer of the cache left out", func(m *meta.Module) { m.Find("layers.1.attn").Spec.(*meta.AttentionSpec).Layer = 2 }, "layer 1 of the KV cache has no attention"},
		{"layer far out", func(m *meta.Module) { m.Find("layers.1.attn").Spec.(*meta.AttentionSpec).Layer = 1 << 40 }, "layer 1099511627776 of the cache"},
		{"heads that do not divide", func(m *meta.Module) { m.Find("layers.0.attn").Spec.(*meta.AttentionSpec).KVHeads = 3 }, "4 heads over 3"},
		{"rope wider than a head", func(m *meta.Module) { m.Find("layers.0.attn").Spec.(*meta.AttentionSpec).Rope.Dim = 8 }, "rope over 8 of 6"},
		{"sinks that are not there", func(m *meta.Module) { m.Find("layers.0.attn").Spec.(*meta.AttentionSpec).Sinks = "sinks" }, `layers.0.attn: no parameter "sinks"`},
		{"latent attention without sizes", func(m *meta.Module) {
			m.Find("layers.0.attn").Spec.(*meta.AttentionSpec).MLA = &meta.MLASpec{}
		}, "nn: layers.0.attn: latent attention"},
		{"narrow keys", func(m *meta.Module) { m.Find("layers.0.attn.k").Spec.(*meta.LinearSpec).Out = 6 }, "layers.0.attn.k.weight: parameter of shape"},
		{"parallel block with post norms", func(m *meta.Module) {
			s := m.Find("layers.0").Spec.(*meta.BlockSpec)
			s.Parallel, s.PostMLPNorm = true, "n1"
		}, "norms after the branches of a parallel block"},
		{"too many chosen", func(m *meta.Module) { m.Find("layers.1.mlp").Spec.(*meta.MoESpec).TopK = 5 }, "5 of 4 experts"},
		{"groups that do not divide", func(m *meta.Module) { m.Find("layers.1.mlp").Spec.(*meta.MoESpec).Groups = 3 }, "of 3 groups"},
		{"no correction", func(m *meta.Module) { m.Find("layers.1.mlp").Spec.(*meta.MoESpec).Correction = "bias" }, `layers.1.mlp.router: no parameter "bias"`},
		{"experts of another count", func(m *meta.Module) { m.Find("layers.1.mlp.experts").Param("down").Shape[0] = 3 }, "layers.1.mlp.experts.down: parameter of shape"},
		{"experts without gates", func(m *meta.Module) { m.Find("layers.1.mlp").Spec.(*meta.MoESpec).GateUp = "x" }, `no parameter "x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := decoder(t, meta.CausalLMSpec{}, plainBlock)
			test.edit(root)
			_, err := Compile(root)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "nn: ") {
				t.Fatalf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := Compile(nil); err == nil {
		t.Error("no error for no module")
	}
}

// steps runs a decoder's machine for passes of single tokens.
type steps struct {
	root   *meta.Module
	m      *machine
	w      *random
	seq    *kvcache.Sequence
	input  Input
	tokens [1]int32
	slot   [1]int32
	span   [1]backend.Span
}

func newSteps(t testing.TB, s meta.CausalLMSpec) *steps {
	root := decoder(t, s, plainBlock)
	w := newRandom(root)
	m := newMachine(t, root, w, Limits{Rows: 8, Outputs: 8}, 8)
	x := &steps{root: root, m: m, w: w, seq: m.cache.NewSequence(0)}
	x.input = Input{Tokens: x.tokens[:], Groups: []Group{{Spans: x.span[:], Slots: x.slot[:]}}, KV: m.cache.Layers(), Logits: []int32{0}}
	return x
}

func (x *steps) step(t testing.TB, token int32) error {
	if err := x.seq.Reserve(1, 1); err != nil {
		t.Fatal(err)
	}
	at := x.seq.Len()
	x.seq.Append(token)
	x.tokens[0] = token
	x.seq.Slots(0, x.slot[:], at)
	x.span[0] = backend.Span{Rows: 1, Start: at, Pages: x.seq.Pages(0)}
	if err := x.m.context.Begin(&x.input); err != nil {
		return err
	}
	for _, u := range x.m.program.Units {
		if err := u.Run(x.m.context); err != nil {
			return err
		}
	}
	x.seq.Commit()
	return nil
}

func TestAPassAllocatesNothing(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{LogitSoftcap: 30})
	for range 40 { // experts and pages seen
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

func TestScalesAndSoftcapOfLogits(t *testing.T) {
	logits := func(s meta.CausalLMSpec) []float32 {
		x := newSteps(t, s)
		if err := x.step(t, 5); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(x.m.context.Logits().Row(0))
	}
	plain, scaled, capped := logits(meta.CausalLMSpec{}), logits(meta.CausalLMSpec{LogitScale: 0.5}), logits(meta.CausalLMSpec{LogitSoftcap: 3})
	for i, v := range plain {
		if scaled[i] != v/2 {
			t.Errorf("scaled logit %d = %v, want %v", i, scaled[i], v/2)
		}
		if want := 3 * math.Tanh(float64(v)/3); !(math.Abs(float64(capped[i])-want) <= 1e-6) {
			t.Errorf("capped logit %d = %v, want %v", i, capped[i], want)
		}
	}
	if slices.Equal(plain, logits(meta.CausalLMSpec{EmbedScale: 3})) {
		t.Error("the embedding scale does nothing")
	}
}

func TestRunErrorsNameTheirPlace(t *testing.T) {
	t.Run("token outside the vocabulary", func(t *testing.T) {
		x := newSteps(t, meta.CausalLMSpec{})
		wantError(t, x.step(t, 32), "nn: embed: token 32 in row 0; the table has 32")
		x.seq.Truncate(0)
		if err := x.step(t, 31); err != nil {
			t.Errorf("the pass after: %v", err)
		}
	})
	t.Run("position outside the table", func(t *testing.T) {
		x := newSteps(t, meta.CausalLMSpec{Positions: "positions"})
		for range 20 {
			if err := x.step(t, 1); err != nil {
				t.Fatal(err)
			}
		}
		wantError(t, x.step(t, 1), "nn: positions: position 20 in row 0; the table has 20")
	})
	t.Run("weights that were not brought", func(t *testing.T) {
		x := newSteps(t, meta.CausalLMSpec{})
		x.w.missing = x.m.program.Units[1].Modules[0].Module.Find("mlp.up").Params[0]
		wantError(t, x.step(t, 1), "nn: layers.0.mlp.up.weight: its values are not loaded")
	})
	t.Run("an expert that cannot be read", func(t *testing.T) {
		x := newSteps(t, meta.CausalLMSpec{})
		lost := errors.New("disk lost")
		x.w.fail = func(int) error { return lost }
		err := x.step(t, 1)
		wantError(t, err, "nn: layers.1.mlp.experts: expert ")
		if !errors.Is(err, lost) {
			t.Errorf("%v does not wrap the cause", err)
		}
	})
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want %q", err, want)
	}
}

// TestExpertsAreAnnouncedAndHeldOnce: the prefetched experts are the ones that are held next.
func TestExpertsAreAnnouncedAndHeldOnce(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{})
	for token := range int32(8) {
		var held []int32
		x.w.fail = func(e int) error { held = append(held, int32(e)); return nil }
		if err := x.step(t, token); err != nil {
			t.Fatal(err)
		}
		slices.Sort(held)
		if len(held) != 2 || !slices.IsSorted(x.w.want) || !slices.Equal(held, x.w.want) {
			t.Errorf("held %v after announcing %v", held, x.w.want)
		}
	}
}

// TestTheOrderOfArrivalChangesNoBit: experts that are loaded compute while others are on their way,
// and the sum has the fixed order of their numbers.
func TestTheOrderOfArrivalChangesNoBit(t *testing.T) {
	var want []float32
	for seed := range uint64(12) {
		x := newSteps(t, meta.CausalLMSpec{})
		x.w.together = seed == 0
		x.w.arrival = rand.New(rand.NewPCG(seed, 1))
		var got []float32
		for token := range int32(6) {
			if err := x.step(t, token); err != nil {
				t.Fatal(err)
			}
			got = append(got, x.m.context.Logits().Row(0)...)
		}
		if want == nil {
			want = got
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("order %d: logit %d is %v, want %v as with all experts at once", seed, i, got[i], want[i])
			}
		}
	}
}

func TestBeginRefusesBadInput(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{})
	if err := x.step(t, 1); err != nil {
		t.Fatal(err)
	}
	good := x.input
	for name, edit := range map[string]func(in *Input){
		"no rows":           func(in *Input) { in.Tokens = nil },
		"too many rows":     func(in *Input) { in.Tokens = make([]int32, 9) },
		"slots":             func(in *Input) { in.Groups[0].Slots = nil },
		"caches":            func(in *Input) { in.KV = in.KV[:1] },
		"spans":             func(in *Input) { in.Groups[0].Spans = nil },
		"span from row 1":   func(in *Input) { in.Groups[0].Spans = []backend.Span{{First: 1, Rows: 1}} },
		"short spans":       func(in *Input) { in.Tokens, in.Groups[0].Slots = make([]int32, 2), make([]int32, 2) },
		"negative position": func(in *Input) { in.Groups[0].Spans = []backend.Span{{Rows: 1, Start: -1}} },
		"no groups":         func(in *Input) { in.Groups = nil },
		"groups that differ": func(in *Input) {
			in.Groups = append(in.Groups, Group{Spans: []backend.Span{{Rows: 1, Start: 7}}, Slots: in.Groups[0].Slots})
		},
		"row of logits":  func(in *Input) { in.Logits = []int32{1} },
		"rows of logits": func(in *Input) { in.Logits = make([]int32, 9) },
		"empty sum":      func(in *Input) { in.Sums = []Sum{{}} },
		"sum of more":    func(in *Input) { in.Sums = []Sum{{RowRange: meta.RowRange{End: 2}}} },
		"sum from less":  func(in *Input) { in.Sums = []Sum{{RowRange: meta.RowRange{End: 1}, From: make([]float32, 3)}} },
		"sums":           func(in *Input) { in.Normed, in.Sums = make([]int32, 8), []Sum{{RowRange: meta.RowRange{End: 1}}} },
		"lengths":        func(in *Input) { in.Lengths = []int32{1, 2} },
		"hidden states":  func(in *Input) { in.Hidden = tensor.Floats(make([]float32, 25), 1, 25) },
	} {
		in := good
		in.Groups = slices.Clone(good.Groups)
		edit(&in)
		if err := x.m.context.Begin(&in); err == nil || !strings.HasPrefix(err.Error(), "nn: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := x.m.program.NewContext(x.m.backend, x.w, Limits{}); err == nil {
		t.Error("a context for no rows")
	}
}

// TestHiddenStatesAfterTheNormAreTheHeadsInput requests hidden states and logits of the same rows.
func TestHiddenStatesAfterTheNormAreTheHeadsInput(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{})
	x.input.Normed = []int32{0, 0}
	seen := &hiddenTrace{}
	x.input.Trace = seen
	if err := x.step(t, 7); err != nil {
		t.Fatal(err)
	}
	c := x.m.context
	if n := c.Normed(); n.Rows() != 2 {
		t.Fatalf("%d rows, want 2", n.Rows())
	}
	sameBits(t, "second row", c.Normed().Row(1), seen.norm[0])
	head := x.w.values[x.m.program.Units[3].Modules[1].Module.Params[0]]
	want := times(rows{wide(c.Normed().Row(0))}, wide(head), nil, false)[0]
	for i, v := range c.Logits().Row(0) {
		if !(math.Abs(float64(v)-want[i]) <= 1e-4) {
			t.Errorf("logit %d = %v, want %v", i, v, want[i])
		}
	}
}

// TestAUsersOwnTree runs a small classifier layer by layer.
func TestAUsersOwnTree(t *testing.T) {
	root := build(t, func(b *meta.Builder) {
		b.Runs(meta.KindSequential, nil)
		b.Linear("0", 6, 40, true)
		b.Child("1", "GELU").Runs(meta.KindActivation, &meta.ActivationSpec{Act: meta.ActGELU})
		b.Dropout("2")
		inner := b.Child("3", "Sequential").Runs(meta.KindSequential, nil)
		inner.LayerNorm("0", 40, 1e-5, true)
		inner.Linear("1", 40, 12, false)
		inner.Child("2", "ReLU").Runs(meta.KindActivation, &meta.ActivationSpec{Act: meta.ActReLU})
		b.Linear("4", 12, 3, true)
	})
	w := newRandom(root)
	m := newMachine(t, root, w, Limits{Rows: 5}, 0)
	if len(m.program.Units) != 5 || m.program.Units[3].Path != "3" {
		t.Fatalf("%d units", len(m.program.Units))
	}
	x := noise("x", 5*6, 1, 0)
	m.run(t, &Input{Hidden: tensor.Floats(x, 5, 6)})
	r := reference{w}
	for i := range 5 {
		h := r.linear(root.Find("0"), rows{wide(x[6*i : 6*i+6])})
		h = r.linear(root.Find("3.1"), r.norm(root.Find("3.0"), rows{act(meta.ActGELU, h[0], nil, 0, 0)}))
		want := r.linear(root.Find("4"), rows{act(meta.ActReLU, h[0], nil, 0, 0)})[0]
		for k, v := range m.context.Hidden().Row(i) {
			if !(math.Abs(float64(v)-want[k]) <= 1e-5) {
				t.Errorf("row %d, output %d: %v, want %v", i, k, v, want[k])
			}
		}
	}
}

// TestATreeThatBeginsWithTokens embeds, then maps.
func TestATreeThatBeginsWithTokens(t *testing.T) {
	root := build(t, func(b *meta.Builder) {
		b.Runs(meta.KindSequential, nil)
		b.Embedding("0", "Embedding", 9, 4)
		b.Linear("1", 4, 7, false)
	})
	w := newRandom(root)
	m := newMachine(t, root, w, Limits{Rows: 3}, 0)
	m.run(t, &Input{Tokens: []int32{8, 0, 8}})
	table := w.values[root.Find("0").Params[0]]
	want := reference{w}.linear(root.Find("1"), rows{wide(table[32:36])})[0]
	h := m.context.Hidden()
	sameBits(t, "the same token", h.Row(2), slices.Clone(h.Row(0)))
	for k, v := range h.Row(0) {
		if !(math.Abs(float64(v)-want[k]) <= 1e-6) {
			t.Errorf("output %d: %v, want %v", k, v, want[k])
		}
	}
}

func TestASingleModuleIsAProgram(t *testing.T) {
	root := build(t, func(b *meta.Builder) {
		gated(b, "mlp")
	}).Child("mlp")
	m := newMachine(t, root, newRandom(root), Limits{Rows: 2}, 0)
	m.run(t, &Input{Hidden: tensor.Floats(noise("x", 2*testWidth, 1, 0), 2, testWidth)})
	if h := m.context.Hidden(); h.Cols() != testWidth || h.Rows() != 2 {
		t.Errorf("hidden state of shape %v", h.Shape())
	}
	if _, err := Compile(build(t, func(b *meta.Builder) { b.Child("x", "Y") })); err == nil {
		t.Error("a container compiled")
	}
}

// TestAPassContinuesInAnotherContext hands the hidden states over, as between devices.
func TestAPassContinuesInAnotherContext(t *testing.T) {
	x := newSteps(t, meta.CausalLMSpec{})
	if err := x.step(t, 9); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(x.m.context.Logits().Row(0))
	other, err := x.m.program.NewContext(x.m.backend, x.w, Limits{Rows: 1, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	first, units := x.m.context, x.m.program.Units
	if err := errors.Join(first.Begin(&x.input), units[0].Run(first), units[1].Run(first)); err != nil {
		t.Fatal(err)
	}
	in := x.input
	in.Tokens, in.Hidden = nil, first.Hidden()
	if err := errors.Join(other.Begin(&in), units[2].Run(other), units[3].Run(other)); err != nil {
		t.Fatal(err)
	}
	sameBits(t, "logits", other.Logits().Row(0), want)
}

// TestTiedHeadAsksForTheEmbedding: weights are asked for under the first name only.
func TestTiedHeadAsksForTheEmbedding(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, plainBlock)
	root.Child("head").Params[0].SameAs = root.Child("embed").Params[0]
	w := newRandom(root)
	m := newMachine(t, root, w, Limits{Rows: 1, Outputs: 1}, 2)
	seq := m.cache.NewSequence(0)
	m.prompt(t, seq, []int32{3}, 1)
	for key := range w.served {
		if key.p.SameAs != nil {
			t.Error("Parts was asked for a tied parameter")
		}
	}
}
