package model

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// window is how a test trains an adapter: several batches a step.
type window struct {
	batches   int
	dropout   bool
	reduction tensor.Reduction
	together  bool
	autocast  tensor.Precision
}

// uneven returns batches of several lengths, with padding and labels that do not count.
func (w window) uneven(vocab int) (all []Batch) {
	for i := range w.batches {
		n := 5 + 3*i%7
		b := Batch{Length: n}
		for k := range 2 * n {
			b.IDs = append(b.IDs, (3+k*k+7*i)%min(vocab, 29))
			b.Mask = append(b.Mask, k < 2*n-i%3)
			b.Labels = append(b.Labels, b.IDs[k])
			if k < 2 {
				b.Labels[k] = tensor.IgnoreIndex
			}
		}
		all = append(all, b)
	}
	return all
}

// options returns those of each batch.
func (w window) options(entropies [][]float32, random *rng.Generator) []Options {
	options := make([]Options, len(entropies))
	for i := range options {
		weight := float32(i) / 8
		options[i] = Options{CrossEntropyOptions: tensor.CrossEntropyOptions{Reduction: w.reduction}, Auxiliary: &weight, Entropies: &entropies[i],
			Noise: &Noise{Alpha: 5, Uniform: random.Uniform}}
		if w.dropout {
			options[i].Dropout = random
		}
	}
	return options
}

