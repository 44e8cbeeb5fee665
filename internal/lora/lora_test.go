package lora

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
)

// skeleton is a small model of the given config.
func skeleton(t testing.TB, config string) *meta.Model {
	t.Helper()
	c, err := meta.ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const llama = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
	"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false}`

// gpt2 stores its weights as [in, out].
const gpt2 = `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}`

func paths(targets []Target) []string {
	var out []string
	for _, t := range targets {
		out = append(out, t.Path)
	}
	return out
}

// TestMatch compares with the modules that PEFT adapts.
func TestMatch(t *testing.T) {
	layer := func(i string, names ...string) []string {
		var out []string
		for _, n := range names {
			out = append(out, "model.layers."+i+"."+n)
		}
		return out
	}
	all := func(i string) []string {
		return layer(i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
	}
	for _, c := range []struct {
		name, model, config string
		want                []string
	}{
		{"list", llama, `"target_modules": ["q_proj", "v_proj"]`,
			append(layer("0", "self_attn.q_proj", "self_attn.v_proj"), layer("1", "self_attn.q_proj", "self_attn.v_proj")...)},
		{"whole paths", llama, `"target_modules": ["model.layers.1.mlp.up_proj"]`, layer("1", "mlp.up_proj")},
		{"names end at a dot", llama, `"target_modules": ["j", "up_proj", "proj"]`, append(layer("0", "mlp.up_proj"), layer("1", "mlp.up_proj")...)},
		{"pattern", llama, `"target_modules": ".*\\.0\\..*(q|k)_proj"`, layer("0", "self_attn.q_proj", "self_attn.k_proj")},
		{"all-linear", llama, `"target_modules": "All-Linear"`, append(all("0"), all("1")...)},
		{"exclude", llama, `"target_modules": "all-linear", "exclude_modules": ".*(mlp|layers\\.1).*"`,
			layer("0", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")},
		{"exclude a list", llama, `"target_modules": ["q_proj"], "exclude_modules": ["model.layers.0.self_attn.q_proj"]`, layer("1", "self_attn.q_proj")},
		{"layers", llama, `"target_modules": ["q_proj"], "layers_to_transform": [1]`, layer("1", "self_attn.q_proj")},
		{"one layer", llama, `"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"`, layer("0", "self_attn.q_proj")},
		{"head", llama, `"target_modules": ["lm_head"]`, []string{"lm_head"}},
		{"Conv1D", gpt2, `"target_modules": ["c_attn"]`, []string{"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"}},
	} {
		config, err := ReadConfig([]byte(`{"peft_type": "LORA", ` + c.config + `}`))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := config.Match(skeleton(t, c.model).Root)
		if err != nil || !slices.Equal(paths(got), c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, paths(got), err, c.want)
		}
	}
}

const mixtral = `{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
	"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2}`

// TestParameters: stacks of experts and routers are adapted by the names of parameters, as
// PEFT calls them, and come back from a file as they were.
func TestParameters(t *testing.T) {
	config, err := ReadConfig([]byte(`{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "layers_to_transform": [1],
		"target_parameters": ["gate.weight", "gate_up_proj", "down_proj"], "rank_pattern": {".*\\.gate_up_proj": 8}, "alpha_pattern": {".*\\.gate_up_proj": 24}}`))
	if err != nil {
		t.Fatal(err)
	}
	root := skeleton(t, mixtral).Root
	a, err := config.New(root, rng.New(1).Uniform)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range a.Pairs {
		p := &a.Pairs[i]
		rng.New(uint64(i)).Uniform(p.B.F32(), -1, 1)
		if strings.Contains(p.Path, "layers.0") {
			got = append(got, fmt.Sprint(p.Name("A"), p.A.Shape(), p.Name("B"), p.unstackedShape(), p.Scale))
		}
	}
	const mlp = "base_model.model.model.layers.0.mlp."
	want := []string{
		mlp + "gate.lora_A.weight[4 32]" + mlp + "gate.lora_B.weight[4 4] 2",
		mlp + "experts.base_layer.lora_A.weight[32 32]" + mlp + "experts.base_layer.lora_B.weight[96 32] 3",
		mlp + "experts.lora_A.weight[16 48]" + mlp + "experts.lora_B.weight[32 16] 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	dir := t.TempDir()
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	same(t, a, b)
	for _, c := range []string{`["norm.weight"]`, `["gate_up_proj"], "lora_dropout": 0.1`} {
		config, err := ReadConfig([]byte(`{"peft_type": "LORA", "target_parameters": ` + c + `}`))
		if err == nil {
			_, err = config.Match(root)
		}
		if err == nil {
			t.Errorf("target_parameters %s was taken", c)
		}
	}
}

// unstackedShape is B's in a file.
func (p *Pair) unstackedShape() []int {
	if p.Experts == 0 {
		return p.B.Shape()
	}
	b := p.unstack(p.B)
	return b.Shape()
}

func TestRanksAndScales(t *testing.T) {
	config, err := ReadConfig([]byte(`{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "up_proj"],
		"rank_pattern": {"layers.1.self_attn.q_proj": 16, "q_proj": 2, "proj": 64}, "alpha_pattern": {".*v_proj": 1}, "use_rslora": true}`))
	if err != nil {
		t.Fatal(err)
	}
	targets, err := config.Match(skeleton(t, llama).Root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{"model.layers.0.self_attn.q_proj": {2, 8 / math.Sqrt2}, "model.layers.1.self_attn.q_proj": {16, 2},
		"model.layers.0.self_attn.v_proj": {4, 0.5}, "model.layers.1.mlp.up_proj": {4, 4}}
	for _, tt := range targets {
		if w, ok := want[tt.Path]; ok && (tt.Rank != int(w[0]) || tt.Scale != float32(w[1])) {
			t.Errorf("%s: rank %d, scale %v; want %v", tt.Path, tt.Rank, tt.Scale, w)
		}
	}
}

// TestRefuses: what cannot be run is an error that names the field.
func TestRefuses(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`{`, "adapter_config.json"},
		{`{"peft_type": "IA3", "target_modules": ["q_proj"]}`, "peft_type"},
		{`{"peft_type": "LORA"}`, "target_modules"},
		{`{"peft_type": "LORA", "target_modules": []}`, "target_modules"},
		{`{"peft_type": "LORA", "target_modules": [3]}`, "target_modules"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "r": 0}`, "r is 0"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "r": 2.5}`, "r is 2.5"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "r": "many"}`, "r is"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "trainable_token_indices": [3]}`, "trainable_token_indices"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "bias": "all"}`, "bias"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "lora_dropout": 1.0}`, "lora_dropout"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "modules_to_save": [""]}`, "modules_to_save"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "init_lora_weights": "pissa_niter_16"}`, "init_lora_weights"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "rank_pattern": [1]}`, "rank_pattern"},
		{`{"peft_type": "LORA", "target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0}}`, "rank_pattern"},
		{`{"peft_type": "LORA", "target_modules": ".*q", "layers_to_transform": [1]}`, "layers_to_transform"},
	} {
		if _, err := ReadConfig([]byte(c.config)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "lora:") {
			t.Errorf("%s: %v; want an error that names %s", c.config, err, c.want)
		}
	}
	root := skeleton(t, llama).Root
	for _, c := range []struct{ targets, want string }{
		{`["embed_tokens"]`, "model.embed_tokens"},
		{`["self_attn"]`, "model.layers.0.self_attn"},
		{`["c_attn"]`, "matches no module"},
		{`"(?!lm_head).*"`, "target_modules"},
	} {
		config, err := ReadConfig([]byte(`{"peft_type": "LORA", "target_modules": ` + c.targets + `}`))
		if err == nil {
			_, err = config.Match(root)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error that names %s", c.targets, err, c.want)
		}
	}
}

