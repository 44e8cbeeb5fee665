package adapter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestGoldenLoRALogits runs adapters that PEFT trained on their base, whose weights stay as
// they are: under every map the bits are the same, and so they are in a batch with rows of the base
// and of other adapters.
func TestGoldenLoRALogits(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "train/lora (logits)", cases) }()
	for _, file := range golden.Glob(t, "train/lora/*/logits.safetensors") {
		run := filepath.Dir(file)
		cases++
		t.Run(filepath.Base(run), func(t *testing.T) {
			fixture, err := loader.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer fixture.Close()
			ids, want := dispatchtest.AdapterPrompts(t, fixture), values(t, fixture, "adapter_logits")
			skeleton, checkpoint := dispatchtest.OpenBase(t, golden.AdapterBase(t))
			adapters := []dispatch.Adapter{{Name: "final", Dir: filepath.Join(run, "final")}, {Name: "init", Dir: filepath.Join(run, "init")}}
			underEveryMap(t, skeleton, checkpoint, dispatch.Options{Adapters: adapters}, ids, want, 2e-5, func(m *dispatch.Model, got [][]float32) {
				beside(t, m, ids, got)
			})
			skeleton, checkpoint = dispatchtest.OpenBase(t, filepath.Join(run, "merged.safetensors"))
			m, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["cpu"], dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			dispatchtest.Close(t, "merged", slices.Concat(dispatchtest.AdaptedLogits(t, m, ids, "")...), values(t, fixture, "merged_logits"), 2e-5)
		})
	}
}

// underEveryMap runs the adapter called final under every map: the logits are near want and have the same bits. check
// gets each model with them.
func underEveryMap(t *testing.T, skeleton *meta.Model, checkpoint *loader.Checkpoint, o dispatch.Options, ids [][]int32, want []float32, tolerance float64, check func(m *dispatch.Model, got [][]float32)) {
	t.Helper()
	o.Threads, o.Variant, o.Precision, o.KVTokens = 2, testenv.Variant(), dispatch.PrecisionHigh, 4096
	var first [][]float32
	for name, placed := range dispatchtest.FiveMaps(skeleton) {
		m, err := dispatch.New(skeleton, checkpoint, placed, o)
		if err != nil {
			t.Fatal(err)
		}
		if name == "promoted" {
			dispatchtest.Promote(t, m)
		}
		got := dispatchtest.AdaptedLogits(t, m, ids, "final")
		dispatchtest.Close(t, name, slices.Concat(got...), want, tolerance)
		if first == nil {
			first = got
		}
		dispatchtest.SameLogits(t, name, got, first)
		check(m, got)
		m.Close()
	}
}

func values(t *testing.T, c *loader.Checkpoint, name string) []float32 {
	t.Helper()
	x, ok := c.Lookup(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	data, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for ; len(data) > 0; data = data[4:] {
		all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return all
}

// beside runs all prompts in one batch, with the adapter, with another and with none.
func beside(t *testing.T, m *dispatch.Model, ids [][]int32, want [][]float32) {
	t.Helper()
	plain, other := dispatchtest.AdaptedLogits(t, m, ids, ""), dispatchtest.AdaptedLogits(t, m, ids, "init")
	dispatchtest.SameLogits(t, "an adapter whose B is zero", other, plain)
	var batch dispatch.Batch
	var all [][]float32
	for i, p := range ids {
		for k, name := range []string{"", "final", "init", "final"} {
			s, err := m.NewAdaptedSequence(name)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Free()
			batch.Rows = append(batch.Rows, dispatch.BatchRow{Sequence: s, Tokens: p, Logits: dispatch.LogitsLast})
			w := [][]float32{plain[i], want[i], other[i], want[i]}[k]
			all = append(all, w[len(w)-m.Vocab():])
		}
	}
	logits, err := m.Forward(context.Background(), &batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		_, v := logits.Row(i)
		dispatchtest.SameLogits(t, "in one batch", [][]float32{v}, [][]float32{w})
	}
}

// TestAdaptersShareNoPages: keys that an adapter made serve that adapter only.
func TestAdaptersShareNoPages(t *testing.T) {
	m := adaptedModel(t, dispatch.Options{Precision: dispatch.PrecisionHigh, KVTokens: 4096})
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(i * 7 % m.Vocab())
	}
	run := func(name string) (reused int, logits []float32) {
		s, err := m.NewAdaptedSequence(name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Free()
		reused = s.Reuse(prompt)
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: prompt[reused:], PromptLen: len(prompt), Logits: dispatch.LogitsLast}}})
		if err != nil {
			t.Fatal(err)
		}
		_, v := out.Row(0)
		return reused, slices.Clone(v)
	}
	first := map[string][]float32{}
	for _, name := range []string{"", "a", "b"} {
		n, logits := run(name)
		if n != 0 {
			t.Errorf("adapter %q reused %d tokens of another", name, n)
		}
		first[name] = logits
	}
	if slices.Equal(first[""], first["a"]) {
		t.Error("the adapter changes nothing")
	}
	for _, name := range []string{"b", "", "a"} {
		n, logits := run(name)
		if n == 0 {
			t.Errorf("adapter %q reused nothing of its own", name)
		}
		dispatchtest.SameLogits(t, name, [][]float32{logits}, [][]float32{first[name]})
	}
}

// TestGenerateWithAnAdapter: it goes on in another way than the base, and a name that is not
// there is an error.
func TestGenerateWithAnAdapter(t *testing.T) {
	m := adaptedModel(t, dispatch.Options{Precision: dispatch.PrecisionHigh, KVTokens: 4096})
	text := func(name string) (ids []int32, err error) {
		for id, err := range m.Generate(context.Background(), []int32{5, 6, 7}, dispatch.GenerateOptions{MaxTokens: 40, Temperature: 2, Adapter: name}) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, nil
	}
	plain, err := text("")
	if err != nil {
		t.Fatal(err)
	}
	with, err := text("a")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(plain, with) {
		t.Errorf("both say %v", plain)
	}
	if _, err := text("nobody"); !errors.Is(err, dispatch.ErrNoAdapter) {
		t.Errorf("a name that is not there: %v", err)
	}
}