// learn trains the adapter of m for two steps, the second one of a batch less, and returns all losses, gradients, pairs and the
// next random number.
func (w window) learn(t *testing.T, m *Model) []byte {
	t.Helper()
	var params []optim.Param
	for _, p := range m.Parameters() {
		if p.Trainable {
			params = append(params, p)
		}
	}
	opt, err := optim.NewAdamW(params, optim.AdamOptions{LR: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tp, random := tensor.NewTape(tensor.Options{Autocast: w.autocast}), rng.New(11)
	backward := func(l *tensor.Tensor, i int) {
		fmt.Fprintf(&out, "%x ", l.Data())
		grad := make([]float32, l.Len())
		for k := range grad {
			grad[k] = 0.25 + float32((i+k)%3)
		}
		if err := tp.BackwardFrom(l, grad); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 2 {
		batches := w.uneven(m.spec.Vocab)
		batches = batches[:max(len(batches)-step, 1)]
		entropies := make([][]float32, len(batches))
		options := w.options(entropies, random)
		for len(batches) > 0 {
			n := 1
			if w.together {
				n = len(batches)
			}
			losses, err := m.Losses(tp, batches[:n], options[:n])
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range losses {
				backward(l, len(entropies)-len(batches)+i)
			}
			batches, options = batches[n:], options[n:]
		}
		fmt.Fprintf(&out, "%x\n", entropies)
		for name, p := range m.Parameters() {
			fmt.Fprintf(&out, "%s %x\n", name, p.Grad())
		}
		if err := opt.Step(); err != nil {
			t.Fatal(err)
		}
		opt.ZeroGrad()
	}
	all := maps.Collect(m.Parameters())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s %x\n", name, all[name].Data())
	}
	fmt.Fprintln(&out, random.Float32())
	return out.Bytes()
}

// TestLossesOfSeveralBatchesLearnTheSameAdapter trains adapters of every architecture on a base that streams, batch by batch and
// together, with states between units in memory and on the disk.
func TestLossesOfSeveralBatchesLearnTheSameAdapter(t *testing.T) {
	seen, swept := 0, 0
	for g := range golden.Models(t) {
		if seen++; testing.Short() && seen%4 != 1 {
			continue
		}
		t.Run(g.Name(), func(t *testing.T) {
			limit := baseBytes(adapted(t, g.Dir())) / 3
			if m := adapted(t, g.Dir(), MaxMemory(limit)); m.Sweeps() {
				swept++
			}
			for _, w := range []window{{batches: 1}, {batches: 3}, {batches: 5, reduction: tensor.None}} {
				want := w.learn(t, adapted(t, g.Dir(), MaxMemory(limit)))
				w.together = true
				if !bytes.Equal(w.learn(t, adapted(t, g.Dir(), MaxMemory(limit))), want) {
					t.Errorf("%+v: another adapter", w)
				}
				if !bytes.Equal(w.learn(t, adapted(t, g.Dir(), MaxMemory(limit), Activations(1, t.TempDir()))), want) {
					t.Errorf("%+v, states on the disk: another adapter", w)
				}
			}
		})
	}
	if swept == 0 {
		t.Error("no model has swept")
	}
	t.Logf("%d of %d models sweep", swept, seen)
}

// dropping returns a model whose adapter drops inputs, on a base that streams.
func dropping(t *testing.T) *Model {
	t.Helper()
	dir := ownModel(t, "qwen3-moe")
	m, err := openFile(t, dir, dir, Freeze(func(string) bool { return true }), MaxMemory(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.AddLoRA(LoRAConfig{R: 3, Dropout: 0.4, Pattern: ".*_proj"}, rng.New(5)); err != nil {
		t.Fatal(err)
	}
	spread(m)
	return m
}

// TestDropoutIsThatOfOneBatchAfterAnother: batches that go through each unit together drop the inputs that they drop one after another.
func TestDropoutIsThatOfOneBatchAfterAnother(t *testing.T) {
	warm := func(m *Model) *Model {
		window{batches: 1, dropout: true}.learn(t, m)
		return m
	}
	w := window{batches: 8, dropout: true}
	want := w.learn(t, warm(dropping(t)))
	m := dropping(t)
	if m.Sweeps() {
		t.Error("a model sweeps before a batch has shown how much it draws")
	}
	if warm(m); !m.Sweeps() {
		t.Fatal("the model does not sweep")
	}
	w.together = true
	if !bytes.Equal(w.learn(t, m), want) {
		t.Error("another adapter")
	}
}

// TestLossesReadEachWeightTwice: the batches of a window share the reads of their weights, forwards and backwards.
func TestLossesReadEachWeightTwice(t *testing.T) {
	read := func(batches int) (bytes int64) {
		m := adapted(t, ownModel(t, "qwen3-moe"), MaxMemory(1))
		window{batches: batches, together: true}.learn(t, m)
		return m.FrozenMemory().Read
	}
	one := read(1)
	if one == 0 {
		t.Fatal("nothing was read")
	}
	for _, batches := range []int{2, 3, 8} { // more batches reach more experts
		if n := read(batches); n > one*3/2 {
			t.Errorf("%d batches read %d bytes, one reads %d", batches, n, one)
		}
	}
}

// TestPackedWeightsChangeNothing: the batches of a window share the packed weights of a block, in memory for all, some or none.
func TestPackedWeightsChangeNothing(t *testing.T) {
	dir := halfBase(t, `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "torch_dtype": "bfloat16",
		"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 64}`)
	for _, cast := range []tensor.Precision{tensor.Float32, tensor.BFloat16} {
		w := window{batches: 4, autocast: cast}
		whole := adapted(t, dir)
		want := w.learn(t, whole)
		w.together = true
		m := adapted(t, dir, MaxMemory(1))
		for _, limit := range []int64{1, m.FrozenMemory().Minimum * 5 / 2, m.FrozenMemory().Minimum * 3, 1 << 30} {
			m := adapted(t, dir, MaxMemory(limit), PackOnce())
			if !bytes.Equal(w.learn(t, m), want) {
				t.Errorf("%v, limit %d: another adapter", cast, limit)
			}
			if f := m.FrozenMemory(); limit > 1 && cpu.KeepsPacked() && (f.Packed == 0 || f.Resident+f.Staging+f.Packed > max(limit, f.Minimum)) {
				t.Errorf("limit %d: got %+v, want some memory for packed weights within the limit", limit, f)
			}
		}
	}
}

// beside computes losses of a window for which each batch also has passes that learn nothing: without the adapter and, for every
// other batch, without a record. It returns all losses, gradients and hidden states.
func beside(t *testing.T, m *Model, together bool) []byte {
	t.Helper()
	w := window{batches: 4, reduction: tensor.None}
	var out bytes.Buffer
	for step := range 2 {
		var batches []Batch
		var options []Options
		for i, b := range w.uneven(m.spec.Vocab) {
			per := tensor.CrossEntropyOptions{Reduction: tensor.None}
			batches, options = append(batches, b), append(options, Options{CrossEntropyOptions: per, Base: true})
			if i%2 == 0 {
				batches, options = append(batches, b), append(options, Options{CrossEntropyOptions: per, NoGrad: true})
			}
			batches, options = append(batches, b), append(options, Options{CrossEntropyOptions: per})
		}
		tp := tensor.NewTape(tensor.Options{})
		passes := m.Losses
		if step == 1 {
			passes = m.HiddenStatesOfBatches
		}
		for len(batches) > 0 {
			n := 1
			if together {
				n = len(batches)
			}
			results, err := passes(tp, batches[:n], options[:n])
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				fmt.Fprintf(&out, "%x\n", r.Data())
				if options[i].Base || options[i].NoGrad {
					continue
				}
				grad := make([]float32, r.Len())
				for k := range grad {
					grad[k] = float32(k%5) - 1.5
				}
				if err := tp.BackwardFrom(r, grad); err != nil {
					t.Fatal(err)
				}
			}
			batches, options = batches[n:], options[n:]
		}
		for name, p := range m.Parameters() {
			fmt.Fprintf(&out, "%s %x\n", name, p.Grad())
		}
	}
	if n := len(m.sessions.lent); n > 0 {
		t.Errorf("%d sessions are in use at the end", n)
	}
	return out.Bytes()
}

// TestPassesThatLearnNothingShareTheSweep: those of a reference and of hidden states have the bits of passes one after another,
// and read no weight again.
func TestPassesThatLearnNothingShareTheSweep(t *testing.T) {
	for _, name := range []string{"gemma2", "qwen3-moe"} {
		want := beside(t, adapted(t, ownModel(t, name), MaxMemory(1)), false)
		m := adapted(t, ownModel(t, name), MaxMemory(1), Activations(1, t.TempDir()))
		if !m.Sweeps() {
			t.Fatalf("%s does not sweep", name)
		}
		if !bytes.Equal(beside(t, m, true), want) {
			t.Errorf("%s: other losses, gradients or states", name)
		}
	}
	read := func(others bool) int64 {
		m := adapted(t, ownModel(t, "gemma2"), MaxMemory(1))
		var batches []Batch
		var options []Options
		for _, b := range (window{batches: 3}).uneven(m.spec.Vocab) {
			if others {
				batches, options = append(batches, b, b), append(options, Options{Base: true}, Options{NoGrad: true})
			}
			batches, options = append(batches, b), append(options, Options{})
		}
		tp := tensor.NewTape(tensor.Options{})
		losses, err := m.Losses(tp, batches, options)
		for i, l := range losses {
			if o := options[i]; err == nil && !o.Base && !o.NoGrad {
				err = tp.Backward(l, 1)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.FrozenMemory().Read
	}
	if with, without := read(true), read(false); with > without+without/3 || with == 0 { // one more forward sweep is half
		t.Errorf("read %d bytes, %d without passes that learn nothing", with, without)
	}
}

// TestALossThatIsDroppedFailsTheOthers: losses wait for all of their group.
func TestALossThatIsDroppedFailsTheOthers(t *testing.T) {
	m := adapted(t, ownModel(t, "gemma2"), MaxMemory(1))
	tp, other := tensor.NewTape(tensor.Options{}), tensor.NewTape(tensor.Options{})
	w := window{batches: 3, together: true}
	losses, err := m.Losses(tp, w.uneven(m.spec.Vocab), make([]Options, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := tp.Backward(losses[0], 1); err != nil {
		t.Fatal(err)
	}
	if err := tp.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := tp.Backward(losses[1], 1); err == nil {
		t.Error("a loss was reversed after Reset")
	}
	if n := sessionsOf(m); n != 1 || len(m.sessions.lent) > 0 {
		t.Errorf("%d sessions, %d in use", n, len(m.sessions.lent))
	}
	if _, err := m.Loss(other, w.uneven(m.spec.Vocab)[0], Options{}); err != nil {
		t.Error(err)
	}
}

// TestAFailedReadOrWriteFailsTheSweep: the tape reports it, the session comes back, and the next step works.
func TestAFailedReadOrWriteFailsTheSweep(t *testing.T) {
	dir := t.TempDir()
	m := adapted(t, ownModel(t, "gemma2"), MaxMemory(1), Activations(1, dir))
	w := window{batches: 3, together: true}
	want := w.learn(t, adapted(t, ownModel(t, "gemma2"), MaxMemory(1)))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	if _, err := m.Losses(tp, w.uneven(m.spec.Vocab), make([]Options, 3)); err == nil || !strings.Contains(err.Error(), "scratch file") {
		t.Fatalf("got error %v, want one about the scratch file", err)
	}
	if n := len(m.sessions.lent); n > 0 {
		t.Errorf("%d sessions are in use after an error", n)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.learn(t, m), want) {
		t.Error("another adapter after an error")
	}
}