// TestStartsAsPEFT holds the numbers that PEFT 0.21 starts with after torch.manual_seed(42).
func TestStartsAsPEFT(t *testing.T) {
	config := &Config{R: 4, Alpha: 8, Targets: Names{List: []string{"q_proj", "v_proj"}}, Ranks: []Override{{"layers.1.self_attn.q_proj", 2}}}
	a, err := config.New(skeleton(t, llama).Root, rng.New(42).Uniform)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]float32{
		{0.09890495240688324, -0.12307273596525192, 0.08885109424591064}, {-0.05142058804631233, 0.09439049661159515, -0.08721647411584854},
		{-0.15487174689769745, -0.09727064520120621, -0.12794248759746552}, {-0.09162996709346771, -0.17483386396361755, 0.06705384701490402},
	}
	for i, p := range a.Pairs {
		if got := p.A.F32()[:3]; !slices.Equal(got, want[i]) {
			t.Errorf("%s: A begins with %v, want %v", p.Path, got, want[i])
		}
		if slices.ContainsFunc(p.B.F32(), func(v float32) bool { return v != 0 }) {
			t.Errorf("%s: B does not begin as zero", p.Path)
		}
	}
	if n := a.NumParameters(); n != 3*4*32+2*32+32*4+16*4+32*2+16*4 {
		t.Errorf("%d parameters", n)
	}
}