// adaptedModel is a base with one trained adapter under two names.
func adaptedModel(t *testing.T, o dispatch.Options) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	dir := dispatchtest.AdapterDir(t)
	o.Threads, o.Adapters = 2, []dispatch.Adapter{{Name: "a", Dir: dir}, {Name: "b", Dir: dir}}
	m, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["cpu"], o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestAdaptersAreCounted: the plan and the ledger have their memory, and a name that is not
// there is an error.
func TestAdaptersAreCounted(t *testing.T) {
	o := dispatch.Options{Ledger: new(dispatch.Ledger)}
	m := adaptedModel(t, o)
	without := dispatch.Options{Ledger: new(dispatch.Ledger), Threads: 2}
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	plain, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["cpu"], without)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	held, heldAlone := o.Ledger.Held()["activations"], without.Ledger.Held()["activations"]
	limits := []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 30}}
	with, _, err := dispatch.Plan(skeleton, dispatch.Options{MaxMemory: limits, Adapters: []dispatch.Adapter{{Name: "a", Dir: dispatchtest.AdapterDir(t)}, {Name: "b", Dir: dispatchtest.AdapterDir(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	alone, _, err := dispatch.Plan(skeleton, dispatch.Options{MaxMemory: limits})
	if err != nil {
		t.Fatal(err)
	}
	planned, plannedAlone := with.Device(devicemap.CPU).ActivationBytes, alone.Device(devicemap.CPU).ActivationBytes
	if held <= heldAlone || planned <= plannedAlone {
		t.Errorf("with adapters a start holds %d bytes and %d are planned, without %d and %d; want more with them", held, planned, heldAlone, plannedAlone)
	}
	if held > planned || heldAlone > plannedAlone { // passes take more than a start
		t.Errorf("a start holds %d bytes with adapters and %d without, %d and %d are planned", held, heldAlone, planned, plannedAlone)
	}
	if _, err := m.NewAdaptedSequence("c"); !errors.Is(err, dispatch.ErrNoAdapter) {
		t.Errorf("an adapter that is not there: %v", err)
	}
}

// TestAdapterErrorsNameThePlace opens folders that have no adapter for the model.
func TestAdapterErrorsNameThePlace(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	empty := t.TempDir()
	foreign := t.TempDir()
	config := `{"peft_type": "LORA", "target_modules": ["c_attn"]}`
	if err := os.WriteFile(filepath.Join(foreign, "adapter_config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		adapters []dispatch.Adapter
		want     string
	}{
		{[]dispatch.Adapter{{Name: "x", Dir: empty}}, "adapter_config.json"},
		{[]dispatch.Adapter{{Name: "x", Dir: foreign}}, "matches no module"},
		{[]dispatch.Adapter{{Dir: empty}}, "name is empty"},
		{[]dispatch.Adapter{{Name: "x", Dir: dispatchtest.AdapterDir(t)}, {Name: "x", Dir: dispatchtest.AdapterDir(t)}}, "taken"},
	} {
		m, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["cpu"], dispatch.Options{Adapters: c.adapters})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.adapters, err, c.want)
		}
	}
}

// TestAdaptersBesideRoundedWeights: where inputs of the base's products are rounded, in
// another order for each role, or its weights are converted, the sums of adapters stay what
// they are: alone, in chunks and in a batch with others the bits are the same.
func TestAdaptersBesideRoundedWeights(t *testing.T) {
	for name, o := range map[string]dispatch.Options{
		"auto": {KVTokens: 4096}, "q8_0": {KVTokens: 4096, Quantize: meta.QuantQ8}, "q8_0, high": {KVTokens: 4096, Quantize: meta.QuantQ8, Precision: dispatch.PrecisionHigh},
	} {
		t.Run(name, func(t *testing.T) {
			m := adaptedModel(t, o)
			prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			run := func(chunk int, names ...string) [][]float32 {
				var batch dispatch.Batch
				for _, name := range names {
					s, err := m.NewAdaptedSequence(name)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Free()
					batch.Rows = append(batch.Rows, dispatch.BatchRow{Sequence: s, PromptLen: len(prompt), Logits: dispatch.LogitsLast})
				}
				var last [][]float32
				for at := 0; at < len(prompt)+3; at += chunk {
					end := min(at+chunk, len(prompt)+3)
					if at < len(prompt) {
						end = min(end, len(prompt))
					}
					for i := range batch.Rows {
						batch.Rows[i].Tokens = append(slices.Clone(prompt), 7, 8, 9)[at:end]
					}
					at = end - chunk
					out, err := m.Forward(context.Background(), &batch)
					if err != nil {
						t.Fatal(err)
					}
					last = nil
					for i := range names {
						_, v := out.Row(i)
						last = append(last, slices.Clone(v))
					}
				}
				return last
			}
			want := map[string][]float32{"": run(8, "")[0], "a": run(8, "a")[0]}
			if slices.Equal(want[""], want["a"]) {
				t.Error("the adapter adds nothing")
			}
			for _, chunk := range []int{8, 3, 1} {
				names := []string{"a", "", "b", "a", ""}
				for i, got := range run(chunk, names...) {
					w := want[""]
					if names[i] != "" {
						w = want["a"]
					}
					dispatchtest.SameLogits(t, name, [][]float32{got}, [][]float32{w})
				}
			}
		})
	}
}
