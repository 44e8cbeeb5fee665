package model

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// smallLlama is the folder of a small model that is always there, whatever fixtures are read.
func smallLlama(t testing.TB) string {
	t.Helper()
	return filepath.Join(golden.Module(t), "testdata", "golden", "train", "models", "llama")
}

// frozenBase is the small model, all of it in the checkpoint.
func frozenBase(t testing.TB) *Model {
	t.Helper()
	return frozenModel(t, filepath.Join(smallLlama(t), "init.safetensors"))
}

// frozenModel is the model of a checkpoint with its config next to it; all weights are in the checkpoint.
func frozenModel(t testing.TB, path string) *Model {
	t.Helper()
	m, err := openFile(t, filepath.Dir(path), path, Freeze(func(string) bool { return true }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestGoldenLoRATraces trains adapters on a base that stays in its file: losses, norms and
// weights of every step, the saved adapter, and the merged weights.
func TestGoldenLoRATraces(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "train/lora (training)", cases) }()
	for _, path := range golden.Glob(t, "train/lora/trace.json") {
		var trace struct {
			Base string `json:"base_weights"`
			Data string
			Runs []traceRun
		}
		var data struct {
			Micro []microBatch `json:"micro_batches"`
		}
		golden.JSON(t, path, &trace)
		base := filepath.Join(filepath.Dir(path), filepath.FromSlash(trace.Base))
		if !golden.JSON(t, filepath.Join(filepath.Dir(path), filepath.FromSlash(trace.Data)), &data) {
			continue // the base model is not among these fixtures
		}
		for _, r := range trace.Runs {
			for _, recompute := range []bool{false, true} {
				name := r.Run
				if recompute {
					name += ", recomputed"
				}
				t.Run(name, func(t *testing.T) {
					cases++
					dir := filepath.Join(filepath.Dir(path), r.Run)
					m := frozenModel(t, base)
					if err := m.LoadAdapter(filepath.Join(dir, "init")); err != nil {
						t.Fatal(err)
					}
					(&replay{T: t, run: r, m: m, micro: data.Micro, recompute: recompute}).replay(dir)
					trained(t, m, r, dir)
				})
			}
		}
	}
}

// trained compares the result with the fixture's final adapter and merged weights.
func trained(t *testing.T, m *Model, r traceRun, dir string) {
	t.Helper()
	limit := 3e-6
	if r.Optimizer.Name != "SGD" {
		limit = 3e-4
	}
	again := t.TempDir()
	if err := m.SaveAdapter(again); err != nil {
		t.Fatal(err)
	}
	within(t, arrays(t, filepath.Join(again, "adapter_model.safetensors")), arrays(t, filepath.Join(dir, "final", "adapter_model.safetensors")), limit)
	merged, err := m.MergeAdapter()
	if err == nil {
		err = loader.Save(again, merged, loader.SaveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	within(t, arrays(t, filepath.Join(again, "model.safetensors")), arrays(t, filepath.Join(dir, "merged.safetensors")), 4*limit)
}

func within(t *testing.T, got, want map[string][]float32, limit float64) {
	t.Helper()
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Fatalf("tensors %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for name, w := range want {
		for i, v := range got[name] {
			if !(math.Abs(float64(v-w[i])) <= limit) {
				t.Fatalf("%s[%d] = %g, want %g", name, i, v, w[i])
			}
		}
	}
}

// someTokens are two short sequences.
func someTokens() Batch {
	b := Batch{Length: 6}
	for i := range 12 {
		b.IDs = append(b.IDs, i*7%60)
	}
	return b
}

// adapterGradients are one pass's, with all kinds of targets, the head among them.
func adapterGradients(t *testing.T, m *Model, o Options) map[string][]float32 {
	t.Helper()
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
	b := someTokensOf(m)
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, o)
	if err == nil {
		err = tp.Backward(loss, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float32{}
	for name, p := range m.Parameters() {
		if p.Trainable {
			out[name] = slices.Clone(p.Grad())
		} else if p.Grad() != nil {
			t.Errorf("%s is frozen and has a gradient", name)
		}
	}
	return out
}

// TestAdapterDropout: the same inputs are dropped where blocks are computed again, and in
// every linear map others.
func TestAdapterDropout(t *testing.T) {
	var first map[string][]float32
	for _, recompute := range []bool{false, true} {
		m := frozenBase(t)
		if err := m.AddLoRA(LoRAConfig{R: 3, Dropout: 0.4, Pattern: ".*(proj|lm_head)"}, rng.New(5)); err != nil {
			t.Fatal(err)
		}
		spread(m)
		got := adapterGradients(t, m, Options{Recompute: recompute, Dropout: rng.New(9)})
		plain := adapterGradients(t, m, Options{Recompute: recompute})
		if first == nil {
			first = got
		}
		for name, g := range got {
			if !slices.Equal(g, first[name]) {
				t.Errorf("%s differs where blocks are computed again", name)
			}
			if slices.Equal(g, plain[name]) {
				t.Errorf("%s: nothing was dropped", name)
			}
		}
		again := adapterGradients(t, m, Options{Dropout: rng.New(10)})
		if name := "lm_head.lora_A.weight"; slices.Equal(again[name], got[name]) {
			t.Error("another generator drops the same")
		}
	}
}

// spread makes B other than zero, so that A has gradients.
func spread(m *Model) {
	g := rng.New(77)
	for name, p := range m.Parameters() {
		if strings.HasSuffix(name, "lora_B.weight") {
			g.Uniform(p.Data(), -0.2, 0.2)
		}
	}
}

// TestAdapterGradientsAreSlopes compares them with differences of losses, on a base whose
// parameters are on the heap: these get none, and do not change.
func TestAdapterGradientsAreSlopes(t *testing.T) {
	m := open(t, smallLlama(t))
	err := m.AddLoRA(LoRAConfig{R: 2, Alpha: 6, RSLoRA: true, AllLinear: true, Exclude: []string{"up_proj"}, Ranks: []LoRAOverride{{"v_proj", 5}}}, rng.New(5))
	if err != nil {
		t.Fatal(err)
	}
	spread(m)
	grads := adapterGradients(t, m, Options{})
	b := someTokens()
	loss := func() float64 {
		tp := tensor.NewTape(tensor.Options{})
		var l *tensor.Tensor
		tp.NoGrad(func() { l, err = m.Loss(tp, b, Options{}) })
		if err != nil {
			t.Fatal(err)
		}
		return float64(l.Item())
	}
	checked := 0
	for name, p := range m.Parameters() {
		if !p.Trainable {
			continue
		}
		if strings.Contains(name, "up_proj") {
			t.Errorf("%s is excluded", name)
		}
		if p.Shape()[0] != 5 && p.Shape()[1] != 5 && strings.Contains(name, "v_proj") {
			t.Errorf("%s has shape %v, wanted rank 5", name, p.Shape())
		}
		const h = 2e-2
		i := len(p.Data()) / 3
		old := p.Data()[i]
		p.Data()[i] = old + h
		up := loss()
		p.Data()[i] = old - h
		slope := (up - loss()) / (2 * h)
		p.Data()[i] = old
		if d := math.Abs(slope - float64(grads[name][i])); d > 2e-3*(1+math.Abs(slope)) {
			t.Errorf("%s[%d]: gradient %g, slope %g", name, i, grads[name][i], slope)
		}
		checked++
	}
	if checked != 2*2*6 {
		t.Errorf("%d parameters are trained", checked)
	}
}

// TestAdapterIsPEFTs: what AddLoRA starts, with the generator's state of the fixtures'
// check, is read back, and a second adapter is refused.
func TestAdapterIsPEFTs(t *testing.T) {
	m := frozenBase(t)
	if err := m.SaveAdapter(t.TempDir()); err == nil {
		t.Error("no adapter was saved")
	}
	if err := m.AddLoRA(LoRAConfig{R: 4, Targets: []string{"q_proj"}, BaseModel: "a/b", Dropout: 0.1}, rng.New(1)); err != nil {
		t.Fatal(err)
	}
	if err := m.AddLoRA(LoRAConfig{}, rng.New(1)); err == nil {
		t.Error("a second adapter was added")
	}
	dir := t.TempDir()
	if err := m.SaveAdapter(dir); err != nil {
		t.Fatal(err)
	}
	a, err := lora.Open(dir, m.Meta().Root)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Config.R != 4 || a.Config.Alpha != 8 || a.Config.Dropout != 0.1 || a.Config.BaseModel != "a/b" || len(a.Pairs) != 2 {
		t.Errorf("config %+v of %d pairs", a.Config, len(a.Pairs))
	}
	if err := frozenBase(t).AddLoRA(LoRAConfig{Targets: []string{"nothing"}}, rng.New(1)); err == nil {
		t.Error("an adapter of nothing was added")
	}
}

// TestBaseLeavesTheAdapterOut compares the base's loss with that of the model before it had an adapter.
func TestBaseLeavesTheAdapterOut(t *testing.T) {
	m := open(t, filepath.Join(golden.Module(t), "testdata", "golden", "train", "models", "llama"))
	defer m.Close()
	lossOf := func(o Options) float32 {
		tp := tensor.NewTape(tensor.Options{})
		loss, err := m.Loss(tp, someTokens(), o)
		if err != nil {
			t.Fatal(err)
		}
		return loss.Item()
	}
	before := lossOf(Options{})
	if err := m.AddLoRA(LoRAConfig{R: 2, AllLinear: true}, rng.New(3)); err != nil {
		t.Fatal(err)
	}
	spread(m)
	adapted := lossOf(Options{})
	if got := lossOf(Options{Base: true}); got != before || adapted == before {
		t.Errorf("got a loss of %v without the adapter and %v with it, want %v and another one", got, adapted, before)
	}
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, someTokens(), Options{Base: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tp.Backward(loss, 1); err == nil {
		t.Error("the base's loss was reversed")
	}
}

// TestElementsAreThoseThatTrain compares the count of an adapter with its parameters.
func TestElementsAreThoseThatTrain(t *testing.T) {
	for _, c := range []LoRAConfig{{R: 3}, {R: 2, Targets: []string{"q_proj"}}, {R: 4, DoRA: true}, {R: 2, Save: []string{"lm_head", "norm"}}} {
		m := frozenBase(t)
		want, err := c.Elements(m.Meta())
		if err == nil {
			err = m.AddLoRA(c, rng.New(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		for _, p := range m.Parameters() {
			if p.Trainable {
				got += int64(p.Len())
			}
		}
		if got != want || want == 0 {
			t.Errorf("%+v: %d numbers train, Elements is %d", c, got, want)
		}
	}
	if _, err := (LoRAConfig{Targets: []string{"no_such"}}).Elements(frozenBase(t).Meta()); err == nil {
		t.Error("a target that no module has: want an error")
	}
}