// TestSaveAndOpen: an opened adapter has the fields and elements that were saved.
func TestSaveAndOpen(t *testing.T) {
	root := skeleton(t, llama).Root
	config := &Config{R: 3, Alpha: 6, Dropout: 0.25, RSLoRA: true, Targets: Names{AllLinear: true}, Exclude: Names{Pattern: `.*mlp.*`},
		Ranks: []Override{{"v_proj", 5}, {"proj", 2}}, BaseModel: "a/b", TaskType: "CAUSAL_LM"}
	a, err := config.New(root, rng.New(1).Uniform)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Pairs {
		rng.New(uint64(i)).Uniform(a.Pairs[i].B.F32(), -1, 1)
	}
	dir := t.TempDir()
	for range 2 { // the second save replaces the first
		if err := a.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	same(t, a, b)
	if b.Config.Dropout != 0.25 || b.Config.BaseModel != "a/b" || !slices.Equal(b.Config.Ranks, config.Ranks) || b.Rank() != 5 {
		t.Errorf("config %+v", b.Config)
	}
}

// TestCopiesOfTheHead: PEFT saves the base's head together with its adapter.
func TestCopiesOfTheHead(t *testing.T) {
	root := skeleton(t, llama).Root
	config := &Config{R: 2, Alpha: 2, Targets: Names{List: []string{"lm_head"}}}
	a, err := config.New(root, rng.New(1).Uniform)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		rows int
		ok   bool
	}{{"lm_head.base_layer.weight", 64, true}, {"lm_head.base_layer.weight", 65, false}, {"model.norm.weight", 64, false}, {"model.embed_tokens.weight", 64, true}} {
		dir := t.TempDir()
		if err := a.Save(dir); err != nil {
			t.Fatal(err)
		}
		tensors := []loader.NamedTensor{named(prefix+c.name, tensor.Floats(make([]float32, c.rows*32), c.rows, 32))}
		for _, p := range a.Pairs {
			tensors = append(tensors, named(p.Name("A"), p.A), named(p.Name("B"), p.B))
		}
		if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{Stem: stem}); err != nil {
			t.Fatal(err)
		}
		b, err := Open(dir, root)
		if (err == nil) != c.ok {
			t.Errorf("%s of %d rows: %v", c.name, c.rows, err)
		}
		if err == nil {
			b.Close()
		}
	}
}

func same(t *testing.T, a, b *Adapter) {
	t.Helper()
	if len(a.Pairs) != len(b.Pairs) {
		t.Fatalf("%d pairs and %d", len(a.Pairs), len(b.Pairs))
	}
	for i := range a.Pairs {
		x, y := &a.Pairs[i], &b.Pairs[i]
		if x.Target != y.Target || !slices.Equal(valuesOf(t, x.A), valuesOf(t, y.A)) || !slices.Equal(valuesOf(t, x.B), valuesOf(t, y.B)) {
			t.Errorf("%+v and %+v differ", x.Target, y.Target)
		}
	}
}

// TestOpenSaysWhatIsWrong breaks a folder in every way that has an error of its own.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	root := skeleton(t, llama).Root
	config := &Config{R: 2, Alpha: 2, Targets: Names{List: []string{"q_proj"}}}
	for _, c := range []struct {
		name, want string
		change     func(a *Adapter, dir string)
	}{
		{"no config", "adapter_config.json", func(_ *Adapter, dir string) { os.Remove(filepath.Join(dir, ConfigFile)) }},
		{"no weights", "adapter_model.safetensors", func(_ *Adapter, dir string) { os.Remove(filepath.Join(dir, weightsFile)) }},
		{"a pickle", "pickle", func(_ *Adapter, dir string) {
			os.Rename(filepath.Join(dir, weightsFile), filepath.Join(dir, "adapter_model.bin"))
		}},
		{"a tensor too few", "model.layers.1.self_attn.q_proj.lora_A.weight is missing", func(a *Adapter, dir string) { a.Pairs = a.Pairs[:1]; a.Save(dir) }},
		{"a tensor too many", "lm_head", func(a *Adapter, dir string) {
			a.Pairs = append(a.Pairs, a.Pairs[0])
			a.Pairs[2].Path = "lm_head"
			a.Save(dir)
		}},
		{"a layer too many", `q_proj.lora_A.weight": this model has no module model.layers.7`, func(a *Adapter, dir string) {
			a.Pairs = append(a.Pairs, a.Pairs[0])
			a.Pairs[2].Path = "model.layers.7.self_attn.q_proj"
			a.Save(dir)
		}},
		{"another base", `; the adapter was made for "org/large-7b"`, func(a *Adapter, dir string) {
			a.Config.BaseModel, a.Pairs = "org/large-7b", a.Pairs[:1]
			a.Save(dir)
		}},
		{"a wrong shape", "lora_B.weight has shape [2 32]", func(a *Adapter, dir string) { a.Pairs[0].B = a.Pairs[0].A; a.Save(dir) }},
		{"a wrong dtype", "float64", func(a *Adapter, dir string) {
			a.Pairs[0].A, _ = tensor.Of(make([]byte, 8*64), meta.Float64, 2, 32)
			a.Save(dir)
		}},
	} {
		dir := t.TempDir()
		a, err := config.New(root, rng.New(1).Uniform)
		if err == nil {
			err = a.Save(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.change(a, dir)
		if _, err := Open(dir, root); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "lora:") {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// TestMergeTransposed compares Add with the definition, on a weight stored [in, out], in
// each dtype.
func TestMergeTransposed(t *testing.T) {
	config := &Config{R: 3, Alpha: 6, Targets: Names{List: []string{"c_fc"}}}
	a, err := config.New(skeleton(t, gpt2).Root, rng.New(3).Uniform)
	if err != nil {
		t.Fatal(err)
	}
	p := &a.Pairs[0]
	rng.New(4).Uniform(p.B.F32(), -1, 1)
	weight := make([]float32, p.In*p.Out)
	if err := p.Add(tensor.Floats(weight, p.In, p.Out).Data, meta.Float32, 1); err != nil {
		t.Fatal(err)
	}
	for i := range p.In {
		for o := range p.Out {
			var want float32
			for r := range p.Rank {
				want += p.B.F32()[o*p.Rank+r] * p.A.F32()[r*p.In+i]
			}
			if d := math.Abs(float64(weight[i*p.Out+o] - 2*want)); d > 1e-6 {
				t.Fatalf("weight[%d, %d] = %v, want %v", i, o, weight[i*p.Out+o], 2*want)
			}
		}
	}
	for dtype, tolerance := range map[meta.DType]float64{meta.BFloat16: 1.0 / 256, meta.Float16: 1.0 / 2048} {
		narrow, err := tensor.Of(make([]byte, 2*p.In*p.Out), dtype, p.In, p.Out)
		if err == nil {
			err = p.Add(narrow.Data, dtype, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range valuesOf(t, narrow) {
			if d := math.Abs(float64(v - weight[i])); d > tolerance*math.Abs(float64(weight[i]))+1e-7 {
				t.Fatalf("%v: element %d is %v, want %v", dtype, i, v, weight[i])
			}
		}
	}
	if err := p.Add(make([]byte, 8), meta.Float32, 1); err == nil {
		t.Error("a weight that is too short was added to")
	}
}

func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "rank_pattern": {"q_proj": 2}, "layers_to_transform": [0]}`))
	f.Add([]byte(`{"peft_type": "LORA", "target_modules": "all-linear", "exclude_modules": ".*mlp.*", "use_rslora": true}`))
	f.Add([]byte(`{"peft_type": "LORA", "target_modules": ["\\"], "rank_pattern": {"(": 1}}`))
	root := skeleton(f, llama).Root
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ReadConfig(data)
		if err != nil {
			return
		}
		targets, err := c.Match(root)
		if err == nil && len(targets) == 0 {
			t.Error("neither targets nor an error")
		}
	})
}

// keysOf are the keys of a JSON object, sorted.
func keysOf(t *testing.T, data []byte) []string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(m))
}

// opened is a checkpoint bound to a skeleton.
func opened(t *testing.T, m *meta.Model, path string) *loader.Binding {
	t.Helper()
	ck, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	b, err := loader.Bind(ck, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func valuesOf(t *testing.T, m tensor.Tensor) []float32 {
	t.Helper()
	v, err := elements(m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAnAdapterOfNaNsIsRefused: an adapter with an infinity or a NaN, at any place and in any
// dtype, is an error at load that names the tensor.
func TestAnAdapterOfNaNsIsRefused(t *testing.T) {
	config, err := ReadConfig([]byte(`{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}`))
	if err != nil {
		t.Fatal(err)
	}
	root := skeleton(t, mixtral).Root
	for i, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		a, err := config.New(root, rng.New(1).Uniform)
		if err != nil {
			t.Fatal(err)
		}
		v := a.Pairs[i%2].B.F32()
		v[len(v)-1] = bad
		dir := t.TempDir()
		if err := a.Save(dir); err != nil {
			t.Fatal(err)
		}
		opened, err := Open(dir, root)
		if err == nil {
			_ = opened.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "lora_B.weight: element") || !strings.Contains(err.Error(), "want a finite number") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestAConfigThatIsNoObjectNamesNoGoType: its error had the type of a Go map.
func TestAConfigThatIsNoObjectNamesNoGoType(t *testing.T) {
	if _, err := ReadConfig([]byte("[1]")); err == nil || err.Error() != "lora: adapter_config.json: got JSON of type array, want an object" {
		t.Errorf("got %v", err)
	}
}
